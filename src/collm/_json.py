"""JSON files of people and of runs: a fault names the file and the line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from ._errors import UserError

MAX_DEPTH = 100
"""Deepest nesting of arrays and objects. Code that goes through values by recursion would fail on deeper ones."""


def read_json(path: Path) -> dict[str, Any]:
    """Object in a JSON file.

    Raises:
        FileNotFoundError: if there is no such file.
        UserError: if it holds something else; with the file, the line and the fault.
    """
    refuse_device(path)
    return parse_json(path.read_bytes(), path)


def refuse_device(path: Path) -> None:
    """Refuse a pipe or a device, which never ends or never begins, in place of a file.

    Raises:
        UserError: naming the path.
    """
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is no file; repair or delete it")


@contextmanager
def explained_content(path: Path) -> Iterator[None]:
    """Turn errors about the content of a file, or of a folder's files, into a `UserError` that names it.

    Raises:
        UserError: in place of the errors that code raises which expects other types, names or shapes.
    """
    try:
        yield
    except UserError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        said = " ".join(str(error).split())[:300]
        raise UserError(f"{path} is not what a run writes ({type(error).__name__}: {said}); repair it") from error


def parse_json(content: bytes | str, path: Path, first_line: int = 1) -> dict[str, Any]:
    """Object in a text that was read from a file.

    Args:
        content: text of the object.
        path: file, for the message.
        first_line: number of the text's first line in the file.

    Raises:
        UserError: if it is not one; with the file, the line and the fault.
    """
    try:
        text = content if isinstance(content, str) else content.decode("utf-8")
        found = json.loads(text)
        is_deep = text.count("[") + text.count("{") > MAX_DEPTH and _is_deeper(found, MAX_DEPTH)
    except RecursionError:
        is_deep = True
    except json.JSONDecodeError as error:
        fault = "it is empty" if not content.strip() else f"{error.msg}, column {error.colno}"
        raise UserError(
            f"{path}, line {first_line + error.lineno - 1}: no JSON: {fault}; repair or delete it"
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}, from line {first_line}: no UTF-8 text: {error.reason}; repair or delete it"
        ) from error
    except ValueError as error:  # a whole number of more digits than Python reads
        raise UserError(f"{path}, from line {first_line}: {error}; repair or delete it") from error
    if is_deep:
        raise UserError(
            f"{path}, line {first_line}: arrays and objects are nested more than {MAX_DEPTH} deep; repair or delete it"
        )
    if not isinstance(found, dict):
        raise UserError(f"{path}, line {first_line}: a JSON object is expected, found {type(found).__name__}")
    return found


def _is_deeper(value: Any, depth: int) -> bool:
    """Whether arrays and objects are nested deeper, found without recursion."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(depth):
        items = chain.from_iterable(each.values() if isinstance(each, dict) else each for each in level)
        level = [item for item in items if type(item) in (dict, list)]
        if not level:
            return False
    return True
