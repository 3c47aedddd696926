"""Explained variance of critics during recorded training runs, compared with the attainable explained variance.

The attainable value is the explained variance of an ideal table (`others_mean`): the mean return to go of the other
episodes in the same part of training with the same progress at the same turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from recorded import NUM_PARTS, Part, averaged, parts, recorded

from collm.benchmarks.errors import UserError
from collm.benchmarks.markdown import markdown_table


def attained(directory: Path, *, num_parts: int = NUM_PARTS, trust: bool = False) -> list[Part]:
    """Return the parts of a run's training, without parts whose returns are all equal.

    Args:
        directory: folder of a run whose environment reports the team's progress as `metric/quality`.
        num_parts: number of parts, with equal numbers of updates.
        trust: as in `load_experiment`.

    Raises:
        UserError: if the recorded episodes have no critic values, or have different numbers of turns.
    """
    record = recorded(directory, trust=trust)
    if record.values is None:
        raise UserError(
            f"the episodes of {directory} have no values, because its algorithm has no critic; give runs of IAC, MAAC, "
            "IPPO or MAPPO, or use `refit`"
        )
    return parts(record, record.values, num_parts=num_parts)


def attained_page(runs: Sequence[Sequence[Part]]) -> str:
    """Return the table of several runs of one method on one task, as Markdown. Runs are weighted as in `averaged`."""
    header = ["updates", "return", "critics", "attainable", "critics, by turn", "attainable, by turn"]
    rows = [
        [
            f"{part.updates[0]} to {part.updates[1]}",
            f"{part.returns:.2f}",
            f"{np.mean(part.explained):.2f}",
            f"{np.mean(part.attainable):.2f}",
            *(" ".join(f"{share:.2f}" for share in of_turns) for of_turns in (part.explained, part.attainable)),
        ]
        for part in averaged(runs)
    ]
    return (
        "# Explained variance while training\n\n"
        f"{len(runs)} runs. Explained variance of the return to go by the critics' values, as predicted before "
        "learning from the episodes, and by a table of how far the team had come (the mean return of other episodes "
        "that had come as far at that turn): mean of the turns, and turn by turn. Parts of equal returns are "
        "left out.\n\n"
        f"{markdown_table(header, rows)}\n"
    )
