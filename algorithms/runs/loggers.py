"""Loggers of metrics: always a JSON-lines file, on request Weights & Biases and TensorBoard."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from ..._errors import UserError
from ..._json import parse_json

Sink = Literal["wandb", "tensorboard"]


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
    """

    def __init__(self, path: Path):
        self.path = path

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append all rows in one write, so that a killed run leaves whole lines."""
        text = "".join(json.dumps(_finite(row), ensure_ascii=False) + "\n" for row in rows)
        with self.path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.write([{"update": step, **metrics}])

    def close(self) -> None:
        """Nothing is buffered."""


class WandbLogger:
    """Logs to Weights & Biases, which its environment variables (WANDB_MODE=offline, …) configure."""

    def __init__(self, directory: Path, config: Mapping[str, Any], project: str = "collm"):
        import wandb

        self._run = wandb.init(project=project, dir=str(directory), name=directory.name, config=dict(config))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


class TensorboardLogger:
    """Writes event files into the run's folder."""

    def __init__(self, directory: Path):
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(directory / "tensorboard"))

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


def make_loggers(directory: Path, sinks: Sequence[Sink], config: Mapping[str, Any]) -> list[Logger]:
    """The run's `metrics.jsonl`, and a logger for each sink.

    Raises:
        UserError: if a sink's package is missing; the message says what to install.
    """
    check_sinks(sinks)
    loggers: list[Logger] = [JsonLines(directory / "metrics.jsonl")]
    for sink in sinks:
        loggers.append(WandbLogger(directory, config) if sink == "wandb" else TensorboardLogger(directory))
    return loggers


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON-lines file; a last line cut off by a crash is left out.

    Raises:
        UserError: if a line is no JSON object; with its number.
    """
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [parse_json(line.rstrip("\n"), path, number) for number, line in enumerate(lines, 1) if line.endswith("\n")]


def _finite(value: Any) -> Any:
    """The value with null in place of nan and infinity, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value
