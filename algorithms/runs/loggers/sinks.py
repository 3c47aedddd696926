"""Callbacks that log to Weights & Biases, TensorBoard and trackio."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from ...._errors import UserError
from ...._extras import install_command
from ...._ranges import Also, Checked
from ..files import write_file
from .callbacks import Callback

if TYPE_CHECKING:
    from ..evaluation import Evaluated

Sink = Literal["wandb", "tensorboard", "trackio"]
_PACKAGES: dict[Sink, str] = {"wandb": "wandb", "tensorboard": "torch.utils.tensorboard", "trackio": "trackio"}
WANDB_FILE = "wandb_id.txt"


@dataclass(frozen=True, kw_only=True)
class LogConfig(Checked):
    """Services that a run logs to."""

    # Logging.

    log: Annotated[tuple[Sink, ...], Also("report_to")] = ()
    """Services that metrics are sent to, in addition to metrics.jsonl. The environment variables WANDB_PROJECT,
    WANDB_NAME, WANDB_ENTITY, WANDB_RUN_GROUP and WANDB_TAGS label the run."""


class WandbLogger(Callback):
    """Callback that logs to Weights & Biases, which reads its environment variables (WANDB_ENTITY, …).

    The id of the W&B run is stored in the folder, so that a resumed run continues its curves. W&B ignores steps that
    are logged again.
    """

    def __init__(self, directory: Path, config: Mapping[str, Any]):
        import wandb

        self._wandb = wandb
        file = directory / WANDB_FILE
        known = file.read_text(encoding="utf-8").strip() if file.is_file() else None
        resumed: dict[str, Any] = {} if known is None else {"id": known, "resume": "allow"}
        self._run = wandb.init(**_names(directory), **resumed, dir=str(directory), config=dict(config))
        write_file(file, f"{self._run.id}\n")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def log_evaluation(self, step: int, evaluated: Evaluated) -> None:
        shown: dict[str, Any] = dict(evaluated.metrics)
        for name, returns in evaluated.returns.items():
            shown[f"evaluation/{name}/returns"] = self._wandb.Histogram(list(returns))
        if evaluated.transcripts:
            rows = [list(row) for row in evaluated.transcripts]
            columns = ["played", "seed", "return", "agent", "text"]
            shown["evaluation/transcripts"] = self._wandb.Table(columns=columns, data=rows)
        if evaluated.animation is not None:
            shown["evaluation/world"] = self._wandb.Video(str(evaluated.animation), format="gif")
        self._run.log(shown, step=step)

    def close(self) -> None:
        self._run.finish()


class TensorboardLogger(Callback):
    """Callback that writes TensorBoard files. A resumed run hides earlier events of updates after `update`."""

    def __init__(self, directory: Path, update: int = 0):
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(directory / "tensorboard"), purge_step=update + 1 if update else None)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def log_evaluation(self, step: int, evaluated: Evaluated) -> None:
        self.log(step, evaluated.metrics)
        for name, returns in evaluated.returns.items():
            # The default bins are fixed; "auto" adapts them to the returns.
            self._writer.add_histogram(
                f"evaluation/{name}/returns", np.asarray(returns, dtype=np.float64), step, bins="auto"
            )
        for played, seed, earned, agent, text in evaluated.transcripts:
            heading = f"{played}, seed {seed}, return {earned:.3f}"
            code = "\n".join(f"    {line}" for line in text.splitlines())  # a Markdown code block
            self._writer.add_text(f"transcripts/{played}/{agent}", f"{heading}\n\n{code}", step)
        if evaluated.animation is not None:
            self._add_animation("evaluation/world", evaluated.animation, step)

    def close(self) -> None:
        self._writer.close()

    def _add_animation(self, name: str, path: Path, step: int) -> None:
        # As an image, because `add_video` needs moviepy.
        from PIL import Image
        from tensorboard.compat.proto.summary_pb2 import Summary

        with Image.open(path) as picture:
            width, height = picture.size
        image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=path.read_bytes())
        value = Summary.Value(tag=name, image=image)
        self._writer._get_file_writer().add_summary(Summary(value=[value]), step)


class TrackioLogger(Callback):
    """Callback that logs to trackio. The environment variables of wandb set the project, name and group."""

    def __init__(self, directory: Path, config: Mapping[str, Any]):
        import trackio

        group = os.environ.get("WANDB_RUN_GROUP")
        self._run = trackio.init(**_names(directory), group=group, config=dict(config), resume="allow")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def log_evaluation(self, step: int, evaluated: Evaluated) -> None:
        self.log(step, evaluated.metrics)

    def close(self) -> None:
        self._run.finish()


def check_sinks(sinks: Sequence[Sink]) -> None:
    """Raise `UserError` if the package of a log service is missing."""
    for sink in sinks:
        try:
            importlib.import_module(_PACKAGES[sink])
        except ImportError as error:
            raise UserError(f"--log {sink} needs a package: {install_command(sink)} ({error})") from error


def make_loggers(
    directory: Path, sinks: Sequence[Sink], config: Mapping[str, Any], *, update: int = 0
) -> list[Callback]:
    """Make a callback for each log service. `update`: update after which a run resumes; 0 for a new run."""
    check_sinks(sinks)
    made: dict[Sink, Any] = {
        "wandb": lambda: WandbLogger(directory, config),
        "tensorboard": lambda: TensorboardLogger(directory, update),
        "trackio": lambda: TrackioLogger(directory, config),
    }
    return [made[sink]() for sink in sinks]


def _names(directory: Path) -> dict[str, str]:
    return {"project": os.environ.get("WANDB_PROJECT", "collm"), "name": os.environ.get("WANDB_NAME", directory.name)}
