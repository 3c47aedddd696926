"""A model's folder, written one weight after the other: no process needs to hold all of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from ..core import Processes
from .api import ServerError

INDEX = "model.safetensors.index.json"


def write(model: PreTrainedModel, weights: Iterable[tuple[str, Tensor]], folder: Path, processes: Processes) -> None:
    """Let one process write a folder as `save_pretrained` writes it, with a file per weight.

    Args:
        model: tells the settings, and how checkpoints name and cut its weights; its own weights are not read.
        weights: weights by their names in the model. All processes go through all of them, whatever becomes of the
            files, as each gives its share.

    Raises:
        ServerError: on all processes, if the folder cannot be written.
    """
    files: dict[str, str] = {}
    fault: OSError | SafetensorError | None = None
    for number, (name, weight) in enumerate(weights):
        if not processes.is_writer or fault is not None:
            continue
        parts = {key: part.cpu().contiguous() for key, part in revert_weight_conversion(model, {name: weight}).items()}
        file = f"model-{number:05}.safetensors"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            save_file(parts, folder / file, metadata={"format": "pt"})
        except (OSError, SafetensorError) as error:
            fault = error
        files |= dict.fromkeys(parts, file)

    def finish() -> None:
        try:
            if fault is not None:
                raise fault
            size = sum((folder / file).stat().st_size for file in set(files.values()))
            index = {"metadata": {"total_size": size}, "weight_map": files}
            (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
            model.config.save_pretrained(folder)
        except (OSError, SafetensorError) as error:
            raise ServerError(f"the weights for the servers cannot be written to {folder}: {error}") from error

    processes.by_writer(finish)
