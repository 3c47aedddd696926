"""What the trusted side and the zygote say to each other over the control socket."""

from __future__ import annotations

import struct
from typing import Final

MAPPED: Final = b"mapped"
"""Zygote: namespaces entered, map my users. Trusted side: done."""
READY: Final = b"ready"
STOP: Final = b"stop"

REQUEST: Final = struct.Struct("!ddQ")
"""CPU seconds, wall seconds, bytes of memory on top of the interpreter's own; a descriptor comes along."""
ENDING: Final = struct.Struct("!iid")
"""Cause, wait status, CPU seconds."""
BY_ITSELF, CPU_LIMIT, WALL_LIMIT, STOPPED, NOT_STARTED = range(5)
