"""What one run may use."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
