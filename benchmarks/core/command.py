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

from ..._ownership import refuse_foreign_files, write_text
from ..._ranges import refuse_password
from ..._terminal import shown
from ...agents.config import ModelConfig
from ...envs.players import PLAYERS
from ..errors import UserError
from .play import checked_ids, model_submission, player_submission, runs_submission, team_of
from .submission import Submission, read_submission
from .table import TITLE, markdown, reasons, rows

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
    """Play, and write `TEAM.json` for each team, anew after each environment, and the table of all, `table.md`.

    Args:
        console: where progress and the table are printed.
        folder: where the files go.
        directories: runs, which are one team together.
        models: teams by the names of their models, or scripted players.
        submissions: files that are shown beside them.
        ids: environments; none: all of the suite.
        ways: ways of playing.
        model: further settings of the models.
        trust: as in `load_experiment`.
        is_json: print the submissions as JSON in place of the table.

    Raises:
        UserError: if a team, an environment or a file cannot be used.
        SystemExit: with status 1, after all is written, if a team could not play one of the environments.
    """
    for name in models:
        refuse_password(name)
    beside = [read_submission(file) for file in submissions]
    chosen = checked_ids(ids)
    teams = [*models, *([team_of(directories)] if directories else [])]
    if len({plain_name(team) for team in teams}) < len(teams):
        raise UserError("two teams' names differ in signs alone, which would be one file; play them one by one")

    refuse_foreign_files(folder, [TABLE_FILE, *(f"{plain_name(team)}.json" for team in teams)])

    def told(so_far: Submission, line: str) -> None:
        if so_far.returns:
            so_far.write(folder / f"{plain_name(so_far.team)}.json")
        if not is_json:
            console.print(shown(line), markup=False, highlight=False)

    played: list[Submission] = []
    for name in models:
        if name in PLAYERS:
            played.append(player_submission(name, chosen, told))
        else:
            played.append(model_submission(replace(model or ModelConfig(), model=name), chosen, ways, folder, told))
    if directories:
        played.append(runs_submission(directories, ways, trust, told))
    if is_json:
        print(json.dumps([each.to_json() for each in (*played, *beside)], indent=1, ensure_ascii=False))
    everyone = [*played, *beside]
    write_text(folder, TABLE_FILE, markdown(everyone))
    if not is_json:
        show(console, everyone)
        for line in reasons(everyone):
            console.print(shown(line), markup=False, highlight=False, soft_wrap=True)
        console.print(f"submissions and the table: {shown(folder)}", markup=False, soft_wrap=True)
    if any(each.unplayed for each in played):
        raise SystemExit(1)


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
