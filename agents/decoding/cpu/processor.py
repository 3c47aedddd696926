"""Which processor this is."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

TOLD = ("vendor_id", "model name", "flags")


@cache
def processor() -> str:
    """Maker, model and instructions where Linux tells them, else what Python knows."""
    known = Path("/proc/cpuinfo")
    if not known.exists():
        return f"{platform.machine()} {platform.processor()}"
    lines = known.read_text("utf-8").splitlines()
    return "\n".join(next((line for line in lines if line.startswith(key)), "") for key in TOLD)
