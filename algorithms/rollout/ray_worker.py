"""Rollout worker on Ray actors, on one or several machines.

An episode is a function of its seed, its index and the weights, so another actor can replay a lost actor's episodes.
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
from ..distribution.group import sendable
from .collector import Played, RolloutCollector, merged
from .plays import Plan
from .requests import Rollout, RolloutRequest, Weights
from .sources import RolloutWorker, WorkerClosedError, load_weights

WAIT_S = 0.5  # seconds between checks whether `close` was called
START_S = 600.0  # seconds within which an actor must start if no actor is playing
MAX_FAILURES = 3  # actors that may be lost while playing the same episodes before an error is raised

IndexedPlans = Sequence[tuple[int, Plan]]  # pairs of episode index and plan


class LostCollectorsError(UserError):
    """Error for Ray actors that are lost repeatedly while playing the same episodes, or that do not start."""


class _Answer(NamedTuple):
    played: Played | None
    seconds: Mapping[str, float]
    error: Exception | None


class Collecting:
    """Ray actor with a rollout collector: copies of the environments and the policies.

    `make` is a list with the Ray object reference of the collector's factory. Ray does not fetch references inside a
    list, so the factory is unpickled only after `paths`, the learning process's `sys.path`, are set.
    """

    def __init__(self, make: Sequence[Any], paths: Sequence[str], num_threads: int):
        import_from(paths)
        torch.set_num_threads(num_threads)
        self._make = make
        self._collector: RolloutCollector | None = None
        self._version: int | None = None

    def ready(self) -> tuple[str, Exception | None]:
        """Make the actor's rollout collector; return the actor's location, and the raised error or None."""
        import ray

        node = ray.get_runtime_context().get_node_id()[:8]
        place = f"{socket.gethostname()}, node {node}, process {os.getpid()}"
        try:
            self._collector = ray.get(self._make[0])()
        except Exception as error:  # from the user's environment; raised again in the learning process
            return place, sendable(error)
        return place, None

    def play(self, plans: IndexedPlans, num_plans: int, version: int, weights: Sequence[Any]) -> _Answer:
        """Play a part of a rollout request. `weights` is a list with one object reference, fetched once per version."""
        import ray

        assert self._collector is not None  # `ready` is called first
        collector = self._collector
        try:
            if version != self._version:
                load_weights(collector, ray.get(weights[0]))
                self._version = collector.version = version
            collector.seconds.clear()
            return _Answer(collector.play(plans, num_plans), dict(collector.seconds), None)
        except Exception as error:  # from the user's environment; raised again in the learning process
            return _Answer(None, {}, sendable(error))


@dataclass
class _Actor:
    """Handle of a Ray actor in the learning process."""

    number: int
    handle: Any
    place: str = "still starting"
    is_ready: bool = False

    def __str__(self) -> str:
        return f"collector {self.number} ({self.place})"


@dataclass
class _Assignment:
    """Part of a rollout request for one Ray actor. `lost` names the actors that were lost while playing this part."""

    plans: IndexedPlans
    lost: list[str] = field(default_factory=list)


class RayWorker(RolloutWorker):
    """Rollout worker on Ray actors. A lost actor is replaced, and other actors replay its episodes.

    `make` is the factory of an actor's rollout collector, which is sent to the actors.
    """

    def __init__(self, make: Callable[[], RolloutCollector], cluster: Cluster):
        self._is_closed = threading.Event()
        self._cluster = cluster
        cluster.join()
        import ray

        self._ray: Any = ray
        self._make = ray.put(make)
        self._num_started = 0
        self._actors: list[_Actor] = []
        self._starting: dict[Any, _Actor] = {}  # keys: object references of the results of `ready`
        for _ in range(cluster.num_actors):
            self._start()

    def play(self, request: RolloutRequest, weights: Weights) -> Rollout:
        start = time.perf_counter()
        held = [self._ray.put({agent: dict(state) for agent, state in weights.items()})]
        waiting = deque(_Assignment(plans) for plans in _split_plans(request.indexed_plans(), self._cluster.num_actors))
        busy: dict[Any, tuple[_Actor, _Assignment]] = {}
        parts: list[Played] = []
        seconds: dict[str, float] = {}
        since = time.monotonic()  # time of the last answer of an actor
        while waiting or busy:
            if self._is_closed.is_set():
                raise WorkerClosedError
            working = {actor.number for actor, _ in busy.values()}
            for actor in [each for each in self._actors if each.is_ready and each.number not in working]:
                if waiting:
                    task = waiting.popleft()
                    answer = actor.handle.play.remote(task.plans, len(request.plans), request.version, held)
                    busy[answer] = (actor, task)
            done, _ = self._ray.wait([*busy, *self._starting], num_returns=1, timeout=WAIT_S)
            for reference in done:
                since = time.monotonic()
                if reference in self._starting:
                    self._finish_start(reference)
                    continue
                actor, task = busy.pop(reference)
                answered = self._fetch(actor, task, reference)
                if answered is None:
                    waiting.appendleft(task)
                else:
                    parts.append(answered[0])
                    for phase, spent in answered[1].items():
                        seconds[phase] = seconds.get(phase, 0.0) + spent
            if not busy and time.monotonic() - since > START_S:
                raise LostCollectorsError(self._why_none_starts())
        skipped = [fault for part in parts for fault in part.skipped]
        episodes = merged(parts, len(request.plans))
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

    def _finish_start(self, reference: Any) -> None:
        actor = self._starting.pop(reference)
        try:
            actor.place, error = self._ray.get(reference)
        except self._ray.exceptions.RayActorError:
            self._replace(actor)
            return
        if error is not None:
            raise error
        actor.is_ready = True

    def _fetch(self, actor: _Actor, task: _Assignment, reference: Any) -> tuple[Played, Mapping[str, float]] | None:
        """Return the result of a Ray actor. None: the actor is lost, and another actor must replay the episodes."""
        try:
            answer: _Answer = self._ray.get(reference)
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.ObjectLostError) as error:
            task.lost.append(str(actor))
            if len(task.lost) >= MAX_FAILURES:
                first, last = task.plans[0][0], task.plans[-1][0]
                raise LostCollectorsError(
                    f"episodes {first} to {last} were lost {len(task.lost)} times, with {', '.join(task.lost)}: the "
                    "environment ends its process, or memory is exhausted; correct the environment or add memory "
                    f"({first_line(error)})"
                ) from error
            self._replace(actor)
            return None
        if answer.error is not None:
            raise answer.error
        assert answer.played is not None  # because no error was raised
        return answer.played, answer.seconds

    def _replace(self, actor: _Actor) -> None:
        self._actors.remove(actor)
        self._start()

    def _why_none_starts(self) -> str:
        cluster = self._cluster
        has = self._ray.cluster_resources()
        return (
            f"no collector has started within {START_S:g} s: each requires {cluster.num_cpus:g} CPU and "
            f"{cluster.num_gpus:g} GPU, and the cluster has {has.get('CPU', 0):g} CPU and {has.get('GPU', 0):g} GPU; "
            "enlarge the cluster, or lower num_cpus and num_gpus in --collector-options"
        )


def _split_plans(items: IndexedPlans, count: int) -> list[IndexedPlans]:
    """Split plans into consecutive parts of nearly equal size. Rollouts of one task are adjacent and share prompts."""
    count = min(count, len(items))
    ends = [len(items) * number // count for number in range(count + 1)]
    return [items[begin:end] for begin, end in pairwise(ends)]
