"""Random streams by name: the same numbers for the same (seed, episode, agent, turn), whatever else is drawn."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def uniforms(stream: Sequence[int], count: int) -> NDArray[np.float64]:
    """The first `count` numbers in [0, 1) of the stream with this name; a longer request only appends to them.

    A counter-based generator keyed by a hash of the whole name: streams are independent, and a seed sequence's
    equality of (1, 2) and (1, 2, 0) does not arise.
    """
    key = int.from_bytes(_digest(stream, 16), "little")
    return np.random.Generator(np.random.Philox(key=key)).random(count)


def seed_of(stream: Sequence[int]) -> int:
    """A seed in [0, 2^63) for a generator elsewhere: a hash of the stream's whole name."""
    return int.from_bytes(_digest(stream, 8), "little") >> 1


def _digest(stream: Sequence[int], size: int) -> bytes:
    name = ",".join(str(int(part)) for part in stream).encode()
    return hashlib.blake2b(name, digest_size=size).digest()
