"""Copies of an environment in worker processes: for turns that take longer than a message, such as running programs.

Every copy has messages of its own, so that its turn is known when it is done and not when its whole worker is. A worker
with something to do gets further messages only as far as they surely fit into its pipe: neither side ever waits to
write while the other does too.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

from gymnasium.spaces import Space

from ..registration.registry import EnvSpec
from .faults import Course, EnvironmentFault, Infos, Observations, StepResult, Watch, name_of
from .vector import Builder, VectorEnv, as_step, builder

PIPE_BYTES = 16_384  # of messages that a busy worker has not read; every system's pipe holds more
MAX_FAILURES = 2  # of one episode: workers that died or hung while they played it
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
START_S = 600.0  # most seconds from the start of a worker to its first message: imports, and building its copies


@dataclass(frozen=True, slots=True)
class Task:
    """A message that a worker has not answered."""

    index: int
    num_bytes: int
    num_calls: int
    """Resets and turns that it asks for."""


class ProcessVector(VectorEnv):
    """Copies in worker processes, each of which plays one or several.

    The state is sent along with each turn's answer, so that reading it costs no round trip. After an error the vector
    is closed: what the other copies were doing is lost. A process that dies or hangs is no error: another takes its
    place and plays the unfinished episodes again from seed and actions, which must lead to the same. Only an episode
    that fails a second time is given up, and told by `lost`.

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
        self.name = str(getattr(env, "id", env)) if isinstance(env, (str, EnvSpec)) else "the environment"
        self.courses = [Course() for _ in range(num_envs)]
        self._timeout_s = timeout_s
        self._sends_state = sends_state
        self.num_workers = count = max(1, min(num_envs, num_workers or os.cpu_count() or 1))
        self._worker_of = [index % count for index in range(num_envs)]
        self._agents: list[list[str]] = [[] for _ in range(num_envs)]
        self._states: list[Any] = [None] * num_envs
        self._num_failures = [0] * num_envs  # of each copy's present episode
        self._lost: dict[int, EnvironmentFault] = {}
        self._num_sent = 0
        self._latest = [0] * num_envs  # the last message about each copy; answers to others are of no use any more
        self._unanswered: list[dict[int, Task]] = [{} for _ in range(count)]  # by worker and number of message
        self._held: list[deque[tuple[int, Task, bytes]]] = [deque() for _ in range(count)]  # by worker: not sent yet
        self._arrived: dict[int, tuple[list[str], Any, StepResult]] = {}
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        self._is_starting = [True] * count
        self._busy_since = [0.0] * count  # when each worker began what it does now, by the monotonic clock
        self._close = weakref.finalize(self, _shut_down, self._pipes, self._processes)
        methods = multiprocessing.get_all_start_methods()
        self._context: Any = multiprocessing.get_context(
            start_method or ("forkserver" if "forkserver" in methods else "spawn")
        )
        for number in range(count):
            pipe, process = self._started(number)
            self._pipes.append(pipe)
            self._processes.append(process)
        descriptions = [self._description(number) for number in range(count)]
        self._observation_spaces: dict[str, Space[Any]]
        self._action_spaces: dict[str, Space[Any]]
        (
            self.name,
            self.possible_agents,
            self._observation_spaces,
            self._action_spaces,
            self.state_space,
            self.spec,
        ) = descriptions[0]

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
        self._send(index, "reset", (seed, options), 1)

    def send(self, actions: Mapping[int, Mapping[str, Any]]) -> None:
        for index, replies in actions.items():
            if index not in self._lost:
                self.courses[index].actions.append(dict(replies))
                self._send(index, "step", dict(replies), 1)

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
        self._close()

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

    def _send(self, index: int, what: str, argument: Any, num_calls: int) -> None:
        """Send a message whose answer is this copy's result."""
        if not self._close.alive:
            raise RuntimeError("this ProcessVector is closed; build a new one")
        self._arrived.pop(index, None)
        self._lost.pop(index, None)
        self._latest[index] = self._posted(index, what, argument, num_calls)

    def _posted(self, index: int, what: str, argument: Any, num_calls: int) -> int:
        """Number of a new message to the copy's worker."""
        self._num_sent += 1
        number = self._worker_of[index]
        payload = pickle.dumps((self._num_sent, what, index, argument))
        self._held[number].append((self._num_sent, Task(index, len(payload), num_calls), payload))
        message = self._num_sent
        self._forward(number)
        return message

    def _forward(self, number: int) -> None:
        """Pass on the messages that the worker has room for; that it has died shows when its answers are read."""
        held, unanswered = self._held[number], self._unanswered[number]
        while held:
            message, task, payload = held[0]
            if unanswered and sum(each.num_bytes for each in unanswered.values()) + task.num_bytes > PIPE_BYTES:
                return
            if not unanswered:
                self._busy_since[number] = time.monotonic()
            held.popleft()
            unanswered[message] = task
            try:
                self._pipes[number].send_bytes(payload)
            except (BrokenPipeError, ConnectionResetError):
                return

    def _receive(self, timeout_s: float | None) -> None:
        """Take in the answers that are there, and replace workers that died or hang.

        Waits for the first of them: for `timeout_s` seconds, or until a worker is overdue.
        """
        busy = {self._pipes[number]: number for number, messages in enumerate(self._unanswered) if messages}
        limits = [timeout_s, *(self._time_left(number) for number in busy.values())]
        least = min((limit for limit in limits if limit is not None), default=None)
        answering = wait(list(busy), least) if busy else []
        for pipe in answering:
            self._read(busy[pipe])  # type: ignore[index]  # wait() gives back what it was given
        for number in set(busy.values()) - {busy[pipe] for pipe in answering}:  # type: ignore[index]
            if self._time_left(number) == 0 and not self._pipes[number].poll():
                self._replace(number, f"gave no answer within {self._limit_s(number):g} s")

    def _read(self, number: int) -> None:
        """Take in what a worker has answered."""
        while self._unanswered[number] and self._pipes[number].poll():
            try:
                message, index, trouble, answer = self._pipes[number].recv()
            except (EOFError, ConnectionResetError):
                process = self._processes[number]
                process.join(timeout=5)
                self._replace(number, f"died with exit code {process.exitcode}")
                return
            if trouble is not None:
                self._fail(index, trouble)
            self._busy_since[number] = time.monotonic()
            if message is None:  # a new worker has built its copies
                self._is_starting[number] = False
                continue
            del self._unanswered[number][message]
            self._forward(number)
            if message == self._latest[index]:
                self._arrived[index] = answer

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

    def _started(self, number: int) -> tuple[Connection, Any]:
        """A new worker process, and our end of its pipe."""
        ours, theirs = self._context.Pipe()
        indices = [index for index in range(self.num_envs) if self._worker_of[index] == number]
        arguments = theirs, self._payload, indices, self._sends_state
        process = self._context.Process(target=_work, args=arguments, daemon=True)
        with _shielded():
            process.start()
        theirs.close()
        self._is_starting[number] = True
        self._busy_since[number] = time.monotonic()
        return ours, process

    def _description(self, number: int) -> Any:
        """What a worker's first message says of its environment."""
        try:
            if not self._pipes[number].poll(START_S):
                self._fail(None, (f"was not built within {START_S:g} s", None, ""))
            _, index, trouble, answer = self._pipes[number].recv()
        except (EOFError, ConnectionResetError):
            self._processes[number].join(timeout=5)
            code = self._processes[number].exitcode
            self._fail(None, (f"its worker process died with exit code {code} while it was built", None, ""))
        if trouble is not None:
            self._fail(index, trouble)
        self._is_starting[number] = False
        return answer

    def _replace(self, number: int, reason: str) -> None:
        """Put a new process in the place of one that died or hangs, and bring its copies to where they were.

        The worker was at its oldest message: the episode of that copy counts as failed.
        """
        if self._is_starting[number]:
            self._fail(None, (f"its worker process {reason} while it was built", None, ""))
        tasks = [*self._unanswered[number].items(), *((message, task) for message, task, _ in self._held[number])]
        guilty = tasks[0][1].index
        awaited = {task.index for message, task in tasks if message == self._latest[task.index]}
        _end(self._pipes[number], self._processes[number], patience_s=0)
        self._unanswered[number].clear()
        self._held[number].clear()
        self._pipes[number], self._processes[number] = self._started(number)
        self._num_failures[guilty] += 1
        for index in range(number, self.num_envs, self.num_workers):
            course = self.courses[index]
            live = self._arrived[index][0] if index in self._arrived else self._agents[index]
            if self._num_failures[index] >= MAX_FAILURES:
                self._give_up(index, reason)
            elif index in awaited or live:
                argument = course.seed, course.options, course.actions
                message = self._posted(index, "replay", argument, 1 + len(course.actions))
                if index in awaited:
                    self._latest[index] = message

    def _give_up(self, index: int, reason: str) -> None:
        self._num_failures[index] = 0
        self._agents[index] = []
        fault = EnvironmentFault(
            f"the worker process that plays it {reason}, and so did another in its place: an endless loop, an "
            "environment that ends its process, or no memory left"
        )
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


