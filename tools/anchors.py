"""Write the returns that define the scores 0 and 1 of the core suite, from the results of two scripted players.

collm evaluate --suite core --model random reference --out benchmarks/results/core
python tools/anchors.py benchmarks/results/core
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from collm.benchmarks.core.result import ANCHORS_FILE, core_ids
from collm.benchmarks.errors import UserError

FLOOR, REFERENCE = "random", "reference"
"""Players whose mean returns are the scores 0 and 1."""


def written_anchors(floor: Mapping[str, Any], reference: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of the anchors file: both players' mean returns in each environment.

    Args:
        floor: "environments" of the result of the player whose score is 0.
        reference: "environments" of the result of the player whose score is 1.

    Raises:
        UserError: if a player did not play an environment, or if the reference's return is not above the floor's.
    """
    found = {}
    for id in core_ids():
        if any("returns" not in played.get(id, {}) for played in (floor, reference)):
            raise UserError(f"the results of {FLOOR} and {REFERENCE} must both contain {id}; evaluate both again")
        low, high = (float(np.mean(played[id]["returns"]["sampled"])) for played in (floor, reference))
        if not low < high:
            raise UserError(f"{id}: {REFERENCE} has mean return {high:g}, which must be above {low:g} of {FLOOR}")
        seeds = {played[id]["seeds_sha256"] for played in (floor, reference)}
        if len(seeds) > 1:
            raise UserError(f"{id}: {FLOOR} and {REFERENCE} were evaluated on different seeds; evaluate both again")
        found[id] = {"seeds_sha256": seeds.pop(), "floor": low, "reference": high}
    return found


def main(folder: Path) -> None:
    """Write the anchors file from the results in a folder."""
    files = (folder / f"{name}.json" for name in (FLOOR, REFERENCE))
    floor, reference = (json.loads(file.read_text(encoding="utf-8"))["environments"] for file in files)
    ANCHORS_FILE.write_text(json.dumps(written_anchors(floor, reference), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
