"""Reading of JSON files. Error messages contain the file and the line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from ._errors import UserError

MAX_DEPTH = 100  # Maximum nesting of arrays and objects. Recursive functions would fail on deeper values.


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises `UserError` with the file and the line if the content is not a JSON object."""
    refuse_device(path)
    return parse_json(path.read_bytes(), path)


def refuse_device(path: Path) -> None:
    """Raise `UserError` if the path is a pipe or a device, because reading it might never end."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a regular file; replace or delete it")


@contextmanager
def explained_content(path: Path) -> Iterator[None]:
    """Convert errors of unexpected types, names or shapes inside the block into a `UserError` with the path."""
    try:
        yield
    except UserError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        said = " ".join(str(error).split())[:300]
        raise UserError(f"{path} has invalid content ({type(error).__name__}: {said}); repair it") from error


def parse_json(content: bytes | str, path: Path, first_line: int = 1) -> dict[str, Any]:
    """Parse a JSON object from line `first_line` of a file. Raises `UserError` if the text is not a JSON object."""
    try:
        text = content if isinstance(content, str) else content.decode("utf-8")
        found = json.loads(text)
        is_deep = text.count("[") + text.count("{") > MAX_DEPTH and _is_deeper(found, MAX_DEPTH)
    except RecursionError:
        is_deep = True
    except json.JSONDecodeError as error:
        fault = "it is empty" if not content.strip() else f"{error.msg}, column {error.colno}"
        line = first_line + error.lineno - 1
        raise UserError(f"{path}, line {line}: no JSON: {fault}; repair or delete it") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}, from line {first_line}: no UTF-8: {error.reason}; repair or delete it") from error
    except ValueError as error:  # an integer with more digits than Python allows
        raise UserError(f"{path}, from line {first_line}: {error}; repair or delete it") from error
    if is_deep:
        raise UserError(f"{path}, line {first_line}: nested more than {MAX_DEPTH} deep; repair or delete it")
    if not isinstance(found, dict):
        raise UserError(f"{path}, line {first_line}: a JSON object is expected, found {type(found).__name__}")
    return found


def _is_deeper(value: Any, depth: int) -> bool:
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(depth):
        items = chain.from_iterable(each.values() if isinstance(each, dict) else each for each in level)
        level = [item for item in items if type(item) in (dict, list)]
        if not level:
            return False
    return True
