"""`collm report DIR`: write an HTML page about runs, figures as PNG, and tables as Markdown and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text
from tyro.conf import Positional

from ..._ranges import Checked, Count
from ..._terminal import shown, terminal
from ..arguments import parsed
from ..errors import UserError, check_folder, refusals

if TYPE_CHECKING:
    from ..report.tables import TableOfText


@dataclass(frozen=True, kw_only=True)
class ReportArguments(Checked):
    """Write an HTML page about runs: learning curves, confidence intervals, diagnostics, and episodes."""

    directory: Positional[Path | None] = None
    """Folder of `collm benchmark`, `collm train` or an earlier report. None: the newest folder under runs/."""
    out: Path | None = None
    """Output folder. None: the folder of the runs."""
    title: str | None = None
    """Title of the page. None: the suite, the methods and the environments."""
    max_episodes: Count = 10_000
    """Number of episodes in the page, equal for all runs: the best, the worst, and others spread over training."""
    contrasts: Path | None = None
    """File or name of a suite whose contrasts (planned comparisons) are estimated and tested. None: no contrasts."""
    search: bool = False
    """Show each algorithm's best entry of a search, and settings whose best value is an end of the tried range."""
    notes: tuple[str, ...] = ()
    """Lines of text to show below the title, such as a description of the hardware."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(ReportArguments, "report", args)
    if arguments.directory is not None and not arguments.directory.is_dir():
        raise UserError(f"{arguments.directory} has no runs: the folder does not exist; give the --out of a run")

    from ..comparison.suite import read_suite  # late imports: help needs no torch
    from ..report.report import newest_comparison, read_comparison, write_report

    console = terminal()
    with refusals():
        directory = arguments.directory or newest_comparison()
        out = arguments.out or directory
        check_folder(out, "--out")
        contrasts = () if arguments.contrasts is None else read_suite(arguments.contrasts).contrasts
        summaries, episodes = read_comparison(directory, arguments.max_episodes, console)
        entries = {(run.environment, run.algorithm): run.experiment["algorithm"] for run in summaries}
        if arguments.search and len({(place[0], name) for place, name in entries.items()}) == len(entries):
            raise UserError(f"--search compares several entries of an algorithm, but {directory} has only one of each")
    written = write_report(
        summaries,
        episodes,
        directory,
        out,
        title=arguments.title,
        contrasts=contrasts,
        is_search=arguments.search,
        notes=arguments.notes,
    )
    print_table(written.table, console)
    size = f"{written.num_bytes / 1e6:.1f} MB, {written.num_episodes} episodes"
    console.print(f"page: {shown(written.page)}, {size}", highlight=False, markup=False)


def plain(text: str) -> Text:
    return Text(shown(text))  # text of a run's files, without markup and control characters


def print_table(content: TableOfText, console: Console) -> None:
    columns = [Column(plain(name), overflow="fold") for name in content.header]
    table = Table(*columns, title=plain(content.title), title_justify="left")
    for row in content.rows:
        table.add_row(*map(plain, row))
    if not console.is_terminal:
        console.width = 10_000  # files and pipes get whole cells
    console.print(table, plain(content.note))
