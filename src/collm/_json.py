"""JSON files of people and of runs: a fault names the file and the line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ._errors import UserError


def read_json(path: Path) -> dict[str, Any]:
    """Object in a JSON file.

    Raises:
        FileNotFoundError: if there is no such file.
        UserError: if it holds something else; with the file, the line and the fault.
    """
    return parse_json(path.read_bytes(), path)


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
        found = json.loads(content if isinstance(content, str) else content.decode("utf-8"))
    except json.JSONDecodeError as error:
        fault = "it is empty" if not content.strip() else f"{error.msg}, column {error.colno}"
        raise UserError(
            f"{path}, line {first_line + error.lineno - 1}: no JSON: {fault}; repair or delete it"
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}, from line {first_line}: no UTF-8 text: {error.reason}; repair or delete it"
        ) from error
    if not isinstance(found, dict):
        raise UserError(f"{path}, line {first_line}: a JSON object is expected, found {type(found).__name__}")
    return found
