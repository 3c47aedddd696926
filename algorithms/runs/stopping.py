"""Stop signals: the first Ctrl-C or SIGTERM stops a run with a checkpoint, the second signal stops it at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
ASKED = "stopping after the current step; Ctrl-C again stops now"


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
    """Context manager that records stop signals. It has no effect outside the main thread.

    The first signal is confirmed on the standard error output, except with `is_shown`: a display then shows it.
    """

    def __init__(self, *, is_shown: bool = False) -> None:
        self.is_shown = is_shown
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
            if not self.is_shown:
                os.write(2, f"\n{ASKED}\n".encode())  # print is not reentrant in a signal handler
            return
        self._restore()
        os.kill(os.getpid(), number)
