"""Length-prefixed JSON frames over a stream descriptor."""

from __future__ import annotations

import json
import os
import struct
from typing import Any

HEADER = struct.Struct("!I")
SEALED = b"\x01"  # the child's first byte: confinement is complete, nothing of the request has been read
_encode = json.JSONEncoder(ensure_ascii=True, check_circular=False, separators=(",", ":")).encode


def frame(message: Any) -> bytes:
    """One message with its length in front."""
    body = _encode(message).encode("ascii")
    return HEADER.pack(len(body)) + body


def write(descriptor: int, message: Any) -> None:
    """Send one message, however long."""
    rest = memoryview(frame(message))
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _exactly(descriptor: int, num_bytes: int) -> bytes:
    data = os.read(descriptor, num_bytes)
    if len(data) < num_bytes:
        parts = [data]
        missing = num_bytes - len(data)
        while missing:
            data = os.read(descriptor, missing)
            if not data:
                raise EOFError("the other side closed the channel")
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)
    return data


def read(descriptor: int) -> Any:
    """Next message.

    Raises:
        EOFError: if the other side has closed the channel.
    """
    (length,) = HEADER.unpack(_exactly(descriptor, HEADER.size))
    return json.loads(_exactly(descriptor, length))
