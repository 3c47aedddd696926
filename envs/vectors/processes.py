"""Vectorized environment in worker processes, for environments with slow steps, such as running programs."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import time
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

from ..core import ResetResult, StepResult
from ..registration.registry import EnvSpec
from .copies import STOP_SIGNALS, What, work
from .faults import Course, EnvironmentFault
from .vector import Builder, VectorEnv, builder

LOG = logging.getLogger(__name__)
# Maximum size of the unread messages to a worker, less than the capacity of a pipe on every system. With more, the
# worker and the main process could wait for each other to read, which is a deadlock.
PIPE_BYTES = 16_384
START_S = 600.0  # maximum time in seconds for imports and for building a worker's copies


class LostWorkerError(Exception):
    """Raised if a worker process ended. The message is a part of a sentence: "died with exit code 3"."""


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """Request for a reset, step or replay that a worker process has not answered yet."""

    index: int
    what: What
    num_bytes: int
    num_calls: int  # resets and steps that the message requests


class ProcessVector(VectorEnv):
    """Vectorized environment in worker processes of this machine. The result of each copy arrives separately.

    A worker that dies or exceeds `timeout_s` is replaced, and its unfinished episodes are replayed from seeds and
    actions. A warning is logged. An episode is aborted if its worker is lost twice, or if its replay returns other
    results; `lost` then returns the error. If an environment raises an error, or if workers are lost again and again
    without completing a step, all workers are closed.

    Args:
        env: id, specification, or module-level function that builds an environment.
        num_envs: number of copies, at least 1.
        num_workers: number of processes, at most `num_envs`. None: the number of cores.
        sends_state: True: workers send the state after each reset and step. False: `state` returns None.
        timeout_s: maximum time of one reset or step in seconds, without the start of a worker. None: no maximum.
        start_method: "spawn" or "forkserver". Both import the main script, whose code must be under
            `if __name__ == "__main__":`. None: "forkserver" if available.
        kwargs: arguments of the environment.

    Raises:
        EnvironmentFault: if an environment cannot be built, raises an error, or returns an invalid value. `reset` and
            `step` also raise it for an aborted episode.
        TypeError: if `env` cannot be pickled.
    """

    max_failures = 2  # number of lost workers after which an episode is aborted
    max_lost_in_row = 6  # number of workers lost one after another, without a completed step, that is an error

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
        except Exception as error:  # pickle raises many types of errors
            raise TypeError(
                f"env={env!r} cannot be pickled for a worker process: {error}; pass an id or a module-level function"
            ) from error
        self.num_envs = num_envs
        self.num_workers = count = max(1, min(num_envs, num_workers or os.cpu_count() or 1))
        self.name = str(getattr(env, "id", env)) if isinstance(env, (str, EnvSpec)) else "the environment"
        self.courses = [Course() for _ in range(num_envs)]
        self._timeout_s = timeout_s
        self._agents: list[list[str]] = [[] for _ in range(num_envs)]
        self._states: list[Any] = [None] * num_envs
        # One entry per copy. Messages are numbered from 1.
        self._digests: list[list[bytes]] = [[] for _ in range(num_envs)]  # hashes of the episode's results
        self._num_failures = [0] * num_envs  # number of lost workers in the current episode
        self._lost: dict[int, EnvironmentFault] = {}
        self._num_sent = 0
        self._begun = [0] * num_envs  # number of the message that started the current episode
        self._latest = [0] * num_envs  # number of the last message; replies to earlier messages are ignored
        self._arrived: dict[int, tuple[list[str], Any, StepResult]] = {}
        # One entry per worker.
        self._unanswered: list[dict[int, PendingMessage]] = [{} for _ in range(count)]  # by message number
        self._held: list[deque[tuple[int, PendingMessage, bytes]]] = [deque() for _ in range(count)]  # not sent yet
        self._is_starting = [True] * count
        self._num_lost = [0] * count  # number of workers lost since the last completed step
        self._busy_since = [0.0] * count  # monotonic time at which the worker started its current message
        self._sends_state = sends_state
        self._pipes: dict[int, Connection] = {}
        self._processes: dict[int, Any] = {}
        self._close = weakref.finalize(self, _shut_down, self._pipes, self._processes)
        methods = multiprocessing.get_all_start_methods()
        self._context: Any = multiprocessing.get_context(
            start_method or ("forkserver" if "forkserver" in methods else "spawn")
        )
        for number in range(count):
            self._begin(number)
        while any(self._is_starting):
            self._receive(None)

    def reset(self, index: int, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
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

    def close(self) -> None:
        self._close()

    def _indices(self, number: int) -> list[int]:
        return list(range(number, self.num_envs, self.num_workers))

    def _await(self, indices: set[int]) -> None:
        while not self._arrived.keys() >= indices:
            if lost := self._lost.keys() & indices:
                fault = self._lost.pop(min(lost))
                self.close()
                raise fault
            self._receive(None)

    def _taken(self, index: int) -> StepResult:
        self._agents[index], self._states[index], result = self._arrived.pop(index)
        return result

    def _send(self, index: int, what: What, argument: Any) -> None:
        if not self._close.alive:
            raise RuntimeError(f"{type(self).__name__} is closed; create a new one")
        self._arrived.pop(index, None)
        self._lost.pop(index, None)
        self._latest[index] = self._posted(index, what, argument, 1)

    def _posted(self, index: int, what: What, argument: Any, num_calls: int) -> int:
        """Queue a message to the worker of copy `index`, and send it if the pipe has space. Returns its number."""
        self._num_sent = message = self._num_sent + 1
        number = index % self.num_workers
        payload = pickle.dumps((message, what, index, argument))
        self._held[number].append((message, PendingMessage(index, what, len(payload), num_calls), payload))
        self._forward(number)
        return message

    def _forward(self, number: int) -> None:
        """Send the queued messages that fit into the worker's pipe."""
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
        """Wait at most `timeout_s` seconds for replies. Replace workers that died or exceeded their time limit."""
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
                self.name, self.possible_agents, self._observation_spaces, self._action_spaces = answer[:4]
                self.state_space, self.spec, self.turn_limit, self.interests = answer[4:]
                continue
            task = self._unanswered[number].pop(message)
            if task.what == "step" or task.num_calls > 1:
                self._num_lost[number] = 0
            self._forward(number)
            if (
                message >= self._begun[index]
                and self._is_reproduced(task, answer[3])
                and message == self._latest[index]
            ):
                self._arrived[index] = answer[:3]

    def _is_reproduced(self, task: PendingMessage, digests: list[bytes]) -> bool:
        """Store the result digests of a reply. If a replay changed digests, abort the episode and return False."""
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
            "its worker process was lost, and in the replay "
            f"{f'turn {turn}' if turn else 'the reset'} returned other observations, rewards or flags: the environment "
            "is not deterministic given seed and actions; find the cause with `collm check`",
        )
        return False

    def _limit_s(self, number: int) -> float | None:
        if self._is_starting[number]:
            return START_S
        if self._timeout_s is None:
            return None
        return self._timeout_s * next(iter(self._unanswered[number].values())).num_calls

    def _time_left(self, number: int) -> float | None:
        limit = self._limit_s(number)
        return None if limit is None else max(0.0, self._busy_since[number] + limit - time.monotonic())

    def _begin(self, number: int) -> None:
        self._is_starting[number] = True
        self._busy_since[number] = time.monotonic()
        self._start(number)

    def _replace(self, number: int, reason: str) -> None:
        """Replace a worker and replay its unfinished episodes."""
        tasks = [*self._unanswered[number].items(), *((message, task) for message, task, _ in self._held[number])]
        if self._is_starting[number]:
            self._fail(None, (f"its worker process {reason} while it was built", None, ""))
        oldest = tasks[0][1].index  # the worker was lost in the episode of its oldest message
        self._num_failures[oldest] += 1
        self._num_lost[number] += 1
        if self._num_lost[number] == self.max_lost_in_row:
            problem = f"{self.max_lost_in_row} worker processes in a row were lost; the last one {reason}"
            self._fail(oldest, (f"{problem}; raise timeout_s, or find the cause with `collm check`", None, ""))
        LOG.warning("%s: worker process %d %s; it is replaced", self.name, number, reason)
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
                    f"its worker process {reason}, and the new worker process was lost too; possible causes: an "
                    "endless loop, an environment that ends its process, or a lack of memory",
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

    def _start(self, number: int) -> None:
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
        with suppress(BrokenPipeError, ConnectionResetError):  # a dead worker is detected when its replies are read
            self._pipes[number].send_bytes(payload)

    def _answering(self, numbers: Sequence[int], timeout_s: float | None) -> list[int]:
        """Wait until a worker has replied or died. Returns the numbers of all workers that replied or died."""
        waited = {self._pipes[number]: number for number in numbers}
        return [waited[pipe] for pipe in wait(list(waited), timeout_s)]  # type: ignore[index]

    def _answer_of(self, number: int) -> bytes | None:
        """Return a worker's next reply, or None if no reply has arrived. Raises LostWorkerError if the worker died."""
        if not self._pipes[number].poll():
            return None
        try:
            return self._pipes[number].recv_bytes()
        except (EOFError, ConnectionResetError):
            process = self._processes[number]
            process.join(timeout=5)
            raise LostWorkerError(f"died with exit code {process.exitcode}") from None


def _end(pipe: Connection, process: Any, patience_s: float) -> None:
    pipe.close()  # a worker ends when its pipe is closed
    process.join(timeout=patience_s)
    if process.is_alive():
        process.kill()  # a stopped process ignores SIGTERM
        process.join()


def _shut_down(pipes: dict[int, Connection], processes: dict[int, Any]) -> None:
    for pipe in pipes.values():
        pipe.close()
    for number, pipe in pipes.items():
        _end(pipe, processes[number], patience_s=2)


@contextmanager
def _shielded() -> Iterator[None]:
    """Block SIGINT and SIGTERM for processes that are started in this context.

    Terminals, schedulers and containers send these signals to all processes, but only the main process handles them.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