def _end(pipe: Connection, process: Any, patience_s: float) -> None:
    pipe.close()  # a worker ends as it finds its pipe closed
    process.join(timeout=patience_s)
    if process.is_alive():
        process.kill()  # what hangs, or is stopped, would not hear anything milder
        process.join()


def _shut_down(pipes: list[Connection], processes: list[Any]) -> None:
    for pipe in pipes:
        pipe.close()
    for pipe, process in zip(pipes, processes, strict=True):
        _end(pipe, process, patience_s=2)


def _end_with_main_process() -> None:
    main = multiprocessing.parent_process()
    assert main is not None  # whoever runs this is a worker
    main.join()
    os._exit(1)


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


def _work(pipe: Connection, payload: bytes, indices: list[int], sends_state: bool) -> None:
    """What a worker does: build its copies, then answer until the pipe is closed."""
    for each in STOP_SIGNALS:
        signal.signal(each, lambda *_: None)  # unlike SIG_IGN, not inherited by programs that an environment runs
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    threading.Thread(target=_end_with_main_process, daemon=True).start()  # nobody reads the pipe in an endless loop
    envs = {}
    try:
        build = pickle.loads(payload)
        envs = {number: build() for number in indices}
        first = envs[indices[0]]
        watches = {number: Watch(first) for number in indices}
        names = list(first.possible_agents)
        spaces = ({n: first.observation_space(n) for n in names}, {n: first.action_space(n) for n in names})
        state_space, spec = getattr(first, "state_space", None), getattr(first, "spec", None)
        pipe.send((None, None, None, (name_of(first), names, *spaces, state_space, spec)))
        while True:
            message, what, index, argument = pipe.recv()
            try:
                answer = _answer(envs[index], watches[index], what, argument, sends_state)
                reply = pickle.dumps((message, index, None, answer))
            except EnvironmentFault as fault:
                reply = pickle.dumps((message, index, (fault.problem, fault.agent, traceback.format_exc()), None))
            except Exception as error:  # pickle raises whatever it likes
                trouble = (
                    f"{what} returned what cannot be sent between processes: {error}",
                    None,
                    traceback.format_exc(),
                )
                reply = pickle.dumps((message, index, trouble, None))
            pipe.send_bytes(reply)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the main process is done with us
    except (Exception, SystemExit) as error:
        problem = f"it could not be built: {type(error).__name__}: {error}"
        pipe.send((None, None, (problem, None, traceback.format_exc()), None))
    finally:
        for env in envs.values():
            env.close()


def _answer(env: Any, watch: Watch, what: str, argument: Any, sends_state: bool) -> Any:
    if what == "step":
        result = watch.step(env, argument)
    else:
        seed, options, *played = argument
        result = as_step(watch.reset(env, seed, options))
        for actions in played[0] if played else ():
            result = watch.step(env, actions)
    return list(env.agents), watch.state(env) if sends_state else None, result
