"""Extraction of Python code from completions, which may contain prose, code blocks, or incomplete code."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from .syntax import parsed

_FENCE = re.compile(r"[ \t]*(?P<mark>`{3,}|~{3,})[ \t]*(?P<language>[\w+.#-]*)[ \t]*")
_PYTHON = {"", "python", "python3", "py"}
_START = re.compile(
    r"[ \t]*(?:(?P<definition>@|(?:async[ \t]+)?def\b|class\b)|import\b|from\b|[A-Za-z_]\w*[ \t]*=[^=])"
)
_CONTINUATION = re.compile(r"[ \t]*(?:[)\]}]|(?:elif|else|except|finally)\b)")
_MAX_PARSES = 64  # per completion: limits the time for a text with many broken definitions


@dataclass(frozen=True)
class Code:
    """Code that was extracted from a completion."""

    statements: tuple[ast.stmt, ...] = ()  # top-level statements that parse, in order
    broken: str = ""  # text of definitions that do not parse


def code_in(completion: str) -> Code:
    """Extract the code of Python code blocks. Without code blocks: all definitions, imports and assignments."""
    answer = completion.replace("\r\n", "\n")
    budget = iter(range(_MAX_PARSES))
    blocks = [_parsed_text(block, budget) for block in _fenced_blocks(answer)]
    if any(block.statements or block.broken for block in blocks):
        return Code(
            tuple(statement for block in blocks for statement in block.statements),
            "\n".join(block.broken for block in blocks if block.broken),
        )
    return _parsed_text(re.sub(r"(?:`{3,}|~{3,})(?:python3?\b|py\b)?[ \t]*", "\n", answer), budget)


def _parsed_within(budget: Iterator[int], text: str) -> list[ast.stmt] | None:
    return None if next(budget, None) is None else parsed(text)


def _fenced_blocks(text: str) -> Iterator[str]:
    """Yield the contents of Python code blocks. A block without a closing fence ends at the end of the text."""
    lines: list[str] = []
    mark, language = "", ""
    for line in text.split("\n"):
        fence = _FENCE.fullmatch(line)
        if not mark and fence:
            mark, language, lines = fence["mark"], fence["language"].lower(), []
        elif mark and fence and fence["mark"].startswith(mark) and not fence["language"]:
            if language in _PYTHON:
                yield "\n".join(lines)
            mark = ""
        elif mark:
            lines.append(line)
    if mark and language in _PYTHON:
        yield "\n".join(lines)


def _parsed_text(text: str, budget: Iterator[int]) -> Code:
    statements = _parsed_within(budget, textwrap.dedent(text))
    return _islands(text.split("\n"), budget) if statements is None else Code(tuple(statements))


def _islands(lines: list[str], budget: Iterator[int]) -> Code:
    """Extract definitions, imports and assignments from lines of prose."""
    statements: list[ast.stmt] = []
    broken: list[str] = []
    at = 0
    while at < len(lines):
        start = _START.match(lines[at])
        if not start:
            at += 1
            continue
        end, found = _island(lines, at, budget, is_definition=bool(start["definition"]))
        if found is None:
            end = _end(lines, at, at + 1)
            if start["definition"]:
                broken.append("\n".join(lines[at:end]))
        statements += found or ()
        at = end
    return Code(tuple(statements), "\n".join(broken))


def _island(lines: list[str], at: int, budget: Iterator[int], is_definition: bool) -> tuple[int, list[ast.stmt] | None]:
    """Parse the statements that begin at line `at`. Return the number of the next line, and the statements or None."""
    end = at
    for _ in range(8 if is_definition else 4):  # add lines: a multi-line string may have lines without indentation
        if end == len(lines):
            break
        end = _end(lines, at, end + 1)
        found = _parsed_within(budget, textwrap.dedent("\n".join(lines[at:end])))
        if found is not None:
            return end, found
    return at + 1, None


def _end(lines: list[str], at: int, after: int) -> int:
    """Return the number of the first line, from `after` on, outside of the statement that begins at line `at`."""
    indent = _indent(lines[at])
    is_decorator = lines[after - 1].lstrip().startswith("@")
    for number in range(after, len(lines)):
        line = lines[number]
        is_inside = not line.strip() or _indent(line) > indent or _CONTINUATION.match(line)
        if not is_inside and not is_decorator:
            return number
        is_decorator = line.lstrip().startswith("@")
    return len(lines)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))
