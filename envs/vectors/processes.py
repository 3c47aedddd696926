"""Copies of an environment in worker processes: for turns that take longer than a message, such as running programs.

Each copy has its own messages, so that its result arrives before the worker's other copies are done. A worker answers
its messages in order: it is working on the oldest unanswered one. One with something to do gets further messages only
as far as they surely fit into its pipe: neither side ever waits to write while the other does too.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

from gymnasium.spaces import Space

from ..registration.registry import EnvSpec
from .copies import STOP_SIGNALS, What, work
from .faults import Course, EnvironmentFault, Infos, Observations, StepResult
from .vector import Builder, VectorEnv, builder

PIPE_BYTES = 16_384  # of messages that a busy worker has not read; every system's pipe holds more
START_S = 600.0  # most seconds from the start of a worker to its first message: imports, and building its copies


class LostWorkerError(Exception):
    """A worker is no more. The message continues "the worker …"."""


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """A message that a worker has not answered."""

    index: int
    what: What
    num_bytes: int
    num_calls: int
    """Resets and turns that it asks for."""


class ProcessVector(VectorEnv):
    """Copies in worker processes of this machine, each of which plays one or several.

    A process that dies or hangs is no error: another takes its place and plays the unfinished episodes again from seed
    and actions. Only an episode that fails a second time, or that is another one when it is played again, is given up,
    and told by `lost`. After an error the vector is closed: what the other copies were doing is lost. The state is sent
    along with each turn's answer, so that reading it costs no round trip.

    Args:
        env: an id, a specification, or a module's function that builds an environment.
        num_envs: copies, at least 1.
        num_workers: processes; None: one for each core, and no more than copies.
        sends_state: whether `state` can be read; False saves the work where nobody does.
        timeout_s: seconds that one reset or turn may take before its worker counts as hanging; None waits for ever.
        start_method: "spawn" or "forkserver"; None: "forkserver" where the system has it. Both import the main script
            again, so a script that uses this keeps its work under `if __name__ == "__main__":`.
        kwargs: arguments of the environment.

    Raises:
        EnvironmentFault: if an environment raises or breaks its contract, or cannot be built; where no collector asks
            for `lost` episodes (`reset`, `step`), also for one that was given up.
        TypeError: if what builds the environment cannot be sent to another process.
    """

    max_failures = 2
    """Workers that one episode may lose or let hang, before it is given up."""
    _observation_spaces: dict[str, Space[Any]]
    _action_spaces: dict[str, Space[Any]]

    def __init__(
        self,
        env: str | EnvSpec | Builder,
        num_envs: int,
        *,
        num_workers: int | None = None,
        sends_state: bool = True,
        timeout_s: float | None = None,
        start_method: str | None = None,
        **kwargs: Any,
    ):
        build = builder(env, num_envs, kwargs)
        try:
            self._payload = pickle.dumps(build)
        except Exception as error:  # pickle raises whatever it likes
            raise TypeError(
                f"{env!r} cannot be sent to a worker process ({error}); pass an id, or a function that is defined at "
                "the top of a module"
            ) from error
        self.num_envs = num_envs
        self.num_workers = count = max(1, min(num_envs, num_workers or os.cpu_count() or 1))
        self.name = str(getattr(env, "id", env)) if isinstance(env, (str, EnvSpec)) else "the environment"
        self.courses = [Course() for _ in range(num_envs)]
        self._timeout_s = timeout_s
        self._is_closed = False
        self._agents: list[list[str]] = [[] for _ in range(num_envs)]
        self._states: list[Any] = [None] * num_envs
        self._digests: list[list[bytes]] = [[] for _ in range(num_envs)]  # of each present episode's results so far
        self._num_failures = [0] * num_envs  # of each copy's present episode
        self._lost: dict[int, EnvironmentFault] = {}
        self._num_sent = 0
        self._begun = [0] * num_envs  # the message that began each copy's present episode
        self._latest = [0] * num_envs  # the last message about each copy; answers to others are of no use any more
        # By worker and number of message.
        self._unanswered: list[dict[int, PendingMessage]] = [{} for _ in range(count)]
        # By worker: not sent yet.
        self._held: list[deque[tuple[int, PendingMessage, bytes]]] = [deque() for _ in range(count)]
        self._arrived: dict[int, tuple[list[str], Any, StepResult]] = {}
        self._is_starting = [True] * count
        self._busy_since = [0.0] * count  # when each worker began what it does now, by the monotonic clock
        self._sends_state = sends_state
        self._pipes: dict[int, Connection] = {}
        self._processes: dict[int, Any] = {}
        self._close = weakref.finalize(self, _shut_down, self._pipes, self._processes)
        methods = multiprocessing.get_all_start_methods()
        self._context: Any = multiprocessing.get_context(
            start_method or ("forkserver" if "forkserver" in methods else "spawn")
        )
        self._open()

    # The vector.

    def reset(
        self, index: int, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, Infos]:
        self.send_reset(index, seed, options)
        self._await({index})
        observations, _, _, _, infos = self._taken(index)
        return observations, infos

    def step(self, actions: Mapping[int, Mapping[str, Any]]) -> dict[int, StepResult]:
        self.send(actions)
        self._await(set(actions))
        return {index: self._taken(index) for index in actions}

    def send_reset(self, index: int, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.courses[index] = Course(seed, options)
        self._num_failures[index] = 0
        self._digests[index] = []
        self._begun[index] = self._num_sent + 1
        self._send(index, "reset", (seed, options))

    def send(self, actions: Mapping[int, Mapping[str, Any]]) -> None:
        for index, replies in actions.items():
            if index not in self._lost:
                self.courses[index].actions.append(dict(replies))
                self._send(index, "step", dict(replies))

    def ready(self, timeout_s: float | None = None) -> dict[int, StepResult]:
        self._receive(0 if self._arrived else timeout_s)
        while timeout_s is None and not self._arrived and not self._lost and any(self._unanswered):
            self._receive(None)
        return {index: self._taken(index) for index in list(self._arrived)}

    def lost(self) -> dict[int, EnvironmentFault]:
        lost, self._lost = self._lost, {}
        return lost

    def state(self, index: int) -> Any:
        return self._states[index]

    def agents(self, index: int) -> list[str]:
        return list(self._agents[index])

    def observation_space(self, agent: str) -> Space[Any]:
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> Space[Any]:
        return self._action_spaces[agent]

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._close()

    def _open(self) -> None:
        """Start all workers, and wait until they have built their copies."""
        for number in range(self.num_workers):
            self._begin(number)
        while any(self._is_starting):
            self._receive(None)

    def _indices(self, number: int) -> list[int]:
        """The copies that a worker has."""
        return list(range(number, self.num_envs, self.num_workers))

    def _await(self, indices: set[int]) -> None:
        while not self._arrived.keys() >= indices:
            if self._lost.keys() & indices:
                fault = self._lost.pop(min(self._lost.keys() & indices))
                self.close()
                raise fault
            self._receive(None)

    def _taken(self, index: int) -> StepResult:
        self._agents[index], self._states[index], result = self._arrived.pop(index)
        return result

    # Messages.

    def _send(self, index: int, what: What, argument: Any) -> None:
        """Send a message whose answer is this copy's result."""
        if self._is_closed:
            raise RuntimeError(f"this {type(self).__name__} is closed; build a new one")
        self._arrived.pop(index, None)
        self._lost.pop(index, None)
        self._latest[index] = self._posted(index, what, argument, 1)

    def _posted(self, index: int, what: What, argument: Any, num_calls: int) -> int:
        """Number of a new message to the copy's worker."""
        self._num_sent += 1
        number = index % self.num_workers
        payload = pickle.dumps((self._num_sent, what, index, argument))
        self._held[number].append((self._num_sent, PendingMessage(index, what, len(payload), num_calls), payload))
        message = self._num_sent
        self._forward(number)
        return message

    def _forward(self, number: int) -> None:
        """Pass on the messages that the worker has room for."""
        held, unanswered = self._held[number], self._unanswered[number]
        while held:
            message, task, payload = held[0]
            num_waiting = sum(each.num_bytes for each in unanswered.values())
            if unanswered and num_waiting + task.num_bytes > PIPE_BYTES:
                return
            if not unanswered:
                self._busy_since[number] = time.monotonic()
            held.popleft()
            unanswered[message] = task
            self._deliver(number, payload)

    def _receive(self, timeout_s: float | None) -> None:
        """Take in the answers that are there, and replace workers that are lost or hang.

        Waits for the first of them: for `timeout_s` seconds, or until a worker is overdue.
        """
        busy = [number for number in range(self.num_workers) if self._is_starting[number] or self._unanswered[number]]
        limits = [timeout_s, *(self._time_left(number) for number in busy)]
        least = min((limit for limit in limits if limit is not None), default=None)
        answering = self._answering(busy, least) if busy else []
        for number in answering:
            self._read(number)
        for number in set(busy) - set(answering):
            if self._time_left(number) == 0 and not self._answering([number], 0):
                if self._is_starting[number]:
                    self._fail(None, (f"was not built within {START_S:g} s", None, ""))
                self._replace(number, f"gave no answer within {self._limit_s(number):g} s")

    def _read(self, number: int) -> None:
        """Take in what a worker has answered."""
        while self._is_starting[number] or self._unanswered[number]:
            try:
                reply = self._answer_of(number)
            except LostWorkerError as error:
                self._replace(number, str(error))
                return
            if reply is None:
                return
            message, index, trouble, answer = pickle.loads(reply)
            if trouble is not None:
                self._fail(index, trouble)
            self._busy_since[number] = time.monotonic()
            if message is None:  # a new worker has built its copies
                self._is_starting[number] = False
                self._describe(answer)
                continue
            task = self._unanswered[number].pop(message)
            self._forward(number)
            if message >= self._begun[index] and self._is_as_known(task, answer[3]) and message == self._latest[index]:
                self._arrived[index] = answer[:3]

    def _describe(self, description: Any) -> None:
        """Keep what a worker says of its environment."""
        (
            self.name,
            self.possible_agents,
            self._observation_spaces,
            self._action_spaces,
            self.state_space,
            self.spec,
            self.turn_limit,
        ) = description

    def _is_as_known(self, task: PendingMessage, digests: list[bytes]) -> bool:
        """Keep the digests of an answer. Give up an episode whose replay has other results."""
        known = self._digests[task.index]
        if task.what == "step":
            known += digests
            return True
        self._digests[task.index] = digests
        if digests[: len(known)] == known:
            return True
        turn = next(turn for turn, (one, other) in enumerate(zip(known, digests, strict=False)) if one != other)
        self._give_up(
            task.index,
            "its worker process was lost, and when it was played again in another one "
            f"{f'turn {turn}' if turn else 'the reset'} gave other observations, rewards or ends: it does not repeat "
            "itself for the same seed and actions (`collm check` says where)",
        )
        return False

    def _limit_s(self, number: int) -> float | None:
        """Seconds that the worker may take for what it does now; None: any time."""
        if self._is_starting[number]:
            return START_S
        if self._timeout_s is None:
            return None
        return self._timeout_s * next(iter(self._unanswered[number].values())).num_calls

    def _time_left(self, number: int) -> float | None:
        limit = self._limit_s(number)
        return None if limit is None else max(0.0, self._busy_since[number] + limit - time.monotonic())

    # Workers.

    def _begin(self, number: int) -> None:
        self._is_starting[number] = True
        self._busy_since[number] = time.monotonic()
        self._start(number)

    def _replace(self, number: int, reason: str) -> None:
        """Put a new worker in the place of one that is lost or hangs, and bring its copies to where they were.

        The worker was at its oldest message: the episode of that copy counts as failed.
        """
        tasks = [*self._unanswered[number].items(), *((message, task) for message, task, _ in self._held[number])]
        if self._is_starting[number]:
            self._fail(None, (f"its worker process {reason} while it was built", None, ""))
        self._num_failures[tasks[0][1].index] += 1
        awaited = {task.index for message, task in tasks if message == self._latest[task.index]}
        self._kill(number)
        self._unanswered[number].clear()
        self._held[number].clear()
        self._begin(number)
        for index in self._indices(number):
            course = self.courses[index]
            live = self._arrived[index][0] if index in self._arrived else self._agents[index]
            if self._num_failures[index] >= self.max_failures:
                self._give_up(
                    index,
                    f"the worker process that plays it {reason}, and so did another in its place: an endless loop, an "
                    "environment that ends its process, or no memory left",
                )
            elif index in awaited or live:
                argument = course.seed, course.options, course.actions
                message = self._posted(index, "replay", argument, 1 + len(course.actions))
                if index in awaited:
                    self._latest[index] = message

    def _give_up(self, index: int, problem: str) -> None:
        self._num_failures[index] = 0
        self._agents[index] = []
        self._latest[index] = 0
        self._arrived.pop(index, None)
        fault = EnvironmentFault(problem)
        self._locate(fault, index)
        self._lost[index] = fault

    def _fail(self, index: int | None, trouble: tuple[str, str | None, str]) -> NoReturn:
        self.close()
        fault = EnvironmentFault(*trouble)
        if index is None:
            fault.env = self.name
        else:
            self._locate(fault, index)
        raise fault

    # Processes.

    def _start(self, number: int) -> None:
        """Begin to start a worker; its first answer describes the environment."""
        ours, theirs = self._context.Pipe()
        arguments = theirs, self._payload, self._indices(number), self._sends_state
        process = self._context.Process(target=work, args=arguments, daemon=True)
        with _shielded():
            process.start()
        theirs.close()
        self._pipes[number], self._processes[number] = ours, process

    def _kill(self, number: int) -> None:
        _end(self._pipes[number], self._processes[number], patience_s=0)

    def _deliver(self, number: int, payload: bytes) -> None:
        """Send a message to a worker; that it is lost shows when its answers are read."""
        try:
            self._pipes[number].send_bytes(payload)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def _answering(self, numbers: Sequence[int], timeout_s: float | None) -> list[int]:
        """Those of some workers of which an answer, or their loss, is there; waits for at least one."""
        waited = {self._pipes[number]: number for number in numbers}
        return [waited[pipe] for pipe in wait(list(waited), timeout_s)]  # type: ignore[index]  # it gives back its own

    def _answer_of(self, number: int) -> bytes | None:
        """The next answer of a worker; None if none is there yet.

        Raises:
            LostWorkerError: if it is lost.
        """
        if not self._pipes[number].poll():
            return None
        try:
            return self._pipes[number].recv_bytes()
        except (EOFError, ConnectionResetError):
            process = self._processes[number]
            process.join(timeout=5)
            raise LostWorkerError(f"died with exit code {process.exitcode}") from None


def _end(pipe: Connection, process: Any, patience_s: float) -> None:
    pipe.close()  # a worker ends as it finds its pipe closed
    process.join(timeout=patience_s)
    if process.is_alive():
        process.kill()  # what hangs, or is stopped, would not hear anything milder
        process.join()


def _shut_down(pipes: dict[int, Connection], processes: dict[int, Any]) -> None:
    for pipe in pipes.values():
        pipe.close()
    for number, pipe in pipes.items():
        _end(pipe, processes[number], patience_s=2)


@contextmanager
def _shielded() -> Iterator[None]:
    """Keep signals to the whole group from processes that start here, also the fork server: blocks are inherited.

    A terminal sends Ctrl-C, and a scheduler or a container SIGTERM, to all processes of a run. The main one decides.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
