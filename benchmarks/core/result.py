"""Result of a team on the core suite: its returns on the held-out seeds, written as one JSON file.

{"collm": "0.4.0", "team": "tiny", "environments":
 {"collm/MiniBuild-v0": {"seeds_sha256": "…", "returns": {"sampled": [0.5, …], "greedy": [0.6, …]}}, …}}

Returns are means over the agents, in the order of the seeds. If the team cannot play an environment, "unplayed":
"REASON" replaces the returns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...envs.registration.held_out import HeldOut, held_out_seeds
from ..errors import UserError

ANCHORS_FILE = Path(__file__).with_name("anchors.json")


@dataclass(frozen=True)
class SuiteResult:
    team: str  # names of the team's models, or folders of its runs
    returns: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    """Team returns in the order of the held-out seeds. Keys: environment id, then decoding mode."""
    unplayed: Mapping[str, str] = field(default_factory=dict)
    """Reasons why the team could not play an environment. Keys: environment id."""

    @property
    def ways(self) -> list[str]:
        return list(dict.fromkeys(way for ways in self.returns.values() for way in ways))

    def to_json(self) -> dict[str, Any]:
        played = {
            id: {"seeds_sha256": seeds_of(id).sha256, "returns": {way: list(each) for way, each in ways.items()}}
            for id, ways in self.returns.items()
        }
        unplayed = {id: {"seeds_sha256": seeds_of(id).sha256, "unplayed": why} for id, why in self.unplayed.items()}
        return {"collm": version("collm"), "team": self.team, "environments": {**played, **unplayed}}


def core_ids() -> tuple[str, ...]:
    """Ids of the suite's environments: those with reference returns in `ANCHORS_FILE`."""
    return tuple(json.loads(ANCHORS_FILE.read_text(encoding="utf-8")))


def seeds_of(id: str) -> HeldOut:
    """Held-out seeds of an environment. Raise UserError if the environment is not in the suite."""
    found = held_out_seeds(id) if id in core_ids() else None
    if found is None:
        raise UserError(f"{id} is not in the core suite, which has {', '.join(core_ids())}")
    return found
