"""Progress of long computations: nested phases count units of work, and an observer shows the progress or stops it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta


class Phase:
    """Running part of a computation.

    Attributes:
        done, total: units of work that are finished (with inner phases: begun), and all units. 0: unknown.
        note: further text to show.
        seconds: durations of the parts of the phase that have ended; see `begin`.
    """

    def __init__(self, name: str, unit: str = "", outer: Phase | None = None, observer: Observer | None = None):
        self.name, self.unit, self.outer = name, unit, outer
        self.observer: Observer | None = observer if outer is None else outer.observer
        self.done, self.total, self.note, self.started_at = 0, 0, "", time.perf_counter()
        self.seconds: dict[str, float] = {}

    def begin(self, name: str, unit: str = "") -> None:
        """End the current part of the phase, and start the next part."""
        now = time.perf_counter()
        self.seconds[self.name] = now - self.started_at
        self.name, self.unit, self.done, self.total, self.started_at = name, unit, 0, 0, now
        advance(0)

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.started_at

    def chain(self) -> list[tuple[Phase, float]]:
        """Return the phases, outermost first, with their expected seconds to the end; nan: unknown."""
        phase: Phase = self
        found: list[tuple[Phase, float]] = []
        inner = 0.0
        while phase.outer is not None:  # the outermost phase is that of `observing`
            if phase.done and phase.total:
                inner += (phase.elapsed + inner) / phase.done * max(0, phase.total - phase.done)
            found.insert(0, (phase, inner or math.nan))
            phase = phase.outer
        return found

    def __str__(self) -> str:
        texts = []
        for phase, left in self.chain():
            total = f" of {phase.total:,}" if phase.total else ""
            count = f" {phase.done:,}{total} {phase.unit}" if phase.unit else ""
            is_measured = phase is self and phase.done and phase.elapsed >= 1
            rate = f"{phase.done / phase.elapsed:.3g} per s" if is_measured else ""
            rest = f"{timedelta(seconds=round(left))} left" if phase.total and left > 0 else ""
            texts.append(", ".join(filter(None, (f"{phase.name}{count}", phase.note, rate, rest))))
        return " · ".join(texts)


Observer = Callable[[Phase], None]
_UNSEEN = Phase("")
_current: ContextVar[Phase] = ContextVar("phase")


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Call `observer` with the innermost phase after each unit of work in the block, in the thread of the work.

    An error that `observer` raises ends the work.
    """
    token = _current.set(Phase("", observer=observer))
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def phase(name: str, unit: str = "", *, is_apart: bool = False) -> Iterator[Phase]:
    """Context manager of a phase. With `is_apart`, the rate of the outer phase does not include this phase's time."""
    outer = _current.get(_UNSEEN)
    inner = Phase(name, unit, outer)
    token = _current.set(inner)
    try:
        advance(0)
        yield inner
    finally:
        _current.reset(token)
        outer.started_at += inner.elapsed if is_apart else 0.0


def expect(count: int) -> None:
    """Add units of work to the total of the current phase."""
    _current.get(_UNSEEN).total += count


def advance(count: int = 1, note: str = "") -> None:
    """Count units of the current phase, and call the observer. `note` is the new text of the phase."""
    current = _current.get(_UNSEEN)
    current.done, current.note = current.done + count, note
    if current.observer is not None:
        current.observer(current)
