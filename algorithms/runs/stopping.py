"""Stopping a run: the first Ctrl-C or SIGTERM asks for it, the second one has it at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
ASKED = (
    b"\nstopping with a checkpoint: before the next turn, or after learning that has begun; the same signal again "
    b"stops at once\n"
)


class StopAsked(Exception):
    """A signal asked for a stop, and here is a place to do so.

    Args:
        number: the signal, which need not have come to this rank.
    """

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


class Stopped(KeyboardInterrupt):
    """A run was asked to stop, and did: its checkpoint is written.

    Args:
        message: how to go on.
        number: the signal.
    """

    def __init__(self, message: str, number: int):
        super().__init__(message)
        self.status = 128 + number


class StopSignals:
    """Notes signals that ask to stop, as a context manager; outside the main thread it notes none."""

    def __init__(self) -> None:
        self.number: int | None = None
        """The signal that came; None before one did."""
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {each: signal.signal(each, self._asked) for each in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._restore()

    def check(self) -> None:
        """Leave what is being done if a signal came.

        Raises:
            StopAsked: if one did.
        """
        if self.number is not None:
            raise StopAsked(self.number)

    def _restore(self) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)
        self._before = {}

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if self.number is None:
            self.number = number
            os.write(2, ASKED)  # print is no good here: the signal may have come in the middle of another
            return
        self._restore()
        os.kill(os.getpid(), number)
