"""Sources of rollouts: episodes of the present weights, or episodes that a worker plays in advance.

With `max_staleness`, update u learns from episodes of version u - max_staleness of the weights, and from version 0
before that version exists. A faster worker plays no newer version, so results do not depend on speed. At most
max_staleness + 1 requests are played or waiting at a time.
"""

from __future__ import annotations

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any, NamedTuple

import torch

from ...agents.core import TrainablePolicy
from ..config import TrainConfig
from ..distribution.group import current
from .collector import RolloutCollector
from .requests import RequestMaker, Rollout, RolloutRequest, Weights, play_request, request_maker

CHECK_S = 0.2
"""Seconds between checks for a request to stop, while an update waits for its episodes."""


class WorkerClosedError(Exception):
    """A rollout worker was closed while it played."""


class RolloutWorker(ABC):
    """Plays requests with copies of the policies. One thread calls `play`; another one may call `close`."""

    @abstractmethod
    def play(self, request: RolloutRequest, weights: Weights) -> Rollout:
        """Play a request.

        Args:
            request: what to play.
            weights: weights of the request's version.

        Raises:
            EnvironmentFault: if an environment raises or breaks its contract.
            WorkerClosedError: if `close` was called.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop before the next turn, and free processes and memory."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the episodes that were unfinished after a request, from `Rollout.state`.

        Raises:
            ValueError: if this worker plays whole episodes only.
        """
        raise ValueError(f"{type(self).__name__} plays whole episodes and cannot continue unfinished ones")


class LocalWorker(RolloutWorker):
    """Plays in this process.

    Args:
        collector: collector with its own copies of the environments and of the policies.
    """

    def __init__(self, collector: RolloutCollector):
        self.collector = collector
        self._is_closed = threading.Event()
        collector.before_turn = self._check
        self._version: int | None = None

    def play(self, request: RolloutRequest, weights: Weights) -> Rollout:
        if self._version != request.version:
            load_weights(self.collector, weights)
            self._version = request.version
        return play_request(self.collector, request)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.collector.load_state_dict(state)

    def close(self) -> None:
        self._is_closed.set()

    def _check(self) -> None:
        if self._is_closed.is_set():
            raise WorkerClosedError


def load_weights(collector: RolloutCollector, weights: Weights) -> None:
    """Load weights into a collector's policies, and clear what was computed with the old ones."""
    for agent, state in weights.items():
        policy = collector.policies[agent]
        assert isinstance(policy, TrainablePolicy)  # only these have weights
        policy.load_state_dict(dict(state))
        policy.forget()


class RolloutSource(ABC):
    """Gives each update its rollout. All ranks call its methods together."""

    @abstractmethod
    def next(self, update: int) -> Rollout:
        """Rollout of an update.

        Args:
            update: number of updates done, which is the version of the present weights.

        Raises:
            EnvironmentFault: if an environment raises or breaks its contract.
        """

    def state_dict(self, version: int) -> dict[str, Any]:
        """State of rollouts that were played in advance, by key of the trainer's state; empty without any.

        Args:
            version: version of the weights that are saved with it.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027  # most have no state
        """Restore from the trainer's state."""

    def close(self) -> None:  # noqa: B027  # most have nothing to free
        """Stop rollouts that are being played."""


class LocalSource(RolloutSource):
    """Plays each update's episodes with the policies that learn, each rank its part.

    Args:
        collector: collector with these policies.
        request: makes the requests.
    """

    def __init__(self, collector: RolloutCollector, request: RequestMaker):
        self.collector = collector
        self._request = request

    def next(self, update: int) -> Rollout:
        start = time.perf_counter()
        collector = self.collector
        collector.version = update
        collector.seconds.clear()
        request = self._request(update, update)
        if request.num_turns is None:
            episodes = collector.collect(request.plans)
        else:
            seeds = [plan.seed for plan in request.plans]
            episodes = collector.collect_turns(request.num_turns, seeds, difficulty=request.plans[0].difficulty)
        return Rollout(episodes, collector.skipped, dict(collector.seconds), time.perf_counter() - start)


class _Submitted(NamedTuple):
    request: RolloutRequest
    rollout: Future[Rollout]


