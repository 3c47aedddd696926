"""Marks of results: a few bytes that are equal where what agents read, earned and were told of the end is.

They tell whether an episode that is played again, in another process or on another machine, takes the same course.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np

from .faults import StepResult

MARK_BYTES = 8


def mark(result: StepResult) -> bytes:
    """Mark of a turn: its observations, rewards, terminations and truncations. Infos may differ, as times may."""
    digest = blake2b(digest_size=MARK_BYTES)
    for part in result[:4]:
        _feed(digest, part)
    return digest.digest()


def _feed(digest: Any, value: Any) -> None:
    if isinstance(value, str):
        _feed_bytes(digest, "text", value.encode(errors="surrogatepass"))
    elif isinstance(value, Mapping):  # in whatever order they come: sets of texts have another one in each process
        digest.update(f"mapping {len(value)} ".encode())
        for key in sorted(value, key=repr):
            _feed(digest, key)
            _feed(digest, value[key])
    elif isinstance(value, (tuple, list)):
        digest.update(f"row {len(value)} ".encode())
        for each in value:
            _feed(digest, each)
    elif (array := np.asarray(value)).dtype.kind != "O":
        _feed_bytes(digest, f"{array.dtype.str} {array.shape}", array.tobytes())
    else:
        _feed_bytes(digest, "object", pickle.dumps(value))


def _feed_bytes(digest: Any, kind: str, content: bytes) -> None:
    digest.update(f"{kind} {len(content)} ".encode())
    digest.update(content)
