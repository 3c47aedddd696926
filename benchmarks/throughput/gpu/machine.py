"""The machine that is measured: who it is, how fast it can be at most, how busy it is, and how much memory is used."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from ..timing import Clock, Spread

PACKAGES = ("collm", "torch", "transformers", "peft", "numpy")
QUERIES = (
    "name,driver_version,memory.total,power.limit,power.draw,clocks.current.sm,clocks.max.sm,clocks.current.memory,"
    "temperature.gpu"
)
GIB = 2**30


def facts(device: torch.device) -> dict[str, str]:
    """What belongs above every table: date, device, driver, clocks, power and versions."""
    found = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "device": name(device),
    }
    if device.type == "cuda":
        answers = _smi("--query-gpu=" + QUERIES)
        found |= dict(zip(QUERIES.split(","), answers[0].split(", "), strict=True)) if answers else {}
        found["cuda"] = str(torch.version.cuda)
        found["capability"] = ".".join(map(str, torch.cuda.get_device_capability(device)))
    found["python"] = platform.python_version()
    return found | {package: importlib.metadata.version(package) for package in PACKAGES}


def name(device: torch.device) -> str:
    """What the device is called."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU ({platform.processor() or platform.machine()})"


def _smi(query: str) -> list[str]:
    """Lines that nvidia-smi answers; none where there is no such program."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, query, "--format=csv,noheader"]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()


def wall_clock(device: torch.device) -> Clock:
    """Seconds at which all that the device was given to do is done."""

    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    return now


def seconds_of(work: Callable[[], Any], device: torch.device, num_rounds: int) -> Spread:
    """Wall seconds of a piece of work over several rounds, after one that warms up."""
    now = wall_clock(device)
    work()
    found = []
    for _ in range(num_rounds):
        start = now()
        work()
        found.append(now() - start)
    return Spread.of(found)


@dataclass(frozen=True)
class Limits:
    """What no program can exceed on the device, measured."""

    bytes_per_s: float
    """Memory traffic of a copy, reads and writes counted."""
    operations_per_s: float
    """Operations per second of a square matrix product in bfloat16."""


def limits(device: torch.device, *, side: int = 8192, num_rounds: int = 10) -> Limits:
    """Measure the limits: the best round counts, as whatever disturbs a round makes it slower.

    Args:
        side: rows of the matrices; a copy moves as many bytes as 4 of them hold.
    """
    source = torch.empty(4 * side * side * 2, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copied = seconds_of(lambda: target.copy_(source), device, num_rounds).minimum
    moved = 2 * source.numel()
    factor = torch.randn(side, side, device=device, dtype=torch.bfloat16)
    multiplied = seconds_of(lambda: factor @ factor, device, num_rounds).minimum
    return Limits(moved / copied, 2.0 * side**3 / multiplied)


@dataclass
class Usage:
    """How busy a GPU was while something ran: percent of the time in which a kernel ran, and watts."""

    utilization: list[float] = field(default_factory=list)
    watts: list[float] = field(default_factory=list)

    @property
    def busy_share(self) -> float | None:
        """Mean over the samples; None where nothing could be sampled."""
        return sum(self.utilization) / len(self.utilization) / 100 if self.utilization else None


@contextmanager
def usage_of(device: torch.device, interval_ms: int = 100) -> Iterator[Usage]:
    """Sample the GPU's own counters while the block runs; on a CPU nothing is sampled."""
    usage, program = Usage(), shutil.which("nvidia-smi")
    if device.type != "cuda" or program is None:
        yield usage
        return
    query = ["--query-gpu=utilization.gpu,power.draw", "--format=csv,noheader,nounits", "-lms", str(interval_ms)]
    # By its bus, as a process may see the machine's GPUs under other numbers.
    command = [program, f"--id={torch.cuda.get_device_properties(device).uuid}", *query]
    if not command[1].startswith("--id=GPU-"):
        command[1] = command[1].replace("--id=", "--id=GPU-")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sampler:
        try:
            yield usage
        finally:
            sampler.terminate()
            lines = sampler.communicate()[0].splitlines()
    for line in lines:
        cells = line.split(", ")
        if len(cells) == 2 and all(cell.replace(".", "", 1).isdigit() for cell in cells):  # the last may be cut
            usage.utilization.append(float(cells[0]))
            usage.watts.append(float(cells[1]))


def kernels_of(work: Callable[[], Any], device: torch.device) -> tuple[int, float] | None:
    """Kernels that a piece of work launches, and the share of its wall time in which one of them ran; None on a CPU."""
    if device.type != "cuda":
        return None
    now = wall_clock(device)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        start = now()
        work()
        passed = now() - start
    spans = sorted(
        (event.time_range.start, event.time_range.end) for event in profile.events() if event.device_type.name == "CUDA"
    )
    busy = end = 0.0
    for first, last in spans:
        busy += max(0.0, last - max(first, end))
        end = max(end, last)
    return len(spans), busy / 1e6 / passed


def peak_bytes(device: torch.device) -> int:
    """Most bytes held at once since `forget_peak`; on a CPU, bytes that the process holds now."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def forget_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
