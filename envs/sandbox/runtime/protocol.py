"""Messages on the control socket between a worker and its zygote (parent of the runs)."""

from __future__ import annotations

import struct
from typing import Final

MAPPED: Final = b"mapped"
"""From the zygote: request to map users into its namespace. From the worker: the users are mapped."""
READY: Final = b"ready"
STOP: Final = b"stop"

REQUEST: Final = struct.Struct("!ddQ")
"""Limits of a run, sent with a descriptor: CPU seconds, wall-clock seconds, bytes of memory above the interpreter's."""
ENDING: Final = struct.Struct("!iid")
"""End of a run: cause, wait status, CPU seconds."""
BY_ITSELF, CPU_LIMIT, WALL_LIMIT, STOPPED, NOT_STARTED = range(5)
