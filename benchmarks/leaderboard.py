"""Leaderboard of teams on the same tasks of an environment, written as JSON, Markdown and HTML."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from .._ownership import write_text
from ..algorithms.rollout.intervals import Interval
from .markdown import markdown_table

LEADERBOARD_FILES = JSON_FILE, MARKDOWN_FILE, HTML_FILE = "leaderboard.json", "leaderboard.md", "leaderboard.html"


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

    def html(self) -> str:
        """Format the table as an HTML page without scripts. All intervals are drawn on the same scale."""
        names = list(self.entries[0].cells)
        found = [each for entry in self.entries for each in entry.cells.values()]
        low, high = min(0.0, *(each.low for each in found)), max(each.high for each in found)
        span = (high - low) or 1.0

        def cell(each: Interval) -> str:
            start, width = 100 * (each.low - low) / span, 100 * (each.high - each.low) / span
            bar = f'<i style="left:{start:.1f}%;width:{max(width, 0.5):.1f}%"></i>'
            return f'<td>{escape(str(each))}<span class="scale" aria-hidden="true">{bar}</span></td>'

        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in ("", "team", *names))
        rows = "".join(
            f'<tr><td>{place}</td><th scope="row">{escape(entry.team)}</th>'
            + "".join(cell(entry.cells[name]) for name in names)
            + "</tr>"
            for place, entry in enumerate(self.ranked, 1)
        )
        body = f"<h1>{escape(self.title)}</h1><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        return (
            '<!doctype html><html lang="en"><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self.title)}</title><style>{_STYLE}</style><main>{body}</main></html>\n"
        )

    def write(self, folder: Path) -> None:
        contents = {
            JSON_FILE: json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n",
            MARKDOWN_FILE: self.markdown(),
            HTML_FILE: self.html(),
        }
        for name, content in contents.items():
            write_text(folder, name, content)


_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}
h1{font-size:1.25rem}
table{border-collapse:collapse;width:100%}
th,td{padding:.5rem .75rem;text-align:left;border-bottom:1px solid #8886;font-variant-numeric:tabular-nums}
tbody th{font-weight:600;overflow-wrap:anywhere}
.scale{display:block;position:relative;height:.4rem;background:#8883;margin-top:.25rem;min-width:8rem}
.scale i{position:absolute;top:0;bottom:0;background:#2a78c2}
"""
