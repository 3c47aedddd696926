"""Messages on the control socket between a worker and its zygote."""

from __future__ import annotations

import struct
from typing import Final

MAPPED: Final = b"mapped"
"""From the zygote: map users into my namespace. From the worker: done."""
READY: Final = b"ready"
STOP: Final = b"stop"

REQUEST: Final = struct.Struct("!ddQ")
"""CPU seconds, wall-clock seconds, bytes of memory in addition to the interpreter's; with a descriptor."""
ENDING: Final = struct.Struct("!iid")
"""Cause, wait status, CPU seconds."""
BY_ITSELF, CPU_LIMIT, WALL_LIMIT, STOPPED, NOT_STARTED = range(5)
