"""Held-out seeds: a fixed list of evaluation seeds for each version of an environment.

Training samples seeds below 2^31. Evaluations during training use 2^31, 2^31 + 1, … Held-out seeds are at least
3 * 2^30. They are derived from a hash of the environment's id and stored in a file.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

SEEDS_FILE = Path(__file__).with_name("held_out_seeds.json")
FIRST_HELD_OUT_SEED, END_OF_SEEDS = 3 * 2**30, 2**32


@dataclass(frozen=True)
class HeldOut:
    """Held-out seeds of one version of an environment."""

    seeds: tuple[int, ...]
    sha256: str
    """SHA-256 of the id and the seeds, stored in results."""


def held_out_seeds(id: str) -> HeldOut | None:
    """Return the held-out seeds of an environment id, or None for other ids. Raises ValueError for changed seeds."""
    found = _lists().get(id)
    if found is None:
        return None
    seeds: tuple[int, ...] = tuple(found["seeds"])
    digest = hashlib.sha256(json.dumps([id, found["seeds"]]).encode()).hexdigest()
    if digest != found["sha256"]:
        raise ValueError(f"{SEEDS_FILE.name}: the seeds of {id} do not match their sha256; restore the file")
    return HeldOut(seeds, digest)


@cache
def _lists() -> dict[str, dict[str, Any]]:
    lists: dict[str, dict[str, Any]] = json.loads(SEEDS_FILE.read_text(encoding="utf-8"))
    return lists
