"""Leaderboard of teams on the same tasks of an environment, written as JSON and Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .._ownership import write_text
from ..algorithms.rollout.intervals import Interval
from .markdown import markdown_table

LEADERBOARD_FILES = JSON_FILE, MARKDOWN_FILE = "leaderboard.json", "leaderboard.md"


@dataclass(frozen=True)
class Entry:
    team: str  # run directory, or names of the models
    returns: Mapping[str, Interval]  # mean returns; keys: decoding modes ("sampled", "greedy")
    terms: Mapping[str, Mapping[str, Interval]]  # means of reward terms and metrics; keys: decoding mode, then name
    episodes: str  # file that contains all episodes of the team
    usage: Sequence[str] = ()  # texts about requests, tokens and costs of chat servers, one per model
    agent_returns: Mapping[str, Mapping[str, Interval]] = field(default_factory=dict)
    """Mean returns; keys: decoding mode, then agent. Empty if the agents have common interests."""
    welfare: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # keys: decoding mode, then measure

    @property
    def cells(self) -> dict[str, Interval]:
        """Columns of the table: mean return of the team and, without common interests, of each agent."""
        own = {f"{how}, {agent}": each for how, found in self.agent_returns.items() for agent, each in found.items()}
        return {**self.returns, **own}

    def to_json(self) -> dict[str, Any]:
        empty = {name for name in ("agent_returns", "welfare") if not getattr(self, name)}
        return {name: value for name, value in asdict(self).items() if name not in empty}


@dataclass(frozen=True)
class Leaderboard:
    env: str
    env_kwargs: Mapping[str, Any]
    split: str
    num_episodes: int
    entries: Sequence[Entry]

    @property
    def ranked(self) -> list[Entry]:
        return sorted(self.entries, key=lambda entry: -next(iter(entry.returns.values())).value)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "entries": [entry.to_json() for entry in self.ranked]}

    @property
    def title(self) -> str:
        return f"{self.env}, split {self.split}, {self.num_episodes} episodes: mean return [95 %]"

    def markdown(self) -> str:
        names = list(self.entries[0].cells)
        rows = [
            (str(place), f"`{entry.team}`", *(str(entry.cells[name]) for name in names))
            for place, entry in enumerate(self.ranked, 1)
        ]
        return f"# {self.title}\n\n{markdown_table(['', 'team', *names], rows)}\n"

    def write(self, folder: Path) -> None:
        contents = {
            JSON_FILE: json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n",
            MARKDOWN_FILE: self.markdown(),
        }
        for name, content in contents.items():
            write_text(folder, name, content)
