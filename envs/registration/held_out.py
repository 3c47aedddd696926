"""Held-out seeds: per version of an environment a fixed list, on which teams are compared and no training draws a task.

Training draws seeds below 2^31 and its own evaluations count up from there; these lie in the last quarter of 32 bits.
They were drawn by a hash of the environment's id, so that nobody chose them, and are kept as data, so that they stay
what they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

SEEDS_FILE = Path(__file__).with_name("held_out_seeds.json")
FIRST_HELD_OUT_SEED, END_OF_SEEDS = 3 * 2**30, 2**32
NUM_SEEDS = 50


@dataclass(frozen=True)
class HeldOut:
    """The seeds of one version of an environment."""

    seeds: tuple[int, ...]
    sha256: str
    """Digest of the id and the seeds, in order: what a result names to say what it was measured on."""


def held_out_seeds(id: str) -> HeldOut | None:
    """The list of an environment's id with its version; None where there is none.

    Raises:
        ValueError: if the file was changed.
    """
    found = _lists().get(id)
    if found is None:
        return None
    seeds: tuple[int, ...] = tuple(found["seeds"])
    told: str = found["sha256"]
    if digest(id, seeds) != told:
        raise ValueError(f"{SEEDS_FILE.name}: the seeds of {id} are not those that its sha256 names; restore the file")
    return HeldOut(seeds, told)


def digest(id: str, seeds: Sequence[int]) -> str:
    """SHA-256 of an id and its seeds, in hexadecimal digits."""
    return hashlib.sha256(json.dumps([id, list(seeds)]).encode()).hexdigest()


def drawn_seeds(id: str, count: int = NUM_SEEDS) -> tuple[int, ...]:
    """Different seeds for a new id: the first bytes of SHA-256 of id and number, in the range of held-out seeds."""
    seeds: dict[int, None] = {}
    number = 0
    while len(seeds) < count:
        drawn = int.from_bytes(hashlib.sha256(f"{id} {number}".encode()).digest()[:8], "big")
        seeds[FIRST_HELD_OUT_SEED + drawn % (END_OF_SEEDS - FIRST_HELD_OUT_SEED)] = None
        number += 1
    return tuple(seeds)


@cache
def _lists() -> dict[str, dict[str, Any]]:
    lists: dict[str, dict[str, Any]] = json.loads(SEEDS_FILE.read_text(encoding="utf-8"))
    return lists
