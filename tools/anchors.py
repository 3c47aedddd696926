"""Write the returns that define the scores 0 and 1 of the core suite, from the submissions of two scripted players.

collm evaluate --suite core --model random reference --out benchmarks/results/core
python tools/anchors.py benchmarks/results/core
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from collm.benchmarks.core.submission import ANCHORS_FILE, Submission, core_ids, read_submission, seeds_of
from collm.benchmarks.errors import UserError

FLOOR, REFERENCE = "random", "reference"
"""Players whose mean returns are the scores 0 and 1."""


def written_anchors(floor: Submission, reference: Submission) -> dict[str, Any]:
    """Return the content of the anchors file: both players' mean returns in each environment.

    Raises:
        UserError: if a player did not play an environment, or if the reference's return is not above the floor's.
    """
    found = {}
    for id in core_ids():
        if id not in floor.returns or id not in reference.returns:
            raise UserError(f"the submissions of {FLOOR} and {REFERENCE} must both contain {id}; evaluate both again")
        low, high = (float(np.mean(each.returns[id]["sampled"])) for each in (floor, reference))
        if not low < high:
            raise UserError(f"{id}: {REFERENCE} has mean return {high:g}, which must be above {low:g} of {FLOOR}")
        found[id] = {"seeds_sha256": seeds_of(id).sha256, "floor": low, "reference": high}
    return found


def main(folder: Path) -> None:
    """Write the anchors file from the submissions in a folder."""
    floor, reference = (read_submission(folder / f"{name}.json") for name in (FLOOR, REFERENCE))
    ANCHORS_FILE.write_text(json.dumps(written_anchors(floor, reference), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
