"""`collm report DIR`: one self-contained page about runs; its figures as PNG, its tables as Markdown and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import track
from rich.table import Column, Table
from rich.text import Text
from tyro.conf import Positional

from ..._json import explained_content
from ..._ownership import owned, refuse_foreign_files, write_text
from ..._ranges import Checked, Count
from ..._terminal import shown, terminal
from ..arguments import parsed
from ..errors import UserError, check_folder, refusals

if TYPE_CHECKING:
    from ..comparison.summaries import RunSummary
    from ..report.comparison import Comparison
    from ..report.tables import TableOfText


@dataclass(frozen=True, kw_only=True)
class ReportArguments(Checked):
    """Make a page about runs: learning curves, intervals, diagnostics, episodes to read."""

    directory: Positional[Path | None] = None
    """Folder of `collm benchmark` or `collm train`, or one with kept summaries; None: the newest under runs/."""
    out: Path | None = None
    """Folder of the page; None: the folder of the runs."""
    title: str | None = None
    """Title of the page; None: the name of the folder of the runs."""
    max_episodes: Count = 10_000
    """Episodes in the page: an equal share per run, its best, its worst, and others evenly spread over training."""
    contrasts: Path | None = None
    """Suite whose contrasts, stated before it was run, are estimated and tested: its file or its name; None: none."""
    search: bool = False
    """Search: tell each algorithm's best entry, and which of its settings lie at an end of the range that was tried."""
    notes: tuple[str, ...] = ()
    """Lines of text below the title, such as the hardware."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(ReportArguments, "report", args)
    if arguments.directory is not None and not arguments.directory.is_dir():
        raise UserError(f"{arguments.directory} holds no runs: there is no such folder; give the --out of a run")

    from ...algorithms.runs.files import CONFIG_FILE  # here, and below: help needs no torch
    from ..comparison.suite import read_suite
    from ..comparison.summaries import EPISODES_FILE, SUMMARIES_FILE, run_directories, write_summaries
    from ..report.charts import sections
    from ..report.comparison import Comparison, marl_eval_json
    from ..report.contrasts import contrast_table, findings
    from ..report.episodes import pack
    from ..report.figures import draw_figures, figures_of
    from ..report.headline import headline
    from ..report.page import Contents, page
    from ..report.tables import costs, final_scores, search, settings, tables

    console = terminal()
    with refusals():
        directory = arguments.directory or newest_comparison()
        if arguments.out is not None or directory.is_dir():
            check_folder(arguments.out or directory, "--out")
        contrasts = () if arguments.contrasts is None else read_suite(arguments.contrasts).contrasts
        summaries, episodes = read_comparison(directory, arguments.max_episodes, console)
    out = arguments.out or directory
    is_run = (out / CONFIG_FILE).is_file()  # its own episodes.jsonl is a record, not what a report keeps
    keeps_summaries = bool(run_directories(directory)) and not is_run
    with explained_content(directory):
        comparison = Comparison(summaries)
        first, figures, results = headline(comparison), sections(comparison), tables(comparison)
        if contrasts:
            results = [contrast_table(findings(contrasts, comparison)), *results]
        charts = [*first.charts, *(chart for section in figures for chart in section.charts)]
        if arguments.search:
            results = [search(comparison), *results]
        figure_files = figures_of(charts)
        texts = ["report.html", "tables.md", "marl_eval.json"]
        kept = [SUMMARIES_FILE, EPISODES_FILE] if keeps_summaries else []
        refuse_foreign_files(out, [*texts, *kept, *figure_files])
        draw_figures(figure_files, comparison.algorithms, out)
        different, same = settings(comparison)
        name = arguments.title or directory.resolve().name
        lead = [*arguments.notes, *lead_lines(comparison, directory, len(episodes))]
        contents = Contents(
            title=name,
            lead=lead,
            headline=first,
            figures=figures,
            results=results,
            settings=[costs(comparison), different, same],
            methods=comparison.algorithms,
            reference=comparison.reference(),
            library=pack(episodes),
        )
        html = page(contents)
        text = "\n".join(table.markdown() for table in [*results, costs(comparison), different])
        steps = marl_eval_json(summaries)
        shown_table = results[0] if contrasts or arguments.search else final_scores(comparison, "sampled")
    write_text(out, "report.html", html)
    lines = [f"## {name}", "", f"**{first.sentence}**\n", *(f"{line}\n" for line in lead), text]
    write_text(out, "tables.md", "\n".join(lines))
    write_text(out, "marl_eval.json", json.dumps(steps, indent=1) + "\n")
    if keeps_summaries:
        with owned(out, SUMMARIES_FILE) as new:
            write_summaries(summaries, new)
        with owned(out, EPISODES_FILE) as new, new.open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(json.dumps(each, ensure_ascii=False) + "\n" for each in episodes)
    print_table(shown_table, console)
    size = f"{len(html) / 1e6:.1f} MB, {len(episodes)} episodes"
    console.print(f"page: {shown(out / 'report.html')}, {size}", highlight=False, markup=False)


def read_comparison(
    directory: Path, max_episodes: int, console: Console
) -> tuple[list[RunSummary], list[dict[str, Any]]]:
    """Summaries of all runs in a folder, and episodes to read, equally many per run.

    Raises:
        FileNotFoundError: if the folder holds neither runs nor what an earlier report kept of them.
        UserError: if what a run recorded lacks something, or holds another thing in its place.
    """
    from ..comparison.summaries import (
        in_order,
        kept_summaries,
        lost_episodes,
        read_episodes,
        run_directories,
        summarize,
    )
    from ..report.episodes import slim_episodes

    directories = run_directories(directory)
    if not directories:
        with explained_content(directory):
            return kept_summaries(directory), read_episodes(directory)[:max_episodes]
    summaries: list[RunSummary] = []
    episodes: list[dict[str, Any]] = []
    share = max(1, max_episodes // len(directories))
    for each in track(directories, "reading runs", console=console, transient=True, disable=not console.is_terminal):
        with explained_content(each):
            rows = read_episodes(each)
            if line := lost_episodes(each, rows):
                console.print(f"warning: {shown(line)}", style="yellow", markup=False, highlight=False, soft_wrap=True)
            summaries.append(summarize(each, rows))
            episodes += slim_episodes(each, rows, share)
    return in_order(summaries), episodes


def newest_comparison() -> Path:
    """Folder under runs/ that was changed last.

    Raises:
        FileNotFoundError: if there is none.
    """
    from ..comparison.summaries import run_directories

    found = [path for path in Path("runs").glob("*") if path.is_dir() and run_directories(path)]
    if not found:
        raise FileNotFoundError("there are no runs under runs/; give the --out of `collm benchmark` or `collm train`")
    return max(found, key=lambda path: path.stat().st_mtime)


def lead_lines(comparison: Comparison, directory: Path, num_episodes: int) -> list[str]:
    """Lines that say what the page is about, and what is missing from it."""
    from ..comparison.summaries import failed_directories

    seeds = sorted({each.seed for each in comparison.summaries})
    lines = [
        f"{len(comparison.finished)} finished runs: methods {len(comparison.algorithms)}, "
        f"environments {len(comparison.environments)}, seeds {', '.join(map(str, seeds))}; "
        f"{num_episodes} episodes to read."
    ]
    unfinished = len(comparison.summaries) - len(comparison.finished)
    if unfinished:
        lines.append(f"Not finished: {unfinished}. These runs are left out of all figures and tables.")
    unmoved = [each for each in comparison.finished if not each.has_moved]
    if unmoved:
        names = "; ".join(f"{each.algorithm} in {each.environment}, seed {each.seed}" for each in unmoved)
        lines.append(f"The policy never moved: {len(unmoved)} runs, no update of which changed a weight: {names}.")
    silent = [(each, each.silent_since) for each in comparison.finished]
    told = [
        f"{each.algorithm} in {each.environment}, seed {each.seed}: from update {since} on, at a return of "
        f"{each.learning_curve('update')[1][-1]:.3g}"
        for each, since in silent
        if since is not None
    ]
    if told:
        lines.append(
            f"Learned nothing any more: {len(told)} runs ended with updates in which all episodes of a group had the "
            f"same return, solved or lost for good: {'; '.join(told)}."
        )
    undiagnosed = sum(each.writes_text and not each.diagnostics for each in comparison.finished)
    if undiagnosed:
        lines.append(f"Without diagnostics: {undiagnosed}. Their episodes lack raw_advantage and return_to_go.")
    lines += [f"Failed: {path.relative_to(directory)}" for path in failed_directories(directory)]
    return lines


def plain(text: str) -> Text:
    """Text of the runs' files, which is neither markup nor control characters to the terminal."""
    return Text(shown(text))


def print_table(content: TableOfText, console: Console) -> None:
    """Print a table in the terminal."""
    header, title, note = map(plain, content.header), plain(content.title), plain(content.note)
    table = Table(*map(Column, header), title=title, title_justify="left", caption=note)
    for row in content.rows:
        table.add_row(*map(plain, row))
    console.print(table)
