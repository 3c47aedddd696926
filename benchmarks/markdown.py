"""Formatting of tables as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table as Markdown, without a line break at the end.

    Args:
        header: names of the columns.
        rows: cells of each row, one per column.
    """
    return "\n".join(_line(cells) for cells in (header, ["---"] * len(header), *rows))


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
