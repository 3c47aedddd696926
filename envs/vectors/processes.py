"""Copies of an environment in worker processes: for turns that take longer than a message, such as running programs.

A worker with something to do gets further messages only as far as they surely fit into its pipe: neither side ever
waits to write while the other does too.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any

from ..registration.registry import EnvSpec
from .copies import Copies, built
from .vector import Builder, builder
from .workers import LostWorkerError, Task, WorkerVector

PIPE_BYTES = 16_384  # of messages that a busy worker has not read; every system's pipe holds more
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ProcessVector(WorkerVector):
    """Copies in worker processes of this machine, each of which plays one or several.

    A process that dies or hangs is no error: another takes its place and plays the unfinished episodes again from seed
    and actions. Only an episode that fails a second time, or that is another one when it is played again, is given up,
    and told by `lost`.

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
        super().__init__(env, num_envs, num_workers or os.cpu_count() or 1, timeout_s)
        self._sends_state = sends_state
        self._pipes: dict[int, Connection] = {}
        self._processes: dict[int, Any] = {}
        self._close = weakref.finalize(self, _shut_down, self._pipes, self._processes)
        methods = multiprocessing.get_all_start_methods()
        self._context: Any = multiprocessing.get_context(
            start_method or ("forkserver" if "forkserver" in methods else "spawn")
        )
        self._open()

    def _start(self, number: int) -> None:
        ours, theirs = self._context.Pipe()
        arguments = theirs, self._payload, self._indices(number), self._sends_state
        process = self._context.Process(target=_work, args=arguments, daemon=True)
        with _shielded():
            process.start()
        theirs.close()
        self._pipes[number], self._processes[number] = ours, process

    def _kill(self, number: int) -> None:
        _end(self._pipes[number], self._processes[number], patience_s=0)

    def _end(self) -> None:
        self._close()

    def _has_room(self, number: int, task: Task) -> bool:
        waiting = sum(each.num_bytes for each in self._unanswered[number].values())
        return waiting + task.num_bytes <= PIPE_BYTES

    def _deliver(self, number: int, payload: bytes) -> None:
        try:
            self._pipes[number].send_bytes(payload)
        except (BrokenPipeError, ConnectionResetError):
            pass  # shows when its answers are read

    def _answering(self, numbers: Sequence[int], timeout_s: float | None) -> list[int]:
        waited = {self._pipes[number]: number for number in numbers}
        return [waited[pipe] for pipe in wait(list(waited), timeout_s)]  # type: ignore[index]  # it gives back its own

    def _answer_of(self, number: int) -> bytes | None:
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
    copies, first = built(lambda: Copies(pickle.loads(payload), indices, sends_state))
    try:
        pipe.send_bytes(first)
        while copies is not None:
            pipe.send_bytes(copies.reply(pipe.recv_bytes()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the main process is done with us
    finally:
        if copies is not None:
            copies.close()
