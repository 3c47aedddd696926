"""`collm evaluate --suite core`: plays the suite, writes a submission per team, and prints one table."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..._terminal import shown
from ...agents.config import ModelConfig
from ...envs.players import PLAYERS
from ..errors import UserError
from .play import checked_ids, model_submission, player_submission, runs_submission
from .submission import Submission, read_submission
from .table import TITLE, markdown, rows

TABLE_FILE = "table.md"


def evaluate_suite(
    console: Console,
    folder: Path,
    *,
    directories: Sequence[Path] = (),
    models: Sequence[str] = (),
    submissions: Sequence[Path] = (),
    ids: Sequence[str] = (),
    ways: Sequence[str] = ("sampled", "greedy"),
    model: ModelConfig | None = None,
    trust: bool = False,
    is_json: bool = False,
) -> None:
    """Play, and write `TEAM.json` for each team and the table of all, `table.md`.

    Args:
        console: where progress and the table are printed.
        folder: where the files go.
        directories: runs, which are one team together.
        models: teams by the names of their models, or scripted players.
        submissions: files that are shown beside them.
        ids: environments; none: all of the suite.
        ways: ways of playing.
        model: further settings of the models.
        trust: import environments that runs name.
        is_json: print the submissions as JSON in place of the table.

    Raises:
        UserError: if a team, an environment or a file cannot be used.
    """
    beside = [read_submission(file) for file in submissions]
    chosen = checked_ids(ids)

    def told(id: str, way: str, returns: Sequence[float]) -> None:
        if not is_json:
            console.print(f"{id}, {way}: mean return {sum(returns) / len(returns):.3f}", markup=False, highlight=False)

    played: list[Submission] = []
    for name in models:
        if name in PLAYERS:
            played.append(player_submission(name, chosen, told))
        else:
            played.append(model_submission(replace(model or ModelConfig(), model=name), chosen, ways, folder, told))
    if directories:
        played.append(runs_submission(directories, ways, trust, told))
    files = [folder / f"{plain_name(each.team)}.json" for each in played]
    if len(set(files)) < len(files):
        raise UserError("two teams' names differ in signs alone, which would be one file; play them one by one")
    for each, file in zip(played, files, strict=True):
        each.write(file)
    if is_json:
        print(json.dumps([each.to_json() for each in (*played, *beside)], indent=1, ensure_ascii=False))
    everyone = [*played, *beside]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TABLE_FILE).write_text(markdown(everyone), encoding="utf-8")
    if not is_json:
        show(console, everyone)
        console.print(f"submissions and the table: {shown(folder)}", markup=False, soft_wrap=True)


def plain_name(team: str) -> str:
    """Name of a team's file."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", team).strip("-.")[-60:] or "team"


def show(console: Console, submissions: Sequence[Submission]) -> None:
    """Print the table."""
    header, cells = rows(submissions)
    table = Table(title=Text(TITLE), title_justify="left")
    for name in header:
        table.add_column(Text(shown(name)))
    for row in cells:
        table.add_row(*row)
    console.print(table)
