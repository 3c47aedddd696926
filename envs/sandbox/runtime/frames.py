"""Length-prefixed frames over a stream descriptor: marshalled into the jail, JSON out of it.

Marshal is the quickest way to hand plain data to an interpreter of the same build, and unsafe to read from one that may
be hostile, so nothing ever travels out that way.
"""

from __future__ import annotations

import marshal
import os
import struct
from typing import Any

HEADER = struct.Struct("!I")
SEALED = b"\x01"
"""A child's first byte: confinement is complete, and nothing of the request has been read."""
_FIRST_READ = 1 << 12
_CHUNK = 1 << 16
_pack, _unpack, _size = HEADER.pack, HEADER.unpack_from, HEADER.size


def pack(message: Any) -> bytes:
    """Frame of a message for the jail; plain data of exact builtin types."""
    body = marshal.dumps(message)
    return _pack(len(body)) + body


def read(descriptor: int) -> Any:
    """Next message from the trusted side, which sends one and waits.

    Raises:
        EOFError: if it has closed the channel.
    """
    data = os.read(descriptor, _FIRST_READ)
    while len(data) < _size or len(data) < _size + _unpack(data)[0]:
        more = os.read(descriptor, _CHUNK if len(data) < _size else _size + _unpack(data)[0] - len(data))
        if not more:
            raise EOFError("the other side closed the channel")
        data += more
    return marshal.loads(data[_size:])


def write(descriptor: int, text: str) -> None:
    """Send one message, given as JSON in ASCII."""
    body = text.encode("ascii")
    data = _pack(len(body)) + body
    sent = os.write(descriptor, data)
    while sent < len(data):
        sent += os.write(descriptor, data[sent : sent + _CHUNK])
