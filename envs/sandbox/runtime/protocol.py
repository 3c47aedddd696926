"""Messages on the control socket between the host and a worker process (zygote, parent of the runs)."""

from __future__ import annotations

import struct
from typing import Final

MAPPED: Final = b"mapped"  # from the zygote: request to map users into its namespace; from the host: the reply
READY: Final = b"ready"
STOP: Final = b"stop"

REQUEST: Final = struct.Struct("!ddQ")  # limits of a run: CPU seconds, wall-clock seconds, additional bytes of memory
ENDING: Final = struct.Struct("!iid")  # end of a run: cause, wait status, CPU seconds
BY_ITSELF, CPU_LIMIT, WALL_LIMIT, STOPPED, NOT_STARTED = range(5)
