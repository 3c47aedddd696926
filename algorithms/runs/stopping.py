"""Stop signals: the first Ctrl-C or SIGTERM stops a run with a checkpoint, the second signal stops it at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
ASKED = (
    b"\nthe run stops before the next turn, or after the update in progress, and saves a checkpoint; send the same "
    b"signal again to stop immediately\n"
)


class StopAsked(Exception):
    """Error that `StopSignals.check` raises after a stop signal."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


class Stopped(KeyboardInterrupt):
    """Error of a run that stopped after the signal `number` and wrote its checkpoint."""

    def __init__(self, message: str, number: int):
        super().__init__(message)
        self.status = 128 + number


class StopSignals:
    """Context manager that records stop signals. It has no effect outside the main thread."""

    def __init__(self) -> None:
        self.number: int | None = None  # received signal; None: no signal yet
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {each: signal.signal(each, self._asked) for each in SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        self._restore()

    def check(self) -> None:
        if self.number is not None:
            raise StopAsked(self.number)

    def _restore(self) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)
        self._before = {}

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if self.number is None:
            self.number = number
            os.write(2, ASKED)  # print is not reentrant in a signal handler
            return
        self._restore()
        os.kill(os.getpid(), number)
