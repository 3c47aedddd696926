"""Held-out seeds: a fixed list of evaluation seeds for each version of an environment."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

SEEDS_FILE = Path(__file__).with_name("held_out_seeds.json")
# Training samples seeds below 2^31. Evaluations during training use the seeds 2^31, 2^31 + 1, …
FIRST_HELD_OUT_SEED, END_OF_SEEDS = 3 * 2**30, 2**32


@dataclass(frozen=True)
class HeldOut:
    """Evaluation seeds of one version of an environment, which training never uses."""

    seeds: tuple[int, ...]
    sha256: str  # hash of the environment's id and the seeds


def held_out_seeds(id: str) -> HeldOut | None:
    """Return the held-out seeds of an id, or None if the id has none. Raises ValueError if their file was changed."""
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
