"""Loggers: rows as lines of JSON, and on request metrics to Weights & Biases and TensorBoard."""

from __future__ import annotations

import importlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol

from ..._errors import UserError
from ..._json import parse_json
from .files import DamagedRunError

Sink = Literal["wandb", "tensorboard"]
WANDB_FILE = "wandb_id.txt"


class Logger(Protocol):
    """Takes the metrics of one update."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record metrics of a step; steps increase from call to call."""

    def close(self) -> None:
        """Write buffered metrics and close."""


class JsonLines:
    """Appends one JSON object per line; numbers that are not finite become null.

    Args:
        path: path of the file, which the first line creates.
        num_lines: lines that the file holds already.
    """

    def __init__(self, path: Path, num_lines: int = 0):
        self.path = path
        self.num_lines = num_lines

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append all rows in one write, so that a killed run leaves whole lines."""
        lines = [json.dumps(_finite(row), ensure_ascii=False) + "\n" for row in rows]
        with self.path.open("a", encoding="utf-8", errors="backslashreplace", newline="") as file:
            file.write("".join(lines))
        self.num_lines += len(lines)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.write([{"update": step, **metrics}])

    def close(self) -> None:
        """Nothing is buffered."""


class WandbLogger:
    """Logs to Weights & Biases, which its environment variables (WANDB_MODE=offline, …) configure.

    The run's id there is kept in the folder, so that a resumed run goes on with its curves; what it logs again, up to
    the last step that arrived, is ignored there.
    """

    def __init__(self, directory: Path, config: Mapping[str, Any], project: str = "collm"):
        import wandb

        file = directory / WANDB_FILE
        known = file.read_text(encoding="utf-8").strip() if file.is_file() else None
        place = {"project": project, "dir": str(directory), "name": directory.name, "config": dict(config)}
        self._run = wandb.init(**place) if known is None else wandb.init(**place, id=known, resume="allow")
        file.write_text(f"{self._run.id}\n", encoding="utf-8")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


class TensorboardLogger:
    """Writes event files into the run's folder.

    Args:
        directory: folder of the run.
        update: updates done; what an interrupted run has logged after them is hidden.
    """

    def __init__(self, directory: Path, update: int = 0):
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(directory / "tensorboard"), purge_step=update + 1 if update else None)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


def check_sinks(sinks: Sequence[Sink]) -> None:
    """Refuse sinks whose package is missing.

    Raises:
        UserError: naming the package and how to install it.
    """
    for sink in sinks:
        try:
            importlib.import_module("wandb" if sink == "wandb" else "torch.utils.tensorboard")
        except ImportError as error:
            raise UserError(f"--log {sink} needs a package: pip install 'collm[{sink}]' ({error})") from error


def make_loggers(directory: Path, sinks: Sequence[Sink], config: Mapping[str, Any], *, update: int = 0) -> list[Logger]:
    """A logger for each sink besides the run's own records.

    Args:
        update: updates that a resumed run has done.

    Raises:
        UserError: if a sink's package is missing; the message says what to install.
    """
    check_sinks(sinks)
    loggers: list[Logger] = []
    for sink in sinks:
        loggers.append(WandbLogger(directory, config) if sink == "wandb" else TensorboardLogger(directory, update))
    return loggers


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON-lines file; a last line cut off by a crash is left out.

    Raises:
        UserError: if a line is no JSON object; names the file and the line.
    """
    return [row for row, _ in each_line(path)]


def each_line(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """One row of a JSON-lines file after the other, with the number of bytes up to its end; never the whole file.

    A line ends at a line feed and nowhere else: texts hold other separators, such as U+2028, as they are.

    Raises:
        UserError: if a line is no JSON object; names the file and the line.
    """
    end = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            end += len(line)
            yield parse_json(line.rstrip(b"\n"), path, number), end


def cut_lines(path: Path, update: int, num_lines: int) -> int:
    """Cut the rows after an update off, which a resumed run writes again; returns how many are left.

    Args:
        update: last update to keep.
        num_lines: rows up to that update, as the run has counted them; what comes after them is not read.

    Raises:
        UserError: if a row among them is damaged; names the file and the line.
    """
    if not path.exists():
        return 0
    kept = end = 0
    for row, line_end in islice(each_line(path), num_lines):
        number = row.get("update")
        if not isinstance(number, int):
            raise _damaged(path, kept + 1, "it names no update")
        if number > update:
            break
        kept, end = kept + 1, line_end
    os.truncate(path, end)
    return kept


def _damaged(path: Path, number: int, fault: str) -> DamagedRunError:
    return DamagedRunError(f"{path}, line {number}, is damaged: {fault}; delete or mend the line")


def _finite(value: Any) -> Any:
    """The value with null in place of nan and infinity, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value
