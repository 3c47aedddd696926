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
import traceback
import weakref
from collections import deque
from collections.abc import Mapping
from multiprocessing.connection import Connection, wait
from typing import Any

from gymnasium.spaces import Space

from ..registration.registry import EnvSpec
from .vector import Builder, Infos, Observations, StepResult, VectorEnv, as_step, builder, state_or_none

PIPE_BYTES = 16_384  # of messages that a busy worker has not read; every system's pipe holds more


class WorkerError(RuntimeError):
    """An environment in a worker process raised an error, or its process died."""


class ProcessVector(VectorEnv):
    """Copies in worker processes, each of which plays one or several.

    The state is sent along with each turn's answer, so that reading it costs no round trip. After an error the vector
    is closed: what the other copies were doing is lost.

    Args:
        env: an id, a specification, or a module's function that builds an environment.
        num_envs: copies, at least 1.
        num_workers: processes; None: one for each core, and no more than copies.
        sends_state: whether `state` can be read; False saves the work where nobody does.
        timeout_s: seconds that workers may take for the next answer; None waits for ever.
        start_method: "spawn" or "forkserver"; None: "forkserver" where the system has it. Both import the main script
            again, so a script that uses this keeps its work under `if __name__ == "__main__":`.
        kwargs: arguments of the environment.

    Raises:
        WorkerError: naming the copy, with the worker's traceback, if an environment fails or a process dies.
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
            payload = pickle.dumps(build)
        except Exception as error:  # pickle raises whatever it likes
            raise TypeError(
                f"{env!r} cannot be sent to a worker process ({error}); pass an id, or a function that is defined at "
                "the top of a module"
            ) from error
        self.num_envs = num_envs
        self._timeout_s = timeout_s
        self.num_workers = count = max(1, min(num_envs, num_workers or os.cpu_count() or 1))
        self._worker_of = [index % count for index in range(num_envs)]
        self._agents: list[list[str]] = [[] for _ in range(num_envs)]
        self._states: list[Any] = [None] * num_envs
        self._num_sent = 0
        self._latest = [0] * num_envs  # the last message about each copy; answers to others are of no use any more
        self._unanswered: list[dict[int, int]] = [{} for _ in range(count)]  # by worker: number of message -> bytes
        self._held: list[deque[tuple[int, bytes]]] = [deque() for _ in range(count)]  # by worker: not sent yet
        self._arrived: dict[int, tuple[list[str], Any, StepResult]] = {}
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        self._close = weakref.finalize(self, _shut_down, self._pipes, self._processes)
        methods = multiprocessing.get_all_start_methods()
        context: Any = multiprocessing.get_context(
            start_method or ("forkserver" if "forkserver" in methods else "spawn")
        )
        for number in range(count):
            ours, theirs = context.Pipe()
            indices = [index for index in range(num_envs) if self._worker_of[index] == number]
            process = context.Process(target=_work, args=(theirs, payload, indices, sends_state), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        descriptions = [self._answer(number)[2] for number in range(count)]
        self._observation_spaces: dict[str, Space[Any]]
        self._action_spaces: dict[str, Space[Any]]
        (
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
        while index not in self._arrived:
            self._receive(None)
        observations, _, _, _, infos = self._taken(index)
        return observations, infos

    def step(self, actions: Mapping[int, Mapping[str, Any]]) -> dict[int, StepResult]:
        self.send(actions)
        while not self._arrived.keys() >= actions.keys():
            self._receive(None)
        return {index: self._taken(index) for index in actions}

    def send_reset(self, index: int, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self._send(index, "reset", (seed, options))

    def send(self, actions: Mapping[int, Mapping[str, Any]]) -> None:
        for index, replies in actions.items():
            self._send(index, "step", dict(replies))

    def ready(self, timeout_s: float | None = None) -> dict[int, StepResult]:
        self._receive(0 if self._arrived else timeout_s)
        while timeout_s is None and not self._arrived and any(self._unanswered):
            self._receive(None)
        return {index: self._taken(index) for index in list(self._arrived)}

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

    def _taken(self, index: int) -> StepResult:
        self._agents[index], self._states[index], result = self._arrived.pop(index)
        return result

    def _send(self, index: int, what: str, argument: Any) -> None:
        if not self._close.alive:
            raise RuntimeError("this ProcessVector is closed; build a new one")
        self._num_sent += 1
        self._latest[index] = self._num_sent
        self._arrived.pop(index, None)
        number = self._worker_of[index]
        self._held[number].append((self._num_sent, pickle.dumps((self._num_sent, what, index, argument))))
        self._forward(number)

    def _forward(self, number: int) -> None:
        """Pass on the messages that the worker has room for."""
        held, unanswered = self._held[number], self._unanswered[number]
        while held and (not unanswered or sum(unanswered.values()) + len(held[0][1]) <= PIPE_BYTES):
            message, payload = held.popleft()
            unanswered[message] = len(payload)
            try:
                self._pipes[number].send_bytes(payload)
            except (BrokenPipeError, ConnectionResetError) as error:
                self._fail(number, error)

    def _receive(self, timeout_s: float | None) -> None:
        """Take in the answers that are there; wait for the first of them, for `timeout_s` or as long as is allowed."""
        busy = {self._pipes[number]: number for number, messages in enumerate(self._unanswered) if messages}
        answering = wait(list(busy), self._timeout_s if timeout_s is None else timeout_s) if busy else []
        if busy and not answering and timeout_s is None:
            silent = [index for index in range(self.num_envs) if self._worker_of[index] in busy.values()]
            self._give_up(silent)
        for pipe in answering:
            number = busy[pipe]  # type: ignore[index]  # wait() gives back what it was given
            while self._unanswered[number] and self._pipes[number].poll():
                message, index, answer = self._answer(number)
                del self._unanswered[number][message]
                self._forward(number)
                if message == self._latest[index]:
                    self._arrived[index] = answer

    def _answer(self, number: int) -> Any:
        pipe = self._pipes[number]
        try:
            if self._timeout_s is not None and not pipe.poll(self._timeout_s):
                self._give_up(self._indices(number))
            message, index, trouble, answer = pipe.recv()
        except (EOFError, ConnectionResetError) as error:
            self._fail(number, error)
        if trouble is not None:
            self.close()
            where = "while it was built" if index is None else f"of index {index}"
            raise WorkerError(f"the environment {where} raised an error in its worker process:\n{trouble}")
        return message, index, answer

    def _give_up(self, indices: list[int]) -> None:
        self.close()
        raise WorkerError(
            f"the workers of environments {indices} gave no answer within {self._timeout_s} s; "
            "raise timeout_s, or look for an endless loop"
        )

    def _fail(self, number: int, error: Exception) -> Any:
        process = self._processes[number]
        process.join(timeout=5)
        self.close()
        raise WorkerError(
            f"the worker process of environments {self._indices(number)} died with exit code {process.exitcode}; "
            "an environment has ended the process, or the system has killed it, for instance for want of memory"
        ) from error

    def _indices(self, number: int) -> list[int]:
        return [index for index in range(self.num_envs) if self._worker_of[index] == number]


def _shut_down(pipes: list[Connection], processes: list[Any]) -> None:
    for pipe in pipes:
        pipe.close()  # a worker ends as it finds its pipe closed
    for process in processes:
        process.join(timeout=2)
        if process.is_alive():
            process.terminate()
            process.join(timeout=2)


def _work(pipe: Connection, payload: bytes, indices: list[int], sends_state: bool) -> None:
    """What a worker does: build its copies, then answer until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main process, which then closes the pipes
    message: int | None = None
    index: int | None = None
    envs = {}
    try:
        build = pickle.loads(payload)
        envs = {number: build() for number in indices}
        first = envs[indices[0]]
        names = list(first.possible_agents)
        spaces = ({n: first.observation_space(n) for n in names}, {n: first.action_space(n) for n in names})
        described = (names, *spaces, getattr(first, "state_space", None), getattr(first, "spec", None))
        pipe.send((None, None, None, described))
        while True:
            message, what, index, argument = pipe.recv()
            env = envs[index]
            if what == "reset":
                seed, options = argument
                result = as_step(env.reset(seed=seed, options=options))
            else:
                result = env.step(argument)
            pipe.send((message, index, None, (list(env.agents), state_or_none(env) if sends_state else None, result)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the main process is done with us
    except Exception:
        pipe.send((message, index, traceback.format_exc(), None))
    finally:
        for env in envs.values():
            env.close()
