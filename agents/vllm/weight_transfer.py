"""Transfer of weights to vLLM servers: through a folder that they load, or from GPU to GPU by vLLM's weight transfer.

The label of a server's weights (`/weight_info`) is `UNFINISHED` while they are exchanged. A mixture of old and new
weights is therefore recognised, even if another process began the exchange.
"""

from __future__ import annotations

import base64
import json
import pickle
import shutil
import tempfile
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from ..core import Processes
from . import gpu
from .client import ServerError, ServerLost, VLLMClient

INITIAL = "default"
"""vLLM's own label of the weights that a server was started with."""
UNFINISHED = "collm-unfinished"
"""Label of weights whose exchange has not come to its end."""
POLL_S = 0.001
"""Seconds between two looks at a broadcast under way."""


class Sender(ABC):
    """Sends a model's weights to servers, one after the other."""

    def send(self, server: VLLMClient, model: PreTrainedModel, version: str) -> None:
        """Exchange a server's weights, while nothing is sampled.

        Where the exchange breaks off, the server stays paused: its layers are without weights, and the next request
        would end it.

        Raises:
            ServerLost: if the exchange breaks off.
            ServerError: if the server refuses it.
        """
        server.pause()
        was_broken = server.version() == UNFINISHED
        server.label(UNFINISHED)
        self._exchange(server, model, version, was_broken)
        server.resume()

    @abstractmethod
    def forget(self, server: VLLMClient) -> None:
        """The server may have been started anew."""

    @abstractmethod
    def _exchange(self, server: VLLMClient, model: PreTrainedModel, version: str, was_broken: bool) -> None:
        """Replace the weights, and label them."""


class Folder(Sender):
    """Through the folder for temporary files, which the server must be able to read.

    A version is written once, for all servers; where that fails, they go on with what they have.
    """

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._written: str | None = None

    def send(self, server: VLLMClient, model: PreTrainedModel, version: str) -> None:
        if self._written != version:
            model.save_pretrained(self._place(version))
            self._written = version
        super().send(server, model, version)

    def write(
        self, model: PreTrainedModel, weights: Iterable[tuple[str, Tensor]], version: str, processes: Processes
    ) -> None:
        """Write a version whose weights the processes share; all of them call it.

        Raises:
            ServerError: on all processes, if it cannot be written.
        """
        write_folder(model, weights, processes.by_writer(lambda: self._place(version)), processes)
        self._written = version

    def _place(self, version: str) -> Path:
        """Where a version goes, in place of all others."""
        if self._folder is None:
            self._folder = temporary_folder(self)
        for old in self._folder.iterdir():
            shutil.rmtree(old)
        return self._folder / version

    def forget(self, server: VLLMClient) -> None:
        """Nothing: every exchange is whole in itself."""

    def _exchange(self, server: VLLMClient, model: PreTrainedModel, version: str, was_broken: bool) -> None:
        assert self._folder is not None
        server.reload(str(self._folder / version))
        server.label(version)


