"""Messages with a length prefix. Messages to a sandboxed process use `marshal`, and messages from it use JSON.

`marshal` is faster, but unsafe to load from untrusted processes.
"""

from __future__ import annotations

import marshal
import os
import struct
from typing import Any

HEADER = struct.Struct("!I")
SEALED = b"\x01"  # first byte that a child sends, after its confinement and before it reads the request
_FIRST_READ = 1 << 12
_CHUNK = 1 << 16
_pack, _unpack, _size = HEADER.pack, HEADER.unpack_from, HEADER.size


def pack(message: Any) -> bytes:
    """Serialize a message for a sandboxed process with `marshal`. The message must consist of builtin types."""
    body = marshal.dumps(message)
    return _pack(len(body)) + body


def read(descriptor: int) -> Any:
    """Read the next message of the trusted process. Raise EOFError if the channel is closed."""
    data = os.read(descriptor, _FIRST_READ)
    while len(data) < _size or len(data) < _size + _unpack(data)[0]:
        more = os.read(descriptor, _CHUNK if len(data) < _size else _size + _unpack(data)[0] - len(data))
        if not more:
            raise EOFError("the channel is closed")
        data += more
    return marshal.loads(data[_size:])


def write(descriptor: int, text: str) -> None:
    """Send a message, which is JSON in ASCII, to the trusted process."""
    body = text.encode("ascii")
    data = _pack(len(body)) + body
    sent = os.write(descriptor, data)
    while sent < len(data):
        sent += os.write(descriptor, data[sent : sent + _CHUNK])
