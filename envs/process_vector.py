"""Copies of an environment in worker processes: for turns that take longer than a message, such as running programs."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import traceback
import weakref
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from gymnasium.spaces import Space

from .registration import EnvSpec
from .vector import Builder, Infos, Observations, StepResult, VectorEnv, builder, state_or_none


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
        timeout_s: seconds that a worker may take for an answer; None waits for ever.
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
        count = max(1, min(num_envs, num_workers or os.cpu_count() or 1))
        self._worker_of = [index % count for index in range(num_envs)]
        self._agents: list[list[str]] = [[] for _ in range(num_envs)]
        self._states: list[Any] = [None] * num_envs
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
        descriptions = [self._answer(number) for number in range(count)]
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
        number = self._worker_of[index]
        self._send(number, ("reset", index, (seed, options)))
        (self._agents[index], self._states[index], result) = self._answer(number)[index]
        observations, infos = result
        return observations, infos

    def step(self, actions: Mapping[int, Mapping[str, Any]]) -> dict[int, StepResult]:
        shares: dict[int, dict[int, dict[str, Any]]] = {}
        for index, replies in actions.items():
            shares.setdefault(self._worker_of[index], {})[index] = dict(replies)
        for number, share in shares.items():
            self._send(number, ("step", None, share))
        results: dict[int, StepResult] = {}
        for number in shares:
            for index, (agents, state, result) in self._answer(number).items():
                self._agents[index], self._states[index], results[index] = agents, state, result
        return {index: results[index] for index in actions}

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

    def _send(self, number: int, message: Any) -> None:
        if not self._close.alive:
            raise RuntimeError("this ProcessVector is closed; build a new one")
        try:
            self._pipes[number].send(message)
        except (BrokenPipeError, ConnectionResetError) as error:
            self._fail(number, error)

    def _answer(self, number: int) -> Any:
        pipe = self._pipes[number]
        try:
            if self._timeout_s is not None and not pipe.poll(self._timeout_s):
                self.close()
                raise WorkerError(
                    f"the worker of environments {self._indices(number)} gave no answer within {self._timeout_s} s; "
                    "raise timeout_s, or look for an endless loop"
                )
            index, trouble, answer = pipe.recv()
        except (EOFError, ConnectionResetError) as error:
            self._fail(number, error)
        if trouble is not None:
            self.close()
            where = "while it was built" if index is None else f"of index {index}"
            raise WorkerError(f"the environment {where} raised an error in its worker process:\n{trouble}")
        return answer

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
    index: int | None = None
    envs = {}
    try:
        build = pickle.loads(payload)
        envs = {number: build() for number in indices}
        first = envs[indices[0]]
        names = list(first.possible_agents)
        spaces = ({n: first.observation_space(n) for n in names}, {n: first.action_space(n) for n in names})
        pipe.send((None, None, (names, *spaces, getattr(first, "state_space", None), getattr(first, "spec", None))))
        while True:
            what, index, argument = pipe.recv()
            answers = {}
            requests = {index: argument} if what == "reset" else argument
            for index, given in requests.items():
                env = envs[index]
                result = env.reset(seed=given[0], options=given[1]) if what == "reset" else env.step(given)
                answers[index] = (list(env.agents), state_or_none(env) if sends_state else None, result)
            pipe.send((None, None, answers))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the main process is done with us
    except Exception:
        pipe.send((index, traceback.format_exc(), None))
    finally:
        for env in envs.values():
            env.close()
