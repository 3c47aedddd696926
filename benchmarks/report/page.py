"""The page of a report as one HTML file: no network, no build step, no library."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from .episodes import CHUNK_SIZE, Library
from .tables import TableOfText

CAPTIONS = {
    "Learning curves against environment steps": "Mean training return over seeds, smoothed over five updates; band: "
    "95 % Student interval of the mean, point by point.",
    "Learning curves against generated tokens": "The same runs against the tokens that their agents generated.",
    "Learning curves against seconds": "The same runs against wall time of collecting and learning, one thread each.",
    "Final scores": "Held-out return at the end: each seed (dots), their mean (bar) and its 95 % interval.",
    "Steps to a threshold": "Environment steps until the mean training return of five updates reached the threshold: "
    "each seed (dots), their median (bar) and its 95 % interval. In the grey strip: not within the budget.",
    "Performance profiles": "Share of all runs above each return; band: 95 %, point by point.",
    "Explained variance of the critics": "1 - Var(return - value) / Var(return) in the last third of training; 1 is "
    "perfect, 0 is no better than a constant.",
    "Spread of the advantages": "Mean square of the advantages before normalization, in the last third of "
    "training; the noise of the policy gradient grows with it.",
}


def page(
    title: str,
    lead: Sequence[str],
    results: Sequence[TableOfText],
    figures: Mapping[str, Sequence[Path]],
    settings: Sequence[TableOfText],
    library: Library,
) -> str:
    """The whole page.

    Args:
        title: heading of the page.
        lead: short lines below the title.
        results, settings: tables, above and below the figures.
        figures: PNG files by section.
        library: the episodes.
    """
    assets = files(__package__)
    sections = [("Results", "".join(_table(table) for table in results))]
    sections += [(name, _figures(name, paths)) for name, paths in figures.items()]
    sections.append(("Settings", "".join(_table(table) for table in settings)))
    parts = {
        "TITLE": html.escape(title),
        "LEAD": "".join(f"<p>{html.escape(line)}</p>" for line in lead),
        "NAVIGATION": "".join(f'<a href="#{_anchor(name)}">{html.escape(name)}</a>' for name, _ in sections),
        "SECTIONS": "".join(
            f'<section id="{_anchor(name)}"><h2>{html.escape(name)}</h2>{content}</section>'
            for name, content in sections
        ),
        "INDEX": _script_json({"runs": library.runs, "index": library.index, "chunkSize": CHUNK_SIZE}),
        "CHUNKS": "".join(
            f'<script type="text/plain" id="chunk-{number}">{chunk}</script>\n'
            for number, chunk in enumerate(library.chunks)
        ),
        "STYLE": (assets / "page.css").read_text(encoding="utf-8"),
        "SCRIPT": (assets / "page.js").read_text(encoding="utf-8"),
    }
    text = (assets / "page.html").read_text(encoding="utf-8")
    # One pass, so that nothing inside a part is taken for the name of another.
    pieces = text.split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        filled += [parts[name], rest]
    return "".join(filled)


def _table(table: TableOfText) -> str:
    head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in table.header)
    rows = "".join(
        f'<tr><th scope="row">{_breakable(row[0])}</th>'
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in table.rows
    )
    return (
        f"<h3>{html.escape(table.title)}</h3><p class=note>{html.escape(table.note)}</p>"
        f'<div class=wide tabindex=0 role=region aria-label="{html.escape(table.title)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _breakable(name: str) -> str:
    """A name that a narrow screen may break between its words."""
    return html.escape(name).replace("_", "_<wbr>").replace(".", ".<wbr>")


def _figures(section: str, paths: Sequence[Path]) -> str:
    pictures = "".join(
        f'<img alt="{html.escape(f"{section}: {path.stem}")}" loading=lazy width=676 height=507 '
        f'src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}">'
        for path in paths
    )
    return f"<p class=note>{html.escape(CAPTIONS[section])}</p><div class=figures>{pictures}</div>"


def _anchor(name: str) -> str:
    return name.lower().replace(" ", "-")


def _script_json(value: object) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
