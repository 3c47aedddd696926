"""Memory of devices: those of this machine, and some that others have."""

from __future__ import annotations

import os
import re
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
"""GiB that a CUDA device of each kind reports in all."""
OUTSIDE = GIB // 2
"""What CUDA itself and its libraries take of a GPU."""
USABLE = 0.96
"""Share of the rest that torch's allocator can hand out before pieces between its blocks are lost."""
_CGROUP = Path("/sys/fs/cgroup/memory.max")


def capacity(device: torch.device) -> int:
    """Bytes that a training may take of a device of this machine."""
    if device.type == "cuda":
        return usable(torch.cuda.get_device_properties(device).total_memory)
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if _CGROUP.is_file() and (limit := _CGROUP.read_text().strip()).isdigit():
        total = min(total, int(limit))
    return total


def usable(total: int) -> int:
    """Bytes that a training may take of a GPU with this much memory."""
    return int((total - OUTSIDE) * USABLE)


def gpu_memory(name: str) -> int:
    """Bytes of memory of a kind of GPU.

    Raises:
        UserError: if the kind is unknown.
    """
    if name.lower() not in GPUS:
        raise UserError(f"there is no GPU {name!r} in the list; {nearest(name.lower(), GPUS)}, or give --memory")
    return int(GPUS[name.lower()] * GIB)


def bytes_of(text: str) -> int:
    """Bytes of an amount such as 80GB (10^9) or 80GiB (2^30).

    Raises:
        UserError: if it is none.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(GB|GiB|MB|MiB)\s*", text)
    if found is None or float(found[1]) == 0:
        raise UserError(f"{text!r} is no amount of memory; write for example 80GB or 24GiB")
    return int(float(found[1]) * {"GB": 10**9, "GiB": GIB, "MB": 10**6, "MiB": 2**20}[found[2]])
