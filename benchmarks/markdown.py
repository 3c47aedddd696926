"""Formatting of tables as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table as Markdown, without a line break at the end. Each row has one cell per column."""
    lines = (header, ["---"] * len(header), *rows)
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in lines)
