"""Anchors of the core suite: the mean returns that count as the scores 0 and 1."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .submission import seeds_of

ANCHORS_FILE = Path(__file__).with_name("anchors.json")


@dataclass(frozen=True)
class Anchor:
    """Mean returns on an environment's held-out seeds that count as the scores 0 and 1."""

    floor: float
    reference: float

    def score(self, value: float) -> float:
        """A return in units of the way from the floor to the reference."""
        return (value - self.floor) / (self.reference - self.floor)


@cache
def anchors() -> Mapping[str, Anchor]:
    """By id, from the file in the package.

    Raises:
        ValueError: if they were measured on other seeds.
    """
    found: dict[str, Any] = json.loads(ANCHORS_FILE.read_text(encoding="utf-8"))
    for id, each in found.items():
        if each["seeds_sha256"] != seeds_of(id).sha256:
            raise ValueError(
                f"{ANCHORS_FILE.name}: {id} was measured on other seeds; make the file anew: python tools/anchors.py"
            )
    return {id: Anchor(each["floor"], each["reference"]) for id, each in found.items()}
