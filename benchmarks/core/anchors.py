"""Anchors of the core suite: the mean returns that count as the scores 0 and 1, out of two players' submissions.

collm evaluate --suite core --model random reference --out benchmarks/results/core
python -m collm.benchmarks.core.anchors benchmarks/results/core
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError
from .submission import Submission, core_ids, read_submission, seeds_of

ANCHORS_FILE = Path(__file__).with_name("anchors.json")
FLOOR, REFERENCE = "random", "reference"
"""The players whose mean returns are the scores 0 and 1."""


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
                f"{ANCHORS_FILE.name}: {id} was measured on other seeds; make the file anew: "
                "python -m collm.benchmarks.core.anchors"
            )
    return {id: Anchor(each["floor"], each["reference"]) for id, each in found.items()}


def written_anchors(floor: Submission, reference: Submission) -> dict[str, Any]:
    """What `anchors` reads, from the two players' submissions.

    Raises:
        UserError: if one of them has not played an environment, or if the reference is not above the floor.
    """
    found = {}
    for id in core_ids():
        if id not in floor.returns or id not in reference.returns:
            raise UserError(f"{id} was not played by both {FLOOR} and {REFERENCE}")
        low, high = (float(np.mean(each.returns[id]["sampled"])) for each in (floor, reference))
        if not low < high:
            raise UserError(f"the reference player of {id} earns {high:g}, no more than random play, {low:g}")
        found[id] = {"seeds_sha256": seeds_of(id).sha256, "floor": low, "reference": high}
    return found


def main(folder: Path) -> None:
    """Write the anchors from the submissions in a folder."""
    floor, reference = (read_submission(folder / f"{name}.json") for name in (FLOOR, REFERENCE))
    ANCHORS_FILE.write_text(json.dumps(written_anchors(floor, reference), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
