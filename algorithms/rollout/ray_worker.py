"""RayWorker: plays rollouts on Ray actors, on one machine or on many.

An episode is a function of its seed, its index and the weights. Any actor that plays it gets the same episode, so the
episodes of a lost actor are given to another one.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from ..._cluster import Cluster, first_line, import_from, leave
from ..._errors import UserError
from ..distribution.ranks import sendable
from .collector import Played, RolloutCollector, together
from .plays import Plan
from .requests import Rollout, RolloutRequest, Weights
from .sources import RolloutWorker, WorkerClosedError, load_weights

WAIT_S = 0.5
"""Seconds between checks for `close`."""
START_S = 600.0
"""Seconds in which at least one actor must have started, while none plays."""
MAX_FAILURES = 3
"""Actors that may be lost with one share of the episodes, one after the other, before these are to blame."""

Share = Sequence[tuple[int, Plan]]
Maker = Callable[[], RolloutCollector]


class LostCollectorsError(UserError):
    """No actor is left to play, or none comes up."""


class _Answer(NamedTuple):
    """What an actor played, or why it could not."""

    played: Played | None
    seconds: Mapping[str, float]
    error: Exception | None


class Collecting:
    """What an actor is: a collector with copies of the environments and of the policies.

    Args:
        make: what makes the collector, as it lies in Ray's store, in a list so that it is fetched once paths are known.
        paths: where the process that learns imports from; folders that are here too are imported from.
    """

    def __init__(self, make: Sequence[Any], paths: Sequence[str], num_threads: int):
        import_from(paths)
        torch.set_num_threads(num_threads)
        self._make = make
        self._collector: RolloutCollector | None = None
        self._version: int | None = None

    def ready(self) -> tuple[str, Exception | None]:
        """Make the collector; returns where this is, and why it failed."""
        import ray

        node = ray.get_runtime_context().get_node_id()[:8]
        place = f"{socket.gethostname()}, node {node}, process {os.getpid()}"
        try:
            self._collector = ray.get(self._make[0])()
        except Exception as error:  # whatever somebody's environment raises; raised again where the training runs
            return place, sendable(error)
        return place, None

    def play(self, share: Share, num_plans: int, version: int, weights: Sequence[Any]) -> _Answer:
        """Play a share of a request with weights that lie in Ray's store, in a list so that they are fetched once."""
        import ray

        assert self._collector is not None  # as `ready` comes first
        collector = self._collector
        try:
            if version != self._version:
                load_weights(collector, ray.get(weights[0]))
                self._version = collector.version = version
            collector.seconds.clear()
            return _Answer(collector.play(share, num_plans), dict(collector.seconds), None)
        except Exception as error:  # as above
            return _Answer(None, {}, sendable(error))


@dataclass
class _Actor:
    """An actor as the process that learns knows it."""

    number: int
    handle: Any
    place: str = "still starting"
    is_ready: bool = False

    def __str__(self) -> str:
        return f"collector {self.number} ({self.place})"


@dataclass
class _Assignment:
    """Part of a request, and the actors that were lost with it."""

    share: Share
    lost: list[str] = field(default_factory=list)


