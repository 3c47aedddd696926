"""Messages on the control socket between a worker and its zygote (parent process of the runs)."""

from __future__ import annotations

import struct
from typing import Final

MAPPED: Final = b"mapped"
"""The zygote sends it to request a mapping of users into its namespace. The worker sends it when this is done."""
READY: Final = b"ready"
STOP: Final = b"stop"

REQUEST: Final = struct.Struct("!ddQ")
"""Limits of a run: CPU time and wall-clock time in seconds, and memory in bytes, in addition to the interpreter's."""
ENDING: Final = struct.Struct("!iid")
"""End of a run: cause, wait status, CPU seconds."""
BY_ITSELF, CPU_LIMIT, WALL_LIMIT, STOPPED, NOT_STARTED = range(5)
