"""Launcher of comparisons on a Ray cluster. Its machines must share the comparison's folder."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..._cluster import Cluster, first_line, import_from, leave, surroundings
from ...algorithms.rollout.ray_worker import MAX_FAILURES, WAIT_S
from .runner import Launcher, Message
from .suite import Job
from .worker import work


class Mailbox:
    """Ray actor that stores the progress of runs until `RayTasks` reads it."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, int, Mapping[str, float]]] = []

    def put(self, number: int, update: int, metrics: Mapping[str, float]) -> None:
        self._kept.append((number, update, metrics))

    def take(self) -> list[tuple[int, int, Mapping[str, float]]]:
        taken, self._kept = self._kept, []
        return taken


def _worked(
    job: Sequence[Any], directory: str, number: int, mailbox: Any, paths: Sequence[str], stops_at: float | None
) -> str | None:
    import ray

    import_from(paths)
    Path(directory).mkdir(parents=True, exist_ok=True)
    stops_at = None if stops_at is None else stops_at + time.monotonic() - time.time()
    return work(ray.get(job[0]), Path(directory), partial(mailbox.put.remote, number), stops_at)


class RayTasks(Launcher):
    """Run each job as a Ray task. If a worker is lost, its run restarts from the last checkpoint."""

    def __init__(self, cluster: Cluster):
        self._cluster = cluster
        cluster.join()
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._ray: Any = ray
        here: Any = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._mailbox: Any = self._ray.remote(num_cpus=0, scheduling_strategy=here)(Mailbox).remote()
        self._jobs: list[tuple[Job, Path, float | None]] = []
        self._num_lost: dict[int, int] = {}
        self._running: dict[Any, int] = {}  # object reference of the result -> job number

    @property
    def num_at_a_time(self) -> int:
        has, cluster = self._ray.cluster_resources(), self._cluster
        room = has.get("CPU", 0) / cluster.num_cpus
        if cluster.num_gpus:
            room = min(room, has.get("GPU", 0) / cluster.num_gpus)
        return max(1, int(room))

    def start(self, job: Job, directory: Path, stops_at: float | None = None) -> None:
        # Machines of a cluster have different monotonic clocks, so they get a Unix time.
        stops_at = None if stops_at is None else stops_at + time.time() - time.monotonic()
        self._jobs.append((job, directory.absolute(), stops_at))
        self._begin(len(self._jobs) - 1)

    def messages(self) -> list[tuple[Job, Message]]:
        heard: list[tuple[Job, Message]] = []
        while self._running and not heard:
            done, _ = self._ray.wait(list(self._running), timeout=WAIT_S)
            told = self._ray.get(self._mailbox.take.remote())
            heard += [(self._jobs[number][0], (update, metrics)) for number, update, metrics in told]
            for reference in done:
                heard += self._ended(reference)
        return heard

    def close(self) -> None:
        if self._ray.is_initialized():
            for reference in self._running:
                self._ray.cancel(reference, force=True)
            self._ray.kill(self._mailbox)
        leave()

    def _begin(self, number: int) -> None:
        job, directory, stops_at = self._jobs[number]
        task = self._ray.remote(
            num_cpus=self._cluster.num_cpus,
            num_gpus=self._cluster.num_gpus,
            max_retries=0,  # `_ended` counts the retries
            max_calls=1,  # a separate process per run
            scheduling_strategy="SPREAD",
            runtime_env=surroundings(),
        )(_worked)
        held = [self._ray.put(job)]  # in a list, so that it is not unpickled before `import_from`
        self._running[task.remote(held, str(directory), number, self._mailbox, sys.path, stops_at)] = number

    def _ended(self, reference: Any) -> list[tuple[Job, Message]]:
        number = self._running.pop(reference)
        try:
            return [(self._jobs[number][0], self._ray.get(reference))]
        except self._ray.exceptions.RayTaskError as error:
            return [(self._jobs[number][0], str(error))]
        except self._ray.exceptions.RayError as error:  # the worker died, or was out of memory
            self._num_lost[number] = self._num_lost.get(number, 0) + 1
            if self._num_lost[number] >= MAX_FAILURES:
                why = f"its worker was lost {MAX_FAILURES} times: {first_line(error)}"
                return [(self._jobs[number][0], why)]
        self._begin(number)
        return []
