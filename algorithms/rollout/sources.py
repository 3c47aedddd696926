"""Rollout sources: they play episodes with the current weights, or a worker plays episodes in advance.

With `max_staleness`, update u learns from episodes of version max(0, u - max_staleness) of the weights. A fast worker
does not use newer versions, so results do not depend on speed. At most max_staleness + 1 requests are pending.
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

from ..._progress import Phase, advance, observing
from ...agents.core import TrainablePolicy
from ..config import TrainConfig
from ..distribution.group import current
from .collector import RolloutCollector, merged
from .requests import RequestMaker, Rollout, RolloutRequest, Weights, request_maker
from .side_by_side import use_device

CHECK_S = 0.2  # seconds between checks for stop signals while an update waits for its episodes


class WorkerClosedError(Exception):
    """Error that ends a rollout if its worker is closed."""


class RolloutWorker(ABC):
    """Base class of workers that play rollout requests with copies of the policies."""

    @abstractmethod
    def play(self, request: RolloutRequest, weights: Weights) -> Rollout:
        """Play the episodes of a request with these weights, which must have the request's version.

        Raises `WorkerClosedError` after `close`, and `EnvironmentFault` if an environment fails or violates its API.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop before the next turn, and release processes and memory. May be called from any thread."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore unfinished episodes from `Rollout.state`. Raises `ValueError` if not supported by the worker."""
        raise ValueError(f"{type(self).__name__} cannot resume unfinished episodes; set turns_per_update=None")


class LocalWorker(RolloutWorker):
    """Rollout worker in this process. The collector must have separate copies of the policies that learn."""

    def __init__(self, collector: RolloutCollector):
        self.collector = collector
        self._is_closed = threading.Event()
        self._version: int | None = None

    def play(self, request: RolloutRequest, weights: Weights) -> Rollout:
        for policy in self.collector.policies.values():
            use_device(policy.workplace())  # `play` may run in a new thread
        if self._version != request.version:
            load_weights(self.collector, weights)
            self._version = request.version
        start = time.perf_counter()
        collector = self.collector
        collector.seconds.clear()
        collector.version = request.version
        with observing(self._check):
            if request.num_turns is None:
                played = collector.play(request.indexed_plans(), len(request.plans))
                episodes, faults, state = merged([played], len(request.plans)), collector.skipped, None
            else:
                episodes, faults = collector.play_turns(request.num_turns, iter(request.plans)), []
                state = collector.state_dict()
        return Rollout(episodes, faults, dict(collector.seconds), time.perf_counter() - start, state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.collector.load_state_dict(state)

    def close(self) -> None:
        self._is_closed.set()

    def _check(self, work: Phase) -> None:
        if self._is_closed.is_set():
            raise WorkerClosedError


def load_weights(collector: RolloutCollector, weights: Weights) -> None:
    """Load weights into the policies of a rollout collector, and clear their caches."""
    for agent, state in weights.items():
        policy = collector.policies[agent]
        assert isinstance(policy, TrainablePolicy)
        policy.load_state_dict(dict(state))
        policy.forget()


class RolloutSource(ABC):
    """Base class of sources that return a rollout for each update. All ranks must call the methods."""

    @abstractmethod
    def next(self, update: int) -> Rollout:
        """Return the rollout of an update. `update` is the number of updates so far, and the version of the weights.

        Raises `EnvironmentFault` if an environment raises an error or violates its API.
        """

    def state_dict(self, version: int) -> dict[str, Any]:
        """Return entries for the trainer's `state_dict`, which is saved with this version of the weights."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027  # optional
        """Restore the source from the trainer's `state_dict`."""

    def close(self) -> None:  # noqa: B027  # optional
        """Stop running rollouts."""


class LocalSource(RolloutSource):
    """On-policy source: all ranks play with the policies that learn."""

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
    """Asynchronous source: a worker plays the rollouts of the next updates while the trainer learns.

    Args:
        worker: rollout worker; None on ranks other than 0.
        weights: function that returns a copy of the current weights.
        config: settings; `max_staleness` and `num_updates` limit how far ahead requests are submitted.
        collector: the trainer's collector, which counts episodes.
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
        self._submitted: dict[int, _Submitted] = {}  # keys: update numbers
        self._work: queue.SimpleQueue[tuple[_Submitted, Weights] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._state: Mapping[str, Any] | None = None  # unfinished episodes after the last returned rollout

    def next(self, update: int) -> Rollout:
        """Submit all rollout requests that `max_staleness` allows, and wait for this update's rollout.

        If the worker or the check for stop signals raises an error, the update can be repeated.
        """
        self.collector.version = update
        request, rollout = current().by_writer(lambda: self._submit_and_wait(update))
        self.collector.skipped = rollout.faults
        self.collector.next_index = request.first + len(request.plans)
        return rollout

    def _submit_and_wait(self, update: int) -> tuple[RolloutRequest, Rollout]:
        assert self.worker is not None  # only rank 0 calls this method
        last = max(update, min(update + self.config.max_staleness, self.config.num_updates - 1))
        due = [number for number in range(update, last + 1) if number not in self._submitted]
        weights = self._weights() if due else {}
        if due and self._thread is None:
            # The number of torch threads is a setting of each Python thread.
            arguments = (self._work, self.worker, torch.get_num_threads())
            self._thread = threading.Thread(target=_play_all, args=arguments, name="collm-rollouts", daemon=True)
            self._thread.start()
        for number in due:
            submitted = self._submitted[number] = _Submitted(self._request(number, update), Future())
            self._work.put((submitted, weights))
        submitted = self._submitted[update]
        while not wait([submitted.rollout], CHECK_S).done:
            advance(0)
        rollout = submitted.rollout.result()
        del self._submitted[update]
        self._state = rollout.state
        return submitted.request, rollout

    def state_dict(self, version: int) -> dict[str, Any]:
        """Wait for pending rollouts that use older weights than `version`, and return these rollouts.

        A resumed run plays the rollouts of `version` itself, from the same seeds.
        """
        if self.worker is None:
            return {}
        kept: dict[int, dict[str, Any]] = {}
        state = self._state
        for update, (request, rollout) in sorted(self._submitted.items()):
            if request.version == version or rollout.exception() is not None:  # `next` raises it
                break
            done = rollout.result()
            state = done.state
            kept[update] = {"order": request, "episodes": done.episodes, "seconds": done.seconds, "wall_s": done.wall_s}
        return {"ahead": {"kept": kept, "state": state}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
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


def make_source(
    config: TrainConfig, collector: RolloutCollector, worker: RolloutWorker | None, weights: Callable[[], Weights]
) -> RolloutSource:
    """Make the rollout source for training settings. `worker` is the rollout worker of rank 0.

    Raises `ValueError` if `max_staleness` or `collectors` is set and rank 0 has no worker.
    """
    request = request_maker(config, collector.vector.num_envs)
    if worker is None and config.max_staleness == 0 and config.collectors is None:
        return LocalSource(collector, request)
    if worker is None and current().is_writer:
        raise ValueError(
            f"max_staleness={config.max_staleness}, collectors={config.collectors!r} need a worker with copies of the "
            "policies; pass worker=…, or train with collm.train"
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
        except BaseException as error:  # raised in the thread that waits for the rollout
            rollout.set_exception(error)
