"""The page of a report as one HTML file, which needs no network: its data, its scripts and the library that draws."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files

from .charts import COSTS, Section
from .episodes import CHUNK_SIZE, Library
from .figures import COLOURS, SMOOTHING
from .headline import Headline
from .tables import Estimate, TableOfText

COMPARED = "Paired differences"
"""Title of the table that stands unfolded below the headline, with its figure."""
SCRIPTS = ("tables.js", "episodes.js", "d3.min.js", "plot.min.js", "charts.js")
LICENCES = {"d3.min.js": "d3-LICENSE.txt", "plot.min.js": "plot-LICENSE.txt"}
LEGENDS = {
    "highest": "Bold: the highest of its column. Underlined: its interval overlaps the highest one's.",
    "lowest": "Bold: the lowest of its column. Underlined: its interval overlaps the lowest one's.",
}
# All that a page may do is run the scripts it came with, which are named by their hashes: texts of models are hostile.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src "


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What a page is made of."""

    title: str
    lead: Sequence[str]
    """Short lines below the headline."""
    headline: Headline
    figures: Sequence[Section]
    results: Sequence[TableOfText]
    settings: Sequence[TableOfText]
    methods: Sequence[str]
    """Names of all methods, in the order of their colours."""
    reference: str
    """Name of the method that others are compared with at first."""
    library: Library


def page(contents: Contents) -> str:
    """The whole page: the headline and its figure, the comparison, and all else folded."""
    assets = files(__package__) / "assets"
    scripts = [_script(name) for name in SCRIPTS]
    compared = next((each for each in contents.figures if each.title.startswith(COMPARED)), None)
    folded = list(_folded(contents, compared))
    parts = {
        "TITLE": html.escape(contents.title),
        "SENTENCE": html.escape(contents.headline.sentence),
        "HEADNOTE": html.escape(contents.headline.note),
        "LEAD": "".join(f"<p>{html.escape(line)}</p>" for line in contents.lead),
        "POLICY": POLICY + " ".join(f"'sha256-{_hash(script)}'" for script in scripts),
        "COMPARISON": "" if compared is None else _comparison(compared, contents.results),
        "NAVIGATION": "".join(f'<a href="#{_anchor(name)}">{html.escape(name)}</a>' for name, _ in folded),
        "SECTIONS": "".join(
            f'<details class="section" id="{_anchor(name)}"><summary><h2>{html.escape(name)}</h2></summary>'
            f"{content}</details>"
            for name, content in folded
        ),
        "CHARTS": _packed(_charts(contents)),
        "INDEX": _script_json(
            {"runs": contents.library.runs, "index": contents.library.index, "chunkSize": CHUNK_SIZE}
        ),
        "CHUNKS": "".join(
            f'<script type="text/plain" id="chunk-{number}">{chunk}</script>\n'
            for number, chunk in enumerate(contents.library.chunks)
        ),
        "STYLE": (assets / "page.css").read_text(encoding="utf-8"),
        "SCRIPTS": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    # One pass, so that nothing inside a part is taken for the name of another.
    pieces = (assets / "page.html").read_text(encoding="utf-8").split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        filled += [parts[name], rest]
    return "".join(filled)


def _folded(contents: Contents, compared: Section | None) -> Iterator[tuple[str, str]]:
    """Headings and contents of the folded sections."""
    for section in contents.figures:
        if section is not compared:
            yield section.title, _figures(section)
    yield "Tables", "".join(_table(table) for table in contents.results if table.title != COMPARED)
    yield "Settings and cost", "".join(_table(table) for table in contents.settings)


def _comparison(section: Section, results: Sequence[TableOfText]) -> str:
    tables = "".join(_table(table) for table in results if table.title == COMPARED)
    folded = f"<details><summary>The same as a table</summary>{tables}</details>" if tables else ""
    return f'<section id="comparison"><h2>One method against the others</h2>{_figures(section)}{folded}</section>'


def _figures(section: Section) -> str:
    title = html.escape(section.title)
    return f'<p class="note">{html.escape(section.note)}</p><div class="charts" data-section="{title}"></div>'


def _charts(contents: Contents) -> dict[str, object]:
    headline = Section("headline", "", contents.headline.charts)
    return {
        "methods": contents.methods,
        "reference": contents.reference,
        "colours": COLOURS,
        "costs": COSTS,
        "smoothing": SMOOTHING,
        "sections": {each.title: [asdict(chart) for chart in each.charts] for each in (headline, *contents.figures)},
    }


def _table(table: TableOfText) -> str:
    marks = table.marks()
    head = "".join(
        f'<th scope="col"><button type="button" class="sort">{html.escape(cell or "method")}</button></th>'
        for cell in table.header
    )
    rows = "".join(
        f'<tr><th scope="row">{_breakable(row[0])}</th>'
        + "".join(_cell(cell, marks.get((number, column), "")) for column, cell in enumerate(row[1:], 1))
        + "</tr>"
        for number, row in enumerate(table.rows)
    )
    title = html.escape(table.title)
    note = html.escape(" ".join(filter(None, [table.note, LEGENDS.get(table.best or "")])))
    return (
        f'<div class="table"><h3>{title}</h3><p class="note">{note}</p>'
        f'<div class="wide" tabindex="0" role="region" aria-label="{title}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></div>"
    )


def _cell(cell: str, mark: str) -> str:
    value = f' data-value="{cell.interval.value:.10g}"' if isinstance(cell, Estimate) else ""
    name = f' class="{mark}"' if mark else ""
    return f"<td{name}{value}>{html.escape(cell)}</td>"


def _breakable(name: str) -> str:
    """A name that a narrow screen may break between its words."""
    return html.escape(name).replace("_", "_<wbr>").replace(".", ".<wbr>")


def _anchor(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower())


def _script(name: str) -> str:
    """A script, with its licence where it is another's."""
    assets = files(__package__) / "assets"
    text = (assets / name).read_text(encoding="utf-8")
    if name in LICENCES:
        text = f"/*!\n{(assets / LICENCES[name]).read_text(encoding='utf-8')}*/\n{text}"
    return f"\n{text}"


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _packed(value: object) -> str:
    """JSON, gzip, base64: nothing in it can end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode("utf-8", "backslashreplace"), mtime=0)).decode()


def _script_json(value: object) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
