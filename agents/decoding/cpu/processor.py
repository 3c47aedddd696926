"""Which processor this is, and which tensors it can read."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

TOLD = ("vendor_id", "model name", "flags")


@cache
def processor() -> str:
    """Maker, model and instructions where Linux tells them, else what Python knows."""
    known = Path("/proc/cpuinfo")
    if not known.exists():
        return f"{platform.machine()} {platform.processor()}"
    lines = known.read_text("utf-8").splitlines()
    return "\n".join(next((line for line in lines if line.startswith(key)), "") for key in TOLD)


def are_here(*tensors: Tensor) -> bool:
    """Whether these are fp32 numbers in its memory; tensors that stand for others (a shard, a shape) are not."""
    return all(
        type(each) in (Tensor, nn.Parameter) and each.dtype == torch.float32 and each.device.type == "cpu"
        for each in tensors
    )
