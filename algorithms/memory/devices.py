"""Memory sizes of this machine's devices and of common GPUs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import torch

from ..._errors import UserError, nearest

GIB = 2**30
GPUS = {
    "t4": 14.6,
    "rtx4090": 23.5,
    "l4": 22.0,
    "a100-40": 39.4,
    "l40s": 44.4,
    "a100": 79.2,
    "h100": 79.2,
    "h200": 139.8,
    "b200": 178.4,
}
"""Total memory in GiB that CUDA reports for each GPU."""
OUTSIDE = GIB  # Bytes that CUDA and its libraries use, outside of torch's allocator
USABLE = 0.92  # Fraction of the rest for planned tensors. Fragmentation and workspaces of cuBLAS use the other 8 %.
USABLE_HOST = 0.9  # Fraction of host memory that may be pinned. The operating system cannot swap pinned memory out.
_CGROUP = Path("/sys/fs/cgroup/memory.max")


def capacity(device: torch.device) -> int:
    """Return the bytes that a training can use on a device of this machine."""
    if device.type == "cuda":
        return usable(torch.cuda.get_device_properties(device).total_memory)
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if _CGROUP.is_file() and (limit := _CGROUP.read_text().strip()).isdigit():
        total = min(total, int(limit))
    return total


def check_counts(counts: Mapping[str, int]) -> None:
    """Raise `UserError` if there is no memory for the numbers of objects of settings. An object takes 1 KiB."""
    room = capacity(torch.device("cpu"))
    for name, count in counts.items():
        if count * 2**10 > room:
            raise UserError(f"{name} needs {count} KiB of memory or more, but there are {room // 2**10}; lower {name}")


def usable(total: int) -> int:
    """Return the bytes that a training can use on a GPU with `total` bytes, as reported by CUDA."""
    return int((total - OUTSIDE) * USABLE)


def gpu_memory(name: str) -> int:
    """Return the total bytes of a GPU in `GPUS`. Raises `UserError` if the name is unknown."""
    if name.lower() not in GPUS:
        raise UserError(f"GPU {name!r} is unknown; {nearest(name.lower(), GPUS)}, or give --memory")
    return int(GPUS[name.lower()] * GIB)


def bytes_of(text: str) -> int:
    """Convert a text such as 80GB (10^9 bytes) or 80GiB (2^30 bytes) to bytes. Raises `UserError` for other texts."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(GB|GiB|MB|MiB)\s*", text)
    if found is None or float(found[1]) == 0:
        raise UserError(f"{text!r} is not an amount of memory; write for example 80GB or 24GiB")
    return int(float(found[1]) * {"GB": 10**9, "GiB": GIB, "MB": 10**6, "MiB": 2**20}[found[2]])
