"""Results of the plan: a file per part, written after every measurement, so that a broken run goes on where it was."""

from __future__ import annotations

import gc
import json
import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch

from ...._errors import UserError
from ...._ownership import write_text
from ...markdown import markdown_table
from ..timing import Spread, Watch
from .machine import facts, name

Cell: TypeAlias = str | bool | int | float | Spread | None
Row: TypeAlias = Mapping[str, Cell]
HEADER = "machine.json"
TABLES = "README.md"


@dataclass(frozen=True)
class Setting:
    """Where and how large the plan is run."""

    device: torch.device
    is_tiny: bool
    """Use shapes that a CPU computes in seconds: the scripts are tried out, not the device."""
    num_rounds: int = 5

    def size(self, full: int, tiny: int) -> int:
        return tiny if self.is_tiny else full


@dataclass(frozen=True)
class Part:
    """A part of the plan: measurements by name, each of which makes what it needs and gives it back."""

    name: str
    title: str
    measurements: Callable[[Setting], Mapping[str, Callable[[], Row]]]


class Results:
    """The folder of results of one device.

    Raises:
        UserError: if the folder holds results of another device or size.
    """

    def __init__(self, folder: Path, setting: Setting):
        self.folder = folder
        self.setting = setting
        header, own = folder / HEADER, {"device": name(setting.device), "is_tiny": setting.is_tiny}
        if not header.exists():
            write_text(folder, HEADER, json.dumps(facts(setting.device) | own, indent=2) + "\n")
        found = json.loads(header.read_text())
        if any(found[key] != value for key, value in own.items()):
            raise UserError(
                f"{folder} holds results of {found['device']}{' (tiny)' if found['is_tiny'] else ''}, but this is "
                f"{own['device']}{' (tiny)' if setting.is_tiny else ''}; give another --out"
            )
        self.header = found

    def rows(self, part: Part) -> dict[str, dict[str, Any]]:
        """What was measured of a part so far, by measurement."""
        file = self.folder / f"{part.name}.json"
        found: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.exists() else {}
        return found

    def left(self, part: Part) -> list[str]:
        """Names of the measurements that are still to be made, those that failed included."""
        done = {what for what, row in self.rows(part).items() if "error" not in row}
        return [what for what in part.measurements(self.setting) if what not in done]

    def measure(self, part: Part, what: str) -> dict[str, Any]:
        """Make one measurement and keep it: too little memory is a finding, other errors are kept with tracebacks."""
        watch = Watch()
        watch.look()
        start = time.perf_counter()
        try:
            row: dict[str, Any] = dict(part.measurements(self.setting)[what]())
        except torch.OutOfMemoryError as error:
            row = {"outcome": "out of memory", "detail": str(error).splitlines()[0]}
        except Exception as error:
            row = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
        gc.collect()
        if self.setting.device.type == "cuda":
            torch.cuda.empty_cache()
        watch.look()
        row |= {"seconds": round(time.perf_counter() - start, 2), "other_load": max(watch.loads)}
        kept = self.rows(part) | {what: row}
        write_text(self.folder, f"{part.name}.json", json.dumps(_plain(kept), indent=2) + "\n")
        return row

    def write_tables(self, parts: Sequence[Part]) -> Path:
        """All tables that there is something for, as one page."""
        facts_of = "\n".join(f"* {key}: {value}" for key, value in self.header.items())
        pieces = [f"# One GPU, measured\n\n{facts_of}"]
        pieces += [f"## {part.title}\n\n{table(rows)}\n\n{_load(rows)}" for part in parts if (rows := self.rows(part))]
        write_text(self.folder, TABLES, "\n\n".join(pieces) + "\n")
        return self.folder / TABLES


HIDDEN = ("traceback", "detail", "other_load", "seconds")


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Rows as Markdown, with a column for everything that any of them has."""
    columns = list(dict.fromkeys(key for row in rows.values() for key in row if key not in HIDDEN))
    cells = [(what, *(_shown(row.get(column)) for column in columns)) for what, row in rows.items()]
    return markdown_table(("", *columns), cells)


def _load(rows: Mapping[str, Mapping[str, Any]]) -> str:
    watch = Watch()
    watch.loads = [row["other_load"] for row in rows.values() if row["other_load"] is not None]
    return watch.verdict()


def _shown(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, dict):
        return f"{_number(cell['median'])} ({_number(cell['minimum'])}-{_number(cell['maximum'])})"
    if isinstance(cell, bool):
        return "yes" if cell else "**no**"
    return _number(cell) if isinstance(cell, float) else str(cell)


def _number(value: float) -> str:
    if value != 0 and (abs(value) < 1e-2 or not math.isfinite(value)):
        return f"{value:.2g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _plain(value: Any) -> Any:
    if isinstance(value, Spread):
        return asdict(value)
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value