class AsyncSource(RolloutSource):
    """Has a worker play the rollouts of coming updates while the trainer learns.

    Args:
        worker: plays the requests; only rank 0 has one.
        request: makes the requests.
        weights: copies the present weights.
        config: source of `max_staleness` and `num_updates`; no update after the last one is requested.
        collector: the trainer's collector, which counts episodes and checks for a request to stop.
    """

    def __init__(
        self,
        worker: RolloutWorker | None,
        request: RequestMaker,
        weights: Callable[[], Weights],
        config: TrainConfig,
        collector: RolloutCollector,
    ):
        self.worker = worker
        self.config = config
        self.collector = collector
        self._request = request
        self._weights = weights
        self._submitted: dict[int, _Submitted] = {}  # by update
        self._work: queue.SimpleQueue[tuple[_Submitted, Weights] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._state: Mapping[str, Any] | None = None  # of unfinished episodes after the last rollout that was taken

    def next(self, update: int) -> Rollout:
        """Submit the requests that `max_staleness` allows, and wait for this update's rollout.

        Raises:
            Exception: an error of the worker, or of the check for a request to stop; the update can be repeated.
        """
        self.collector.version = update
        request, rollout = current().by_writer(lambda: self._take(update))
        self.collector.skipped = rollout.faults
        self.collector.next_index = request.first + len(request.plans)
        return rollout

    def _take(self, update: int) -> tuple[RolloutRequest, Rollout]:
        last = max(update, min(update + self.config.max_staleness, self.config.num_updates - 1))
        due = [number for number in range(update, last + 1) if number not in self._submitted]
        weights = self._weights() if due else {}
        for number in due:
            self._submit(self._request(number, update), weights)
        submitted = self._submitted[update]
        while not wait([submitted.rollout], CHECK_S).done:
            if self.collector.before_turn is not None:
                self.collector.before_turn()
        rollout = submitted.rollout.result()
        del self._submitted[update]
        self._state = rollout.state
        return submitted.request, rollout

    def state_dict(self, version: int) -> dict[str, Any]:
        """Rollouts of older weights than `version`; waits for those that are being played.

        Rollouts of the weights that are saved are not stored: they are played again from the same seeds.
        """
        if self.worker is None:
            return {}
        kept: dict[int, dict[str, Any]] = {}
        state = self._state
        for update, (request, rollout) in sorted(self._submitted.items()):
            if request.version == version or rollout.exception() is not None:  # its update raises that error
                break
            done = rollout.result()
            state = done.state
            kept[update] = {"order": request, "episodes": done.episodes, "seconds": done.seconds, "wall_s": done.wall_s}
        return {"ahead": {"kept": kept, "state": state}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore from the trainer's state; no request may have been submitted before."""
        if self.worker is None or "ahead" not in state:
            return
        ahead = state["ahead"]
        self._state = ahead["state"]
        for update, each in ahead["kept"].items():
            rollout: Future[Rollout] = Future()
            rollout.set_result(Rollout(each["episodes"], [], each["seconds"], each["wall_s"], self._state))
            self._submitted[update] = _Submitted(each["order"], rollout)
        if self._state is not None:
            self.worker.load_state_dict(self._state)

    def close(self) -> None:
        if self.worker is not None:
            self.worker.close()
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None

    def _submit(self, request: RolloutRequest, weights: Weights) -> None:
        assert self.worker is not None  # only rank 0 calls this
        if self._thread is None:
            # Each Python thread has its own number of torch threads.
            arguments = (self._work, self.worker, torch.get_num_threads())
            self._thread = threading.Thread(target=_play_all, args=arguments, name="collm-rollouts", daemon=True)
            self._thread.start()
        submitted = self._submitted[request.update] = _Submitted(request, Future())
        self._work.put((submitted, weights))


def make_source(
    config: TrainConfig, collector: RolloutCollector, worker: RolloutWorker | None, weights: Callable[[], Weights]
) -> RolloutSource:
    """Source of a training's rollouts.

    Args:
        config: source of `max_staleness` and `collectors`, which need a worker.
        collector: collector with the policies that learn.
        worker: plays with copies of the policies, on rank 0. None: the collector plays.
        weights: copies the present weights.

    Raises:
        ValueError: if the settings need a worker and rank 0 has none.
    """
    request = request_maker(config, collector.vector.num_envs)
    if worker is None and config.max_staleness == 0 and config.collectors is None:
        return LocalSource(collector, request)
    if worker is None and current().is_writer:
        raise ValueError(
            f"max_staleness={config.max_staleness}, collectors={config.collectors!r} need a worker with copies of the "
            "policies; give the trainer one, or train with collm.train"
        )
    return AsyncSource(worker, request, weights, config, collector)


def _play_all(
    work: queue.SimpleQueue[tuple[_Submitted, Weights] | None], worker: RolloutWorker, num_threads: int
) -> None:
    torch.set_num_threads(num_threads)
    while (item := work.get()) is not None:
        (request, rollout), weights = item
        try:
            rollout.set_result(worker.play(request, weights))
        except BaseException as error:  # raised again in the thread that waits for the rollout
            rollout.set_exception(error)
