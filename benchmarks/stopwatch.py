"""CPU seconds by phase, of methods that note them while a program runs."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any


class Stopwatch:
    """Seconds of the process by phase. A phase inside another counts for itself alone, so that phases add up."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inner = [0.0]  # of each open call, the time that its inner phases took

    def watch(self, phase: str, owner: Any, method: str) -> None:
        """From now on the owner's method counts as this phase."""
        setattr(owner, method, partial(self.timed, phase, getattr(owner, method)))

    def timed(self, phase: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call, and count it as this phase."""
        self._inner.append(0.0)
        start = time.process_time()
        try:
            return call(*args, **kwargs)
        finally:
            passed = time.process_time() - start
            self.seconds[phase] += passed - self._inner.pop()
            self._inner[-1] += passed
