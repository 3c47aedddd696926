"""Submissions to the core suite: a team's returns on the held-out seeds, as one JSON file.

{"schema": "collm/core", "version": 1, "collm": "0.4.0", "team": "tiny", "models": ["tiny"],
 "environments": {"collm/MiniBuild-v0": {"seeds_sha256": "…", "returns": {"sampled": [0.5, …], "greedy": [0.6, …]}}, …}}

Returns are means over the agents, in the order of the seeds. If the team cannot play an environment, "unplayed":
"REASON" replaces the returns.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..._json import read_json
from ..._ownership import write_text
from ...envs.registration.held_out import HeldOut, held_out_seeds
from ...envs.registration.registry import specs
from ..errors import UserError

ANCHORS_FILE = Path(__file__).with_name("anchors.json")
SCHEMA, VERSION = "collm/core", 1
WAYS = ("sampled", "greedy")
KEYS = {"schema", "version", "collm", "team", "models", "environments"}


@dataclass(frozen=True)
class Submission:
    team: str
    models: Sequence[str]  # names of the team's models, or folders of its runs
    returns: Mapping[str, Mapping[str, Sequence[float]]]
    """Team returns in the order of the held-out seeds. Keys: environment id, then decoding mode."""
    unplayed: Mapping[str, str] = field(default_factory=dict)
    """Reasons why the team could not play an environment. Keys: environment id."""
    collm: str = field(default_factory=lambda: version("collm"))  # version that played the episodes

    @property
    def ways(self) -> list[str]:
        return list(dict.fromkeys(way for ways in self.returns.values() for way in ways))

    def to_json(self) -> dict[str, Any]:
        played = {
            id: {"seeds_sha256": seeds_of(id).sha256, "returns": {way: list(each) for way, each in ways.items()}}
            for id, ways in self.returns.items()
        }
        unplayed = {id: {"seeds_sha256": seeds_of(id).sha256, "unplayed": why} for id, why in self.unplayed.items()}
        named = {"schema": SCHEMA, "version": VERSION, "collm": self.collm, "team": self.team}
        return {**named, "models": list(self.models), "environments": {**played, **unplayed}}

    def write(self, file: Path) -> None:
        """Write the submission as JSON. Raise ForeignFileError if the file exists and was not written by collm."""
        write_text(file.parent, file.name, json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n")


def core_ids() -> tuple[str, ...]:
    """Ids of the suite's environments: those with reference returns in `ANCHORS_FILE`."""
    return tuple(json.loads(ANCHORS_FILE.read_text(encoding="utf-8")))


def seeds_of(id: str) -> HeldOut:
    """Held-out seeds of an environment. Raise UserError if the environment is not in the suite."""
    found = held_out_seeds(id) if id in core_ids() else None
    if found is None:
        raise UserError(f"{id} is not in the core suite, which has {', '.join(core_ids())}")
    return found


def read_submission(file: Path) -> Submission:
    """Read a submission. Raise UserError if the file is not JSON, or fails the checks of `parsed_submission`."""
    try:
        found = read_json(file)
    except OSError as error:
        raise UserError(f"{file} cannot be read as a submission: {error}") from error
    try:
        return parsed_submission(found)
    except UserError as error:
        raise UserError(f"{file}: {error}") from error


def parsed_submission(found: Any) -> Submission:
    """Convert a JSON object to a submission. Raise UserError if its schema, seeds or returns are invalid."""
    if not isinstance(found, dict) or (found.get("schema"), found.get("version")) != (SCHEMA, VERSION):
        raise UserError(f'a submission must have "schema": "{SCHEMA}" and "version": {VERSION}')
    if set(found) != KEYS:
        raise UserError(f"a submission must have the keys {', '.join(sorted(KEYS))}; got {', '.join(sorted(found))}")
    models, environments = found["models"], found["environments"]
    if not all(isinstance(found[name], str) and found[name] for name in ("team", "collm")):
        raise UserError("team and collm must be strings that are not empty")
    if not isinstance(models, list) or not all(isinstance(name, str) for name in models):
        raise UserError("models must be a list of names")
    if not isinstance(environments, dict) or not environments:
        raise UserError("environments must be an object with environment ids as keys, at least one")
    for id, entry in environments.items():
        held_out = seeds_of(id)
        if not isinstance(entry, dict) or set(entry) not in ({"seeds_sha256", "returns"}, {"seeds_sha256", "unplayed"}):
            raise UserError(f'{id} must have "seeds_sha256" and either "returns" or "unplayed"')
        if entry["seeds_sha256"] != held_out.sha256:
            raise UserError(
                f"{id} was played on other seeds: seeds_sha256 is {entry['seeds_sha256']!r}, not {held_out.sha256!r}"
            )
    returns = {id: _checked_returns(id, entry["returns"]) for id, entry in environments.items() if "returns" in entry}
    unplayed = {id: entry["unplayed"] for id, entry in environments.items() if "unplayed" in entry}
    if wrong := [id for id, why in unplayed.items() if not isinstance(why, str) or not why]:
        raise UserError(f"unplayed of {wrong[0]} must be a string")
    return Submission(found["team"], models, returns, unplayed, found["collm"])


def _checked_returns(id: str, ways: Any) -> dict[str, list[float]]:
    held_out = seeds_of(id)
    if not isinstance(ways, dict) or not ways or not set(ways) <= set(WAYS):
        raise UserError(f"returns of {id} must have the keys {' or '.join(WAYS)}")
    for way, values in ways.items():
        if not isinstance(values, list) or len(values) != len(held_out.seeds):
            raise UserError(f"{way} returns of {id} must be {len(held_out.seeds)} numbers, one per seed")
        if not all(type(value) in (int, float) and math.isfinite(value) for value in values):
            raise UserError(f"{way} returns of {id} must be finite numbers")
        low, high = next(spec.return_range for spec in specs() if spec.id == id) or (-math.inf, math.inf)
        if wrong := [value for value in values if not low - 1e-6 <= value <= high + 1e-6]:
            raise UserError(f"{way} returns of {id} must be in {low:g} to {high:g}, got {wrong[0]:g}")
    return ways
