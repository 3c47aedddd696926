"""Settings, limits and errors of sandboxes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

_LEAST_CLOCK_S = 0.05


@dataclass(frozen=True)
class Limits:
    """Limits of one sandboxed run. `cpu_s` decides if code is too slow. The other limits are safeguards."""

    cpu_s: float = 2.0
    """CPU time in seconds. Unlike wall-clock time, it does not depend on the load of the machine."""
    wall_s: float = 20.0
    """Wall-clock time in seconds, to end programs that sleep. At 10 x `cpu_s`, the machine's load has no effect."""
    memory_mb: int = 512
    """Address space in MiB, in addition to the address space of the interpreter."""
    output_kb: int = 1024
    """Maximum size of the serialized results in KiB."""
    stdout_kb: int = 64
    """Maximum length of stdout, and of stderr, in units of 1024 characters. Longer text is truncated."""
    max_deaths: int = 1
    """Maximum number of processes per run. If a process dies, a new process makes the remaining calls, except if the
    process exceeded `wall_s`. All processes together run for less than 2 x `wall_s`."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"{name}={value} must be above 0")
        if self.wall_s < self.cpu_s:
            raise ValueError(f"wall_s={self.wall_s} must be at least cpu_s={self.cpu_s}; use 10 x cpu_s")

    def within(self, wall_s: float) -> Limits:
        """Return a copy in which `wall_s` and `cpu_s` are at most the given time in seconds (at least 0.05)."""
        wall_s = max(_LEAST_CLOCK_S, min(self.wall_s, wall_s))
        return replace(self, wall_s=wall_s, cpu_s=min(self.cpu_s, wall_s))


class SandboxError(RuntimeError):
    """Raised if the sandbox itself fails, so that there is no result. Do not score this error as a wrong answer."""


class SandboxUnavailable(SandboxError):
    """Raised if no isolation tier works on this machine. The message contains the reason for each tier."""


AskedIsolation = Literal["auto", "A", "B", "C", "none"]
PRELOAD: Final = (
    *("abc", "bisect", "collections", "collections.abc", "contextlib", "copy", "enum", "functools", "heapq"),
    *("itertools", "math", "operator", "random", "re", "string", "time", "types", "typing"),
)
"""Default of `preload`: modules that programs import most often. Other modules take 1 to 10 ms in each run."""
_ALSO: Final = {"numpy": ("numpy.random", "numpy.linalg", "numpy.fft")}  # NumPy imports these on first use


@dataclass(frozen=True)
class Settings:
    """Settings of a sandbox, hashable."""

    num_workers: int | None = None
    """Number of concurrent runs. None: the number of usable processors."""
    cpu_limit_s: float = 2.0
    """CPU time of one run in seconds. The limit of the wall-clock time is 10 times this value."""
    memory_limit_mb: int = 512
    """Memory of one run in MiB, in addition to the memory of the interpreter."""
    isolation: AskedIsolation = "auto"
    """Isolation tier. `auto`: A, or B if A does not work. `none`: no isolation."""
    packages: tuple[str, ...] = ()
    """Installed packages that the code may import, such as numpy, in addition to the standard library."""
    allow_threads: bool = False
    """Allow the code to start threads. Starting processes is never allowed."""
    runs_per_worker: int = 10_000
    """Number of runs after which a worker process is replaced."""
    preload: tuple[str, ...] = PRELOAD
    """Modules that each worker process imports once, before its first run. Each module makes every run a bit slower."""

    def __post_init__(self) -> None:
        if self.isolation not in get_args(AskedIsolation):
            raise ValueError(f"isolation={self.isolation!r} must be one of {get_args(AskedIsolation)}; use 'auto'")
        if self.num_workers is not None and self.num_workers < 1:
            raise ValueError(f"num_workers={self.num_workers} must be at least 1, or None to use all processors")
        if self.runs_per_worker < 1:
            raise ValueError(f"runs_per_worker={self.runs_per_worker} must be at least 1")
        if isinstance(self.packages, str):
            raise ValueError(f"packages={self.packages!r} must be a tuple of names; use ({self.packages!r},)")
        _ = self.limits  # raises for invalid limits

    @property
    def limits(self) -> Limits:
        """Default limits of a run."""
        return Limits(cpu_s=self.cpu_limit_s, wall_s=10 * self.cpu_limit_s, memory_mb=self.memory_limit_mb)

    @property
    def all_preload(self) -> tuple[str, ...]:
        """Names of all preloaded modules: `preload` and the packages."""
        packages = [name for package in self.packages for name in (package, *_ALSO.get(package, ()))]
        return (*self.preload, *packages)