class Transfer(Sender):
    """vLLM's weight transfer: the server is told names, types and shapes, and takes the numbers from GPU to GPU.

    Args:
        dtype: type to send in; None: the weights' own.
    """

    backend: ClassVar[str]
    """vLLM's name of the way, in its `--weight-transfer-config`."""

    def __init__(self, dtype: torch.dtype | None):
        self._dtype = dtype
        self._joined: set[str] = set()

    def forget(self, server: VLLMClient) -> None:
        self._joined.discard(server.url)

    def _exchange(self, server: VLLMClient, model: PreTrainedModel, version: str, was_broken: bool) -> None:
        if server.url not in self._joined:
            try:
                self._join(server, model.device)
            except ServerLost as error:
                raise ServerError(
                    f'{error}; was it started with --weight-transfer-config \'{{"backend": "{self.backend}"}}\'?'
                ) from error
            self._joined.add(server.url)
        if was_broken:
            self._settle(server)
        server.start_update()
        self._update(server, model)
        server.finish_update(version)

    def _settle(self, server: VLLMClient) -> None:
        """End what was broken off: layers that had some of their weights would count these among the next ones."""
        with suppress(ServerLost):  # as vLLM refuses to start where the update was not told of its end
            server.start_update()
        server.finish_update(UNFINISHED)

    @abstractmethod
    def _join(self, server: VLLMClient, device: torch.device) -> None:
        """Let the server's workers join."""

    @abstractmethod
    def _update(self, server: VLLMClient, model: PreTrainedModel) -> None:
        """Send all weights once."""

    def _weights(self, model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
        """Every weight by its name in a checkpoint, whole, as it is sent; tied ones once."""
        for name, weight in model.named_parameters():
            yield name, weight.detach().to(dtype=self._dtype).contiguous()

    def _description(self, model: PreTrainedModel) -> dict[str, Any]:
        named = list(model.named_parameters())
        return {
            "names": [name for name, _ in named],
            "dtype_names": [str(self._dtype or weight.dtype).removeprefix("torch.") for _, weight in named],
            "shapes": [list(weight.shape) for _, weight in named],
        }


class NCCL(Transfer):
    """By NCCL broadcasts, to GPUs of this machine or of others.

    Each server is in a group of its own with this process, so that the loss of one leaves the others' alone. One weight
    is sent after the other, in their order.
    """

    backend = "nccl"

    def __init__(self, dtype: torch.dtype | None):
        super().__init__(dtype)
        self._groups: dict[str, gpu.Group] = {}

    def _join(self, server: VLLMClient, device: torch.device) -> None:
        size, identity = 1 + server.world_size(), gpu.unique_id()
        info = {"nccl_unique_id_b64": base64.b64encode(identity).decode(), "rank_offset": 1, "world_size": size}
        asked = _asked(server.init_transfer, info | {"packed": False})
        self._groups[server.url] = gpu.Group(identity, size, device)
        asked.result()

    def _update(self, server: VLLMClient, model: PreTrainedModel) -> None:
        asked = _asked(server.update, self._description(model))
        is_sent = self._groups[server.url].broadcast(weight for _, weight in self._weights(model))
        while not is_sent():
            if asked.done() and (fault := asked.exception()) is not None:
                raise ServerError(f"{fault}: what is being broadcast to it cannot be called back") from fault
            time.sleep(POLL_S)
        asked.result()


class IPC(Transfer):
    """By CUDA IPC: the server, on the same GPU, is told where the weights lie and reads them there."""

    backend = "ipc"

    def _join(self, server: VLLMClient, device: torch.device) -> None:
        server.init_transfer({"packed": False})

    def _update(self, server: VLLMClient, model: PreTrainedModel) -> None:
        kept = [weight for _, weight in self._weights(model)]  # they must live until the server has read them
        handles = pickle.dumps([gpu.handle(weight) for weight in kept])
        server.update(self._description(model) | {"ipc_handles_pickled": base64.b64encode(handles).decode()})
        gpu.let_go()


def sender_of(way: str, dtype: torch.dtype | None) -> Sender:
    """What sends weights in a way: "folder", "nccl" or "ipc"."""
    return Folder() if way == "folder" else NCCL(dtype) if way == "nccl" else IPC(dtype)


def temporary_folder(owner: object) -> Path:
    """A folder that goes with its owner."""
    folder = Path(tempfile.mkdtemp(prefix="collm-served-"))
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return folder


def _asked(request: Callable[[dict[str, Any]], None], info: dict[str, Any]) -> Future[None]:
    """Ask while this process takes its own part in what is asked."""
    pool = ThreadPoolExecutor(1)
    asked = pool.submit(request, info)
    pool.shutdown(wait=False)
    return asked


INDEX = "model.safetensors.index.json"


def write_folder(
    model: PreTrainedModel, weights: Iterable[tuple[str, Tensor]], folder: Path, processes: Processes
) -> None:
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
