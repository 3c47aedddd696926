"""Report of runs: read run folders, and write the page, figures as PNG, and tables as Markdown and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from ..._json import explained_content
from ..._ownership import owned, refuse_foreign_files, write_text
from ..._terminal import shown
from ...algorithms.runs.files import CONFIG_FILE
from ..comparison.suite import UNNAMED, Contrast
from ..comparison.summaries import (
    EPISODES_FILE,
    SUMMARIES_FILE,
    RunSummary,
    failed_directories,
    in_order,
    kept_summaries,
    lost_episodes,
    read_episodes,
    run_directories,
    summarize,
    summary_lines,
)
from . import figures
from .comparison import Comparison, marl_eval_json
from .contrasts import contrast_table, findings
from .episodes import pack, slim_episodes
from .headline import headline
from .page import Contents, page
from .published import published_table
from .tables import TableOfText, costs, search, settings, tables

MAX_NAMED = 4  # runs that a line below the headline names


@dataclass(frozen=True)
class Report:
    page: Path
    num_bytes: int
    num_episodes: int
    table: TableOfText  # main results: the search, published results, the contrasts, or the final scores


def write_report(
    summaries: Sequence[RunSummary],
    episodes: Sequence[dict[str, Any]],
    directory: Path,
    out: Path,
    *,
    title: str | None = None,
    contrasts: Sequence[Contrast] = (),
    is_search: bool = False,
    notes: Sequence[str] = (),
) -> Report:
    """Write a report of the summaries and the episodes that `read_comparison` returned.

    Args:
        directory: folder of the runs or of an earlier report.
        title: title of the page. None: the suite, the methods and the environments.
        contrasts: contrasts (planned comparisons) of a suite to estimate and test.
        is_search: add a table with the best entry of each algorithm.
        notes: lines below the headline.

    Raises:
        UserError: if a run is invalid, or if an output file exists that collm did not write.
    """
    is_run = (out / CONFIG_FILE).is_file()  # the report must not overwrite a run's episodes.jsonl
    with explained_content(directory):
        contents = _contents(Comparison(summaries), episodes, directory, title, contrasts, is_search, notes)
        texts = {"report.html": page(contents), "tables.md": _markdown(contents)}
        texts["marl_eval.json"] = json.dumps(marl_eval_json(summaries), indent=1) + "\n"
        if run_directories(directory) and not is_run:
            lines = (json.dumps(each, ensure_ascii=False) + "\n" for each in episodes)
            texts |= {SUMMARIES_FILE: summary_lines(summaries), EPISODES_FILE: "".join(lines)}
        _write_figures(contents, out, texts)
    for name, text in texts.items():
        write_text(out, name, text)
    return Report(out / "report.html", len(texts["report.html"]), len(episodes), contents.results[0])


def _contents(
    comparison: Comparison,
    episodes: Sequence[dict[str, Any]],
    directory: Path,
    title: str | None,
    contrasts: Sequence[Contrast],
    is_search: bool,
    notes: Sequence[str],
) -> Contents:
    first = [search(comparison)] if is_search else []
    first += [table for table in [published_table(comparison)] if table.rows]
    first += [contrast_table(findings(contrasts, comparison))] if contrasts else []
    return Contents(
        title=title or _title(comparison) or directory.resolve().name,
        lead=[*notes, *lead_lines(comparison, directory, len(episodes))],
        headline=headline(comparison),
        figures=figures.sections(comparison),
        results=[*first, *tables(comparison)],
        settings=[costs(comparison), *settings(comparison)],
        methods=comparison.algorithms,
        library=pack(episodes),
    )


def _markdown(contents: Contents) -> str:
    first = contents.headline
    lines = [f"{line}\n" for line in (*contents.lead, first.note) if line]
    found = [table.markdown() for table in [*contents.results, *contents.settings[:2]]]
    return "\n".join([f"## {contents.title}", "", f"**{first.sentence}**\n", *lines, *found])


def _write_figures(contents: Contents, out: Path, others: Iterable[str]) -> None:
    """Write the figures as PNG. Before, refuse to overwrite files of others, also those with the names `others`."""
    groups = [contents.headline.charts, *(section.charts for section in contents.figures)]
    charts = {chart.file: chart for group in groups for chart in group}
    refuse_foreign_files(out, [*others, *charts])
    for name, chart in charts.items():
        with owned(out, name) as new:
            figures.write_png(chart, contents.methods, new)


def _title(comparison: Comparison) -> str:
    """Suite, methods and environments. Empty without a finished run."""
    parts = []
    for noun, names in (("methods", comparison.algorithms), ("environments", comparison.environments)):
        is_long = len(names) > 4 or (len(names) > 1 and any("," in name for name in names))
        listed = " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
        parts.append(f"{len(names)} {noun}" if is_long else listed)
    suites = sorted({each.suite for each in comparison.finished} - {"", UNNAMED})
    return ": ".join([*suites, " in ".join(parts)]) if comparison.finished else ""


def read_comparison(
    directory: Path, max_episodes: int, console: Console
) -> tuple[list[RunSummary], list[dict[str, Any]]]:
    """Read summaries of all runs in a folder, and the same number of episodes per run.

    Raises:
        FileNotFoundError: if the folder contains neither runs nor an earlier report.
        UserError: if a file of a run is incomplete or invalid.
    """
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
    """Most recently changed folder in runs/ that has runs. Raise FileNotFoundError if there is none."""
    found = [path for path in Path("runs").glob("*") if path.is_dir() and run_directories(path)]
    if not found:
        raise FileNotFoundError("runs/ has no runs; give the --out of `collm benchmark` or `collm train`")
    return max(found, key=lambda path: path.stat().st_mtime)


def lead_lines(comparison: Comparison, directory: Path, num_episodes: int) -> list[str]:
    """Lines below the headline: number of runs, and runs that are unfinished, have failed, or did not learn."""
    seeds = sorted({each.seed for each in comparison.summaries})
    lines = [
        f"{len(comparison.finished)} finished runs: methods {len(comparison.algorithms)}, "
        f"environments {len(comparison.environments)}, seeds {', '.join(map(str, seeds))}; "
        f"{num_episodes} episodes in this page."
    ]
    unfinished = len(comparison.summaries) - len(comparison.finished)
    if unfinished:
        lines.append(f"Not finished: {unfinished}. These runs are excluded from all figures and tables.")
    unmoved = [each for each in comparison.finished if each.curves and not each.has_moved]  # without curves: prompted
    if unmoved:
        names = _first([f"{each.algorithm} in {each.environment}, seed {each.seed}" for each in unmoved])
        lines.append(f"The policy never changed: {len(unmoved)} runs, no update of which changed a weight: {names}.")
    silent = [
        f"{each.algorithm} in {each.environment}, seed {each.seed}: from update {since} on, at a return of "
        f"{each.learning_curve('update')[1][-1]:.3g}"
        for each in comparison.finished
        if (since := each.silent_since) is not None
    ]
    if silent:
        lines.append(
            f"Stopped learning: {len(silent)} runs ended with updates in which all episodes of a group had the same "
            f"return, so that every advantage was 0: {_first(silent)}."
        )
    undiagnosed = sum(each.writes_text and not each.diagnostics for each in comparison.finished)
    if undiagnosed:
        lines.append(f"Without diagnostics: {undiagnosed}. Their episodes lack raw_advantage and return_to_go.")
    lines += [f"Failed: {path.relative_to(directory)}" for path in failed_directories(directory)]
    return lines


def _first(names: Sequence[str]) -> str:
    more = [f"and {len(names) - MAX_NAMED} more"] if len(names) > MAX_NAMED else []
    return "; ".join([*names[:MAX_NAMED], *more])
