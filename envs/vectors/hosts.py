"""Copies of an environment on other machines: processes of Ray step them, with their sandboxes, beside models here."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from typing import Any

from ..._cluster import LOCAL, Cluster, first_line, import_from, leave, surroundings
from ..registration.registry import EnvSpec
from .copies import Copies, built
from .vector import Builder, builder
from .workers import LostWorkerError, WorkerVector


class Host:
    """What a process of Ray is: some copies, and answers to messages about them.

    Args:
        build: what builds a copy, as it lies in Ray's store, in a list so that it is fetched once paths are known.
        paths: where the process of the vector imports from; folders that are here too are imported from.
    """

    def __init__(self, build: Sequence[Any], paths: Sequence[str], indices: Sequence[int], sends_state: bool):
        import_from(paths)
        self._build, self._indices, self._sends_state = build, indices, sends_state
        self._copies: Copies | None = None

    def first(self) -> bytes:
        """Build the copies; returns what there is to know of them."""
        import ray
        from ray import cloudpickle

        def make() -> Copies:
            return Copies(ray.get(self._build[0]), self._indices, self._sends_state, cloudpickle.dumps)

        self._copies, answer = built(make, cloudpickle.dumps)
        return answer

    def reply(self, payload: bytes) -> bytes:
        """The answer to a message."""
        assert self._copies is not None  # as `first` comes first, and nothing after it where they were not built
        return self._copies.reply(payload)


class HostVector(WorkerVector):
    """Copies in processes of Ray, called hosts, on this machine or on many; each plays one or several.

    Programs that an environment runs in its sandbox run where the environment is: on its host.

    A host that dies or hangs, or whose machine is lost, is no error: another takes its place, where the cluster has
    room, and plays the unfinished episodes again from seed and actions. An episode that was under way in three hosts
    that were lost, or that is another one when it is played again, is given up, and told by `lost`.

    Hosts reserve nothing: to start, one needs a core that nobody has reserved, and hosts are spread evenly over the
    machines that have some. `ray start --head --num-cpus 0` keeps them away from a machine.

    Args:
        env: an id, a specification, or a function that builds an environment; it is sent to the hosts.
        num_envs: copies, at least 1.
        address: "ray": a cluster of its own on this machine; "ray://HOST:PORT": the one of `ray start --head` there.
        num_hosts: processes, and no more than copies.
        files: folder whose modules the hosts import; None: none.
        sends_state: whether `state` can be read; False saves the work where nobody does.
        timeout_s: seconds that one reset or turn may take before its host counts as hanging; None waits for ever.
        kwargs: arguments of the environment.

    Raises:
        EnvironmentFault: if an environment raises or breaks its contract, or cannot be built, or no host starts; where
            no collector asks for `lost` episodes (`reset`, `step`), also for one that was given up.
        UserError: if no cluster answers at the address.
        TypeError: if what builds the environment cannot be sent to another process.
        ModuleNotFoundError: without Ray, with the command that installs it.
    """

    worker = "host"
    max_failures = 3
    max_starts = 3

    def __init__(
        self,
        env: str | EnvSpec | Builder,
        num_envs: int,
        *,
        address: str = LOCAL,
        num_hosts: int = 2,
        files: str | None = None,
        sends_state: bool = True,
        timeout_s: float | None = None,
        **kwargs: Any,
    ):
        build = builder(env, num_envs, kwargs)
        super().__init__(env, num_envs, num_hosts, timeout_s)
        cluster = Cluster(address=address, num_actors=num_hosts, files=files)
        cluster.check()
        cluster.join()
        import ray

        self._ray: Any = ray
        self._sends_state = sends_state
        self._handles: dict[int, Any] = {}
        self._answers: dict[int, deque[Any]] = {}  # references of what each host will answer, in order
        try:
            self._build = ray.put(build)
        except Exception as error:  # pickle raises whatever it likes
            self.close()
            raise TypeError(f"{env!r} cannot be sent to another machine ({error})") from error
        self._open()

    def _start(self, number: int) -> None:
        # Ray's own restarts would give the new process old messages again, but not the episodes that were under way.
        kind = self._ray.remote(max_restarts=0, scheduling_strategy="SPREAD", runtime_env=surroundings())(Host)
        handle = kind.remote([self._build], sys.path, self._indices(number), self._sends_state)
        self._handles[number], self._answers[number] = handle, deque([handle.first.remote()])

    def _kill(self, number: int) -> None:
        self._ray.kill(self._handles[number])

    def _end(self) -> None:
        if self._ray.is_initialized():
            for handle in self._handles.values():
                self._ray.kill(handle)
        leave()

    def _deliver(self, number: int, payload: bytes) -> None:
        self._answers[number].append(self._handles[number].reply.remote(payload))

    def _answering(self, numbers: Sequence[int], timeout_s: float | None) -> list[int]:
        first = {self._answers[number][0]: number for number in numbers}
        done, _ = self._ray.wait(list(first), num_returns=1, timeout=timeout_s)
        if done:
            done, _ = self._ray.wait(list(first), num_returns=len(first), timeout=0)
        return [first[reference] for reference in done]

    def _answer_of(self, number: int) -> bytes | None:
        reference = self._answers[number][0]
        if not self._ray.wait([reference], timeout=0)[0]:
            return None
        try:
            answer: bytes = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError:
            raise  # of this module, as an environment's errors are answers
        except self._ray.exceptions.RayError as error:  # of the process, its machine, its memory, or the way there
            raise LostWorkerError(f"died ({first_line(error)})") from error
        self._answers[number].popleft()
        return answer

    def _why_late(self) -> str:
        cores = self._ray.cluster_resources().get("CPU", 0)
        return f": each host needs a core to start that nobody has reserved, and the cluster has {cores:g} in all"
