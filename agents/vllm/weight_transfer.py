"""Transfer of full weights to vLLM servers, through a folder from which the servers load them."""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from collections.abc import Iterable
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from ..core import Processes
from .client import ServerError, VLLMClient

INITIAL = "default"  # vLLM's version label for the weights with which a server was started
UNFINISHED = "collm-unfinished"  # version label during a transfer, when a server has both old and new weights


class WeightFolder:
    """Temporary folder with the newest version of a model's weights. Servers must be able to read this folder."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._written: str | None = None

    def send(self, server: VLLMClient, model: PreTrainedModel, version: str) -> None:
        """Replace a server's weights. If this fails, raise `ServerError` and leave the server paused."""
        # A paused server gets no requests. With incomplete weights, a request would crash the server.
        if self._written != version:
            model.save_pretrained(self._path(version))
            self._written = version
        assert self._folder is not None
        server.pause()
        server.label(UNFINISHED)
        server.reload(str(self._folder / version))
        server.label(version)
        server.resume()

    def write(
        self, model: PreTrainedModel, weights: Iterable[tuple[str, Tensor]], version: str, processes: Processes
    ) -> None:
        """Write sharded weights in the format of `save_pretrained`, one file per weight (collective).

        Args:
            model: source of the config and of the names of weights in checkpoints. Its weights are not read.
            weights: pairs of parameter name and weight. Every process iterates to the end, also after a failed write,
                because each weight is gathered from all processes.

        Raises:
            ServerError: on all processes, if the folder cannot be written.
        """
        folder = processes.by_writer(lambda: self._path(version))
        files: dict[str, str] = {}
        fault: OSError | SafetensorError | None = None
        for number, (name, weight) in enumerate(weights):
            if not processes.is_writer or fault is not None:
                continue
            converted = revert_weight_conversion(model, {name: weight})
            parts = {key: part.cpu().contiguous() for key, part in converted.items()}
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
                file = folder / "model.safetensors.index.json"
                file.write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
                model.config.save_pretrained(folder)
            except (OSError, SafetensorError) as error:
                raise ServerError(f"the weights for the servers cannot be written to {folder}: {error}") from error

        processes.by_writer(finish)
        self._written = version

    def _path(self, version: str) -> Path:
        """Delete the folders of all other weight versions, and return the folder's path for this version."""
        if self._folder is None:
            self._folder = temporary_folder(self)
        for old in self._folder.iterdir():
            shutil.rmtree(old)
        return self._folder / version


def temporary_folder(owner: object) -> Path:
    """Create a folder that is deleted together with the object `owner`."""
    folder = Path(tempfile.mkdtemp(prefix="collm-served-"))
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return folder
