"""Tables as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as lines of Markdown, without a last line break.

    Args:
        header: names of the columns.
        rows: cells, as many per row as there are columns.
    """
    return "\n".join(_line(cells) for cells in (header, ["---"] * len(header), *rows))


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
