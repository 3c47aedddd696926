"""What makes two sandboxes interchangeable."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

_LEAST_CLOCK_S = 0.05


@dataclass(frozen=True)
class Limits:
    """Bounds of one run; the processor time decides, the rest are nets."""

    cpu_s: float = 2.0
    """Processor seconds, so that a verdict does not depend on what else the machine does."""
    wall_s: float = 20.0
    """Seconds on the clock: ends programs that sleep. Keep it ten times `cpu_s`, else a loaded machine decides."""
    memory_mb: int = 512
    """Address space in MiB on top of the interpreter's own."""
    output_kb: int = 1024
    """Results of the run in KiB as they travel."""
    stdout_kb: int = 64
    """KiB kept of stdout and of stderr; the rest is dropped."""
    max_deaths: int = 1
    """How many processes of one solution may die; after each but the last a new one makes the remaining calls. All of
    them share a clock of less than twice `wall_s`, and one that is ended by `wall_s` is the last."""

    def __post_init__(self) -> None:
        for name in ("cpu_s", "wall_s", "memory_mb", "output_kb", "stdout_kb", "max_deaths"):
            if not getattr(self, name) > 0:
                raise ValueError(
                    f"{name}={getattr(self, name)} must be above 0: a run that may use nothing cannot start"
                )
        if self.wall_s < self.cpu_s:
            raise ValueError(
                f"wall_s={self.wall_s} is below cpu_s={self.cpu_s}: the clock would decide; use 10 x cpu_s"
            )

    def within(self, wall_s: float) -> Limits:
        """The same, with no more than so many seconds on the clock."""
        wall_s = max(_LEAST_CLOCK_S, min(self.wall_s, wall_s))
        return replace(self, wall_s=wall_s, cpu_s=min(self.cpu_s, wall_s))


class SandboxError(RuntimeError):
    """The executor failed, so nothing is known about the code: never to be scored as a wrong answer."""


class SandboxUnavailable(SandboxError):
    """This machine offers no isolation that holds; the message says what each kind lacks."""


AskedIsolation = Literal["auto", "A", "B", "C", "none"]
PRELOAD: Final = (
    *("abc", "bisect", "collections", "collections.abc", "contextlib", "copy", "enum", "functools", "heapq"),
    *("itertools", "math", "operator", "random", "re", "string", "time", "types", "typing"),
)
"""Modules that solutions import most. Any other of the standard library works too, at 1 to 10 ms in each run."""
_ALSO: Final = {"numpy": ("numpy.random", "numpy.linalg", "numpy.fft")}  # loaded by NumPy only on first use


@dataclass(frozen=True)
class Settings:
    """Settings of a sandbox. Frozen and hashable, so that it names a shared one and travels in a pickle."""

    num_workers: int | None = None
    """Runs at the same time, each on a zygote of its own, started as needed; None: one for each usable processor."""
    cpu_limit_s: float = 2.0
    """Processor seconds of one run; its limit on the clock is ten times as long."""
    memory_limit_mb: int = 512
    """MiB of one run on top of the interpreter's own."""
    isolation: AskedIsolation = "auto"
    """`auto` takes the strongest of A and B that holds here; `none` confines nothing and marks every result."""
    packages: tuple[str, ...] = ()
    """Installed packages that the code may import besides the standard library, such as numpy."""
    allow_threads: bool = False
    """Whether the code may start threads; never processes."""
    runs_per_worker: int = 10_000
    """After so many runs a zygote is replaced."""
    preload: tuple[str, ...] = PRELOAD
    """Modules imported once, before the first fork, besides the packages. Each makes every run dearer by a little."""

    def __post_init__(self) -> None:
        if self.isolation not in get_args(AskedIsolation):
            raise ValueError(f"isolation={self.isolation!r} is none of {get_args(AskedIsolation)}; use 'auto'")
        if self.num_workers is not None and self.num_workers < 1:
            raise ValueError(f"num_workers={self.num_workers} must be at least 1; None takes one for each processor")
        if self.runs_per_worker < 1:
            raise ValueError(f"runs_per_worker={self.runs_per_worker} must be at least 1; 1 uses a zygote only once")
        if isinstance(self.packages, str):
            raise ValueError(f"packages={self.packages!r} must be a tuple of names; write ({self.packages!r},)")
        _ = self.limits  # checks the two limits

    @property
    def limits(self) -> Limits:
        """Limits of a run that brings none of its own."""
        return Limits(cpu_s=self.cpu_limit_s, wall_s=10 * self.cpu_limit_s, memory_mb=self.memory_limit_mb)

    @property
    def all_preload(self) -> tuple[str, ...]:
        """Modules that a zygote imports before its first fork."""
        packages = [name for package in self.packages for name in (package, *_ALSO.get(package, ()))]
        return (*self.preload, *packages)