class RayWorker(RolloutWorker):
    """Plays on actors. Those that are lost are replaced, and what they had under way is played by others.

    Args:
        make: makes an actor's collector; it is sent to the actors.
        cluster: where they run.
    """

    def __init__(self, make: Maker, cluster: Cluster):
        self._is_closed = threading.Event()
        self._cluster = cluster
        cluster.join()
        import ray

        self._ray: Any = ray
        self._make = ray.put(make)
        self._num_started = 0
        self._actors: list[_Actor] = []
        self._starting: dict[Any, _Actor] = {}  # by the reference of what `ready` will return
        for _ in range(cluster.num_actors):
            self._start()

    @property
    def num_ready(self) -> int:
        """Actors that have started."""
        return sum(actor.is_ready for actor in self._actors)

    def play(self, request: RolloutRequest, weights: Weights) -> Rollout:
        start = time.perf_counter()
        held = [self._ray.put({agent: dict(state) for agent, state in weights.items()})]
        waiting = deque(_Assignment(share) for share in _shares(request.indexed_plans(), self._cluster.num_actors))
        busy: dict[Any, tuple[_Actor, _Assignment]] = {}
        parts: list[Played] = []
        seconds: dict[str, float] = {}
        since = time.monotonic()  # the last sign of an actor
        while waiting or busy:
            if self._is_closed.is_set():
                raise WorkerClosedError
            working = {actor.number for actor, _ in busy.values()}
            for actor in [each for each in self._actors if each.is_ready and each.number not in working]:
                if waiting:
                    task = waiting.popleft()
                    answer = actor.handle.play.remote(task.share, len(request.plans), request.version, held)
                    busy[answer] = (actor, task)
            done, _ = self._ray.wait([*busy, *self._starting], num_returns=1, timeout=WAIT_S)
            for reference in done:
                since = time.monotonic()
                if reference in self._starting:
                    self._started(reference)
                    continue
                actor, task = busy.pop(reference)
                answered = self._received(actor, task, reference)
                if answered is None:
                    waiting.appendleft(task)
                else:
                    parts.append(answered[0])
                    for phase, spent in answered[1].items():
                        seconds[phase] = seconds.get(phase, 0.0) + spent
            if not busy and time.monotonic() - since > START_S:
                raise LostCollectorsError(self._why_none_starts())
        skipped = [fault for part in parts for fault in part.skipped]
        episodes = together(parts, len(request.plans))
        return Rollout(episodes, skipped, seconds, time.perf_counter() - start)

    def close(self) -> None:
        if self._is_closed.is_set():
            return
        self._is_closed.set()
        if self._ray.is_initialized():
            for actor in self._actors:
                self._ray.kill(actor.handle)
            self._actors.clear()
        leave()

    def _start(self) -> None:
        kind = self._ray.remote(**self._cluster.actor_options())(Collecting)
        handle = kind.remote([self._make], sys.path, max(1, int(self._cluster.num_cpus)))
        actor = _Actor(self._num_started, handle)
        self._num_started += 1
        self._actors.append(actor)
        self._starting[handle.ready.remote()] = actor

    def _started(self, reference: Any) -> None:
        actor = self._starting.pop(reference)
        try:
            actor.place, error = self._ray.get(reference)
        except self._ray.exceptions.RayActorError:
            self._replace(actor)
            return
        if error is not None:
            raise error
        actor.is_ready = True

    def _received(self, actor: _Actor, task: _Assignment, reference: Any) -> tuple[Played, Mapping[str, float]] | None:
        """Return what an actor played; None if the actor is lost, so that others have to play it."""
        try:
            answer: _Answer = self._ray.get(reference)
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.ObjectLostError) as error:
            task.lost.append(str(actor))
            if len(task.lost) >= MAX_FAILURES:
                first, last = task.share[0][0], task.share[-1][0]
                raise LostCollectorsError(
                    f"episodes {first} to {last} were lost {len(task.lost)} times, with {', '.join(task.lost)}: an "
                    f"environment that ends its process, or no memory left ({first_line(error)})"
                ) from error
            self._replace(actor)
            return None
        if answer.error is not None:
            raise answer.error
        assert answer.played is not None  # where there is no error
        return answer.played, answer.seconds

    def _replace(self, actor: _Actor) -> None:
        self._actors.remove(actor)
        self._start()

    def _why_none_starts(self) -> str:
        cluster = self._cluster
        has = self._ray.cluster_resources()
        return (
            f"no collector has started within {START_S:g} s: each takes {cluster.num_cpus:g} CPU and "
            f"{cluster.num_gpus:g} GPU, and the cluster has {has.get('CPU', 0):g} CPU and {has.get('GPU', 0):g} GPU in "
            "all; give it more, or lower num_cpus and num_gpus of --collector-options"
        )


def _shares(items: Sequence[tuple[int, Plan]], count: int) -> list[Share]:
    """Neighbours in nearly equal shares, as rollouts of one task have their prompts in common."""
    count = min(count, len(items))
    ends = [len(items) * number // count for number in range(count + 1)]
    return [items[begin:end] for begin, end in pairwise(ends)]
