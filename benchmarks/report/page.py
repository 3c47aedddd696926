"""Page of a report as one HTML file that loads nothing from the network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files

from .episodes import CHUNK_SIZE, Library
from .figures import COLOURS, Chart, Section, svg
from .headline import Headline
from .tables import Estimate, TableOfText

COMPARED = "Paired differences"  # title of the table and the figures that are shown unfolded below the headline
ASSETS = files(__package__) / "assets"
SCRIPTS = ("tables.js", "episodes.js")
LEGENDS = {
    "highest": "Bold: the highest of its column. Underlined: its interval overlaps the highest one's.",
    "lowest": "Bold: the lowest of its column. Underlined: its interval overlaps the lowest one's.",
}
# Texts of models can contain hostile scripts, so the policy allows only the page's own scripts, by their hashes.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src "


@dataclass(frozen=True, kw_only=True)
class Contents:
    title: str
    lead: Sequence[str]  # short lines below the headline
    headline: Headline
    figures: Sequence[Section]
    results: Sequence[TableOfText]
    settings: Sequence[TableOfText]
    methods: Sequence[str]  # all methods; the order determines their colours
    library: Library


def page(contents: Contents) -> str:
    scripts = ["\n" + (ASSETS / name).read_text("utf-8") for name in SCRIPTS]
    hashes = [hashlib.sha256(script.encode()).digest() for script in scripts]
    colours = "".join(
        f"--method-{place}: light-dark({colour}, color-mix(in oklab, {colour} 62%, white)); "
        for place, colour in enumerate(COLOURS)
    )
    compared = next((each for each in contents.figures if each.title.startswith(COMPARED)), None)
    folded = list(_folded(contents, compared))
    lead = "".join(f"<p>{html.escape(line)}</p>" for line in contents.lead)
    library = {"runs": contents.library.runs, "index": contents.library.index, "chunkSize": CHUNK_SIZE}
    index = json.dumps(library, ensure_ascii=False, separators=(",", ":"))
    parts = {
        "TITLE": html.escape(contents.title),
        "SENTENCE": html.escape(contents.headline.sentence),
        "HEADFIGURES": _illustrated(
            f'{_note(contents.headline.note)}<div class="lead">{lead}</div>',
            _figures(contents.headline.charts, contents.methods),
        ),
        "POLICY": POLICY + " ".join(f"'sha256-{base64.b64encode(each).decode()}'" for each in hashes),
        "COMPARISON": "" if compared is None else _comparison(compared, contents),
        "NAVIGATION": "".join(f'<a href="#{_anchor(name)}">{html.escape(name)}</a>' for name, _ in folded),
        "SECTIONS": "".join(
            f'<details class="section" id="{_anchor(name)}"><summary><h2>{html.escape(name)}</h2></summary>'
            f"{content}</details>"
            for name, content in folded
        ),
        "INDEX": index.replace("<", "\\u003c"),  # so that no text can close the script element
        "CHUNKS": "".join(
            f'<script type="text/plain" id="chunk-{number}">{chunk}</script>\n'
            for number, chunk in enumerate(contents.library.chunks)
        ),
        "STYLE": f":root {{ {colours}}}\n" + (ASSETS / "page.css").read_text("utf-8"),
        "SCRIPTS": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    return re.sub(r"{{(\w+)}}", lambda found: parts[found[1]], (ASSETS / "page.html").read_text("utf-8"))


def _folded(contents: Contents, compared: Section | None) -> Iterator[tuple[str, str]]:
    for section in contents.figures:
        if section is not compared:
            yield section.title, _illustrated(_note(section.note), _figures(section.charts, contents.methods))
    yield "Tables", _tables(table for table in contents.results if table.title != COMPARED)
    yield "Settings and cost", _tables(contents.settings)


def _comparison(section: Section, contents: Contents) -> str:
    tables = "".join(_table(table) for table in contents.results if table.title == COMPARED)
    folded = f"<details><summary>The same as a table</summary>{tables}</details>" if tables else ""
    drawn = _illustrated(_note(section.note) + folded, _figures(section.charts, contents.methods))
    return f'<section id="comparison"><h2>One method against the others</h2>{drawn}</section>'


def _illustrated(text: str, figures: str) -> str:
    """Place figures and the text about them. On wide screens, page.css places them side by side."""
    return f'<div class="illustrated">{figures}<div class="beside">{text}</div></div>'


def _tables(found: Iterable[TableOfText]) -> str:
    return f'<div class="tables">{"".join(map(_table, found))}</div>'


def _note(text: str) -> str:
    return f'<p class="note">{html.escape(text)}</p>'


def _figures(charts: Sequence[Chart], methods: Sequence[str]) -> str:
    return f'<div class="figures">{"".join(f"<figure>{svg(chart, methods)}</figure>" for chart in charts)}</div>'


def _table(table: TableOfText) -> str:
    marks = table.marks()
    head = "".join(
        f'<th scope="col"><button type="button" class="sort">{html.escape(cell or "method")}</button></th>'
        for cell in table.header
    )
    rows = "".join(
        # Line breaks inside a name, for narrow screens.
        f'<tr><th scope="row">{html.escape(row[0]).replace("_", "_<wbr>").replace(".", ".<wbr>")}</th>'
        + "".join(_cell(cell, marks.get((number, column), "")) for column, cell in enumerate(row[1:], 1))
        + "</tr>"
        for number, row in enumerate(table.rows)
    )
    title = html.escape(table.title)
    note = _note(" ".join(filter(None, [table.note, LEGENDS.get(table.best or "")])))
    return (
        f'<div class="{"table broad" if len(table.header) > 3 else "table"}"><h3>{title}</h3>{note}'
        f'<div class="wide" tabindex="0" role="region" aria-label="{title}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></div>"
    )


def _cell(cell: str, mark: str) -> str:
    value = f' data-value="{cell.interval.value:.10g}"' if isinstance(cell, Estimate) else ""
    name = f' class="{mark}"' if mark else ""
    return f"<td{name}{value}>{html.escape(cell)}</td>"


def _anchor(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower())
