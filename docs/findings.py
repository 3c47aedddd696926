"""`python docs/findings.py` writes the tables of docs/findings.md and its figures anew, from committed summaries alone.

The page is written by hand but for what stands between `<!-- table: NAME -->` and `<!-- end -->`. Where the summaries
of a suite are not committed, its tables say so and its figures are not drawn. They come there by

    collm report RUNS --contrasts shift --out benchmarks/results/shift
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from collm.benchmarks.comparison.suite import Contrast, read_suite
from collm.benchmarks.comparison.summaries import RunSummary, in_order, kept_summaries
from collm.benchmarks.report.comparison import Comparison
from collm.benchmarks.report.contrasts import SUCCESS, Finding, contrast_table, findings, run_score, student_test
from collm.benchmarks.report.curves import mean_curve
from collm.benchmarks.report.search import search
from collm.benchmarks.report.tables import TableOfText, collapses, final_scores, sample_efficiency, wasted

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = Path(__file__).with_name("findings.md")
IMAGES = Path(__file__).with_name("images")
BLOCK = re.compile(r"(<!-- table: (?P<name>[\w+ ]+) -->\n)(?P<text>.*?)(<!-- end -->)", re.DOTALL)


def comparison(suite: str, results: Path = RESULTS) -> Comparison | None:
    """The finished runs of a suite with committed summaries, or of several, "SUITE+SUITE"; None where one has none."""
    folders = [results / name for name in suite.split("+")]
    if not all((folder / "summaries.jsonl").is_file() for folder in folders):
        return None
    return Comparison(in_order([run for folder in folders for run in kept_summaries(folder)]))


def tables_of(suite: str, found: Comparison) -> dict[str, TableOfText]:
    """The tables that the page may show, by the second word of their names; contrasts are those of the last suite."""
    contrasts: Sequence[Contrast] = read_suite(Path(suite.split("+")[-1])).contrasts
    results = findings(contrasts, found)
    return {
        "contrasts": contrast_table(results),
        "primary": contrast_table([each for each in results if each.contrast.is_primary]),
        "sampled": final_scores(found, "sampled"),
        "greedy": final_scores(found, "greedy"),
        "steps": sample_efficiency(found, "environment_steps"),
        "tokens": sample_efficiency(found, "sampled_tokens"),
        "collapses": collapses(found),
        "wasted": wasted(found),
        "search": search(found),
    }


def filled(page: str, blocks: Mapping[str, str]) -> str:
    """The page with the texts between the marks replaced.

    Raises:
        KeyError: naming a table that does not exist.
    """

    def block(match: re.Match[str]) -> str:
        if match["name"] not in blocks:
            raise KeyError(f"docs/findings.md has a table {match['name']!r}; there are {', '.join(sorted(blocks))}")
        return f"{match[1]}\n{blocks[match['name']].strip()}\n\n{match[4]}"

    return BLOCK.sub(block, page)


def blocks(names: Sequence[str], results: Path = RESULTS) -> dict[str, str]:
    """Texts of the named tables, each "SUITE TABLE" or "SUITE+SUITE TABLE"."""
    found: dict[str, str] = {}
    for suite in dict.fromkeys(name.split()[0] for name in names):
        own = [name for name in names if name.split()[0] == suite]
        runs = comparison(suite, results)
        if runs is None:
            found |= dict.fromkeys(own, f"No runs of the suite `{suite}` are committed yet.")
            continue
        known = tables_of(suite, runs)
        for name in own:
            table = known.get(name.split()[1])
            if table is not None:
                found[name] = table.markdown() if table.rows else "None."
    return found


def draw_curves(found: Comparison, file: Path) -> None:
    """Share of successful episodes over the episodes, a panel per task, mean over seeds with 95 % intervals."""
    rows = -(-len(found.environments) // 3)
    columns = -(-len(found.environments) // rows)
    figure = Figure(figsize=(4.2 * columns, 3.4 * rows + 0.4), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True).flatten()[: len(found.environments)]
    for axes, environment in zip(panels, found.environments, strict=True):
        for number, algorithm in enumerate(found.algorithms):
            runs = found.runs(algorithm, environment)
            curves = [(each.curve("environment_steps") / each.curve("turns"), _successes(each)) for each in runs]
            if not curves:
                continue
            grid, mean, reach = mean_curve(curves, 5)
            axes.plot(grid, mean, color=f"C{number}", label=algorithm)
            if reach is not None:
                axes.fill_between(grid, mean - reach, mean + reach, color=f"C{number}", alpha=0.15, linewidth=0)
        axes.set(title=environment, xlabel="episodes", ylim=(0, 1.02))
        axes.grid(alpha=0.3)
    for axes in panels[::columns]:
        axes.set_ylabel("success in training")
    lines = {line.get_label(): line for axes in panels for line in axes.get_lines()}
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=len(lines), frameon=False, fontsize=9)
    figure.savefig(file, dpi=120)


def draw_contrasts(results: Sequence[Finding], file: Path) -> None:
    """Contrasts with their 95 % intervals, primary ones in bold: differences of success or return, ratios below.

    Thick lines are intervals over seeds, thin ones over start checkpoints.
    """
    ratios = [each for each in results if each.contrast.score == "episodes"]
    differences = [each for each in results if each.contrast.score != "episodes"]
    kinds = [(differences, "difference", 0.0), (ratios, "ratio of episodes until four in five succeed", 1.0)]
    kinds = [kind for kind in kinds if kind[0]]
    figure = Figure(figsize=(8.4, 0.34 * len(results) + 0.9 * len(kinds)), layout="constrained")
    heights = [len(shown) + 0.5 for shown, _, _ in kinds]
    panels = figure.subplots(len(kinds), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (shown, said, even) in zip(panels, kinds, strict=True):
        for row, each in enumerate(shown):
            for found, width in ((each.over_starts, 0.8), (each.estimate, 2.5)):
                ends = (found.low, found.value, found.high)
                low, value, high = (2**number for number in ends) if each in ratios else ends
                axes.plot([low, high], [row, row], color="C0", linewidth=width)
            axes.plot(value, row, "o", color="C0")
        axes.axvline(even, color="k", linewidth=1)
        axes.set_yticks(range(len(shown)), [each.contrast.name for each in shown], fontsize=8)
        for label, each in zip(axes.get_yticklabels(), shown, strict=True):
            label.set_fontweight("bold" if each.contrast.is_primary else "normal")
        axes.set(xlabel=said, ylim=(len(shown) - 0.5, -0.5))
        if even:
            axes.set_xscale("log", base=2)
            axes.set_xticks([0.25, 0.5, 0.7, 1, 1.4, 2, 4], ["0.25", "0.5", "0.7", "1", "1.4", "2", "4"])
            axes.set_xticks([], minor=True)
            axes.set_xlim(*(limit**1.05 for limit in _around_one(shown)))
    figure.savefig(file, dpi=120)


def draw_columns(found: Comparison, columns: Mapping[str, Any], said: str, file: Path) -> None:
    """Held-out success at the end by column of the suite, a line per method, mean over seeds with 95 % intervals."""
    figure = Figure(figsize=(6.0, 3.8), layout="constrained")
    axes = figure.subplots()
    for number, algorithm in enumerate(found.algorithms):
        points = []
        for place, (column, x) in enumerate(columns.items()):
            scores = np.array([run_score(run, "success") for run in found.runs(algorithm, column)])
            if len(scores):
                estimate, _ = student_test(scores)
                points.append((x * 1.02 ** (number - len(found.algorithms) / 2), place, estimate))
        if points:
            xs, means = [x for x, _, _ in points], [each.value for *_, each in points]
            ends = [[each.value - each.low for *_, each in points], [each.high - each.value for *_, each in points]]
            axes.errorbar(xs, means, ends, fmt="o-", capsize=2, label=algorithm, color=f"C{number}")
    axes.set_xscale("log")
    axes.set_xticks(list(columns.values()), [f"{x:g}" for x in columns.values()])
    axes.set_xticks([], minor=True)
    axes.set(xlabel=said, ylabel="held-out success", ylim=(0, 1.02))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(file, dpi=120)


def draw(results: Path = RESULTS, images: Path = IMAGES) -> list[Path]:
    """All figures whose summaries are committed; returns their files."""
    drawn: dict[Path, Callable[[], Any]] = {}
    for suite in ("shift", "words", "tuned", "replication", "memory", "presets"):
        if (found := comparison(suite, results)) is not None:
            stated = findings(read_suite(Path(suite)).contrasts, found)
            curves, contrasts = (images / f"{suite}_{kind}.png" for kind in ("curves", "contrasts"))
            drawn[curves] = partial(draw_curves, found, curves)
            drawn[contrasts] = partial(draw_contrasts, stated, contrasts)
    batches = {f"{number} episodes": number for number in (2, 4, 8, 32)}
    rates = {f"rate {rate}": float(rate) for rate in ("5e-5", "1e-4", "2e-4", "5e-4", "1e-3")}
    swept = {"regimes": ("episodes", "episodes per update", batches), "rates": ("swept", "learning rate", rates)}
    for suite, (kind, said, columns) in swept.items():
        if (found := comparison(suite, results)) is not None:
            file = images / f"{suite}_{kind}.png"
            drawn[file] = partial(draw_columns, found, columns, said, file)
    for each in drawn.values():
        each()
    return list(drawn)


def _around_one(ratios: Sequence[Finding]) -> tuple[float, float]:
    """Limits that hold all intervals, 0.5 and 2."""
    found = [interval for each in ratios for interval in (each.estimate, each.over_starts)]
    reach = max(1.0, *(max(-each.low, each.high) for each in found))
    return 2**-reach, 2**reach


def _successes(run: RunSummary) -> Any:
    return run.curve(SUCCESS) * run.curve("turns")


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    names = [match["name"] for match in BLOCK.finditer(page)]
    PAGE.write_text(filled(page, blocks(names)), encoding="utf-8")
    for file in draw():
        print(file.relative_to(ROOT))


if __name__ == "__main__":
    main()
