"""Samples from vLLM servers: they decode, this process scores and learns.

    VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --enable-scale-out

takes all weights from a folder, with `--weight-transfer-config '{"backend": "nccl"}'` by NCCL; for adapters it is

    VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve MODEL --enable-scale-out --enable-lora --max-lora-rank 16

Servers run in an environment of their own, as their pins conflict with ours. After an update they are sent an adapter
under a new name: under an old one they may go on using keys and values of the old adapter
(https://github.com/vllm-project/vllm/issues/42125).
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel

from ..core import NO_TOKENS, Processes
from ..decoding.adapters import check_adapter
from ..decoding.base import base_of
from ..decoding.samples import Prompt, Sample
from ..decoding.sampling import Sampling
from ..scoring.scorer import Scorer, scored_samples
from ..scoring.sharding import Shards
from .client import ServedSample, ServerError, ServerLost, VLLMClient
from .replicas import Replica, Replicas
from .weight_transfer import INITIAL, Folder, sender_of, temporary_folder

__all__ = ["ServerError", "Serving", "VLLMServer"]

MAX_DRIFT = 0.5
"""Nats per token by which the servers' log-probabilities may differ from ours; half precisions make up to 0.1."""


@dataclass(frozen=True, kw_only=True)
class Serving:
    """Servers that sample for a model, and how they do."""

    addresses: tuple[str, ...]
    """Addresses of the servers, which hold the same weights."""
    weights: Literal["folder", "nccl", "ipc"] = "folder"
    """How all weights reach them."""
    keeps_logprobs: bool = False
    """Keep the log-probabilities that they computed in sampling."""
    num_connections: int = 128
    """Requests per server under way at the same time."""
    timeout_s: float = 600.0
    """Seconds that one answer may take."""
    patience_s: float = 60.0
    """Seconds to wait while none of them answers."""


class VLLMServer:
    """A `Generator` whose tokens come from servers, and whose log-probabilities from the model that learns.

    What a server says of its log-probabilities depends on how it was started: before temperature and filters (the
    default), or after both. Neither is what learning differentiates, the distribution with temperature and without
    filters; nor does it tell entropies or values. So all three are computed here, in one pass over the completions.
    With `keeps_logprobs` the servers' own replace ours: those of the distribution that was sampled from, in their
    arithmetic.

    Where both agree in what they mean, at temperature 1 without filters, a difference shows other weights.

    Args:
        serving: the servers.
        model: what learns; its name must be the served model's.
        scorer: the same model's.
        stop_ids: tokens that end a completion.
        value_head: maps hidden states [N, d] at the ends of prompts to [N, 1].
        compute_dtype: type in which weights are sent from GPU to GPU; None: their own.
    """

    def __init__(
        self,
        serving: Serving,
        model: PreTrainedModel | PeftModel,
        scorer: Scorer,
        stop_ids: Collection[int],
        *,
        value_head: nn.Module | None = None,
        compute_dtype: torch.dtype | None = None,
    ):
        self.drift: float | None = None  # nats per token of the last call; None where it could not be told
        self._serving = serving
        self._model = model
        self._scorer = scorer
        self._stop_ids = sorted(stop_ids)
        self._value_head = value_head
        clients = [VLLMClient(address, serving.timeout_s) for address in serving.addresses]
        self._replicas = Replicas(
            clients, self._update, num_connections=serving.num_connections, patience_s=serving.patience_s
        )
        self._sender = sender_of(serving.weights, compute_dtype)
        self._run = uuid.uuid4().hex[:8]  # several runs may use one server
        self._num_sent = 0
        self._sends = True  # this process: of several that train together one does
        self._shards: Shards | None = None  # what these share of the model
        self._version: str | None = INITIAL  # label of the present weights; None: not given yet
        self._folder: Path | None = None  # holds the adapters
        self._adapters: dict[str, tuple[str, Path]] = {}  # the present ones: name on the servers, and folder
        self._stale_adapters: set[str] = set()
        self._asked_for: list[str] = []  # adapters of the present call
        self._says_processed: dict[str, bool] = {}  # by address: log-probabilities after temperature and filters

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Sample]:
        """One sample for each prompt, in their order, all of the present weights.

        A sample depends on its prompt, its stream and the weights, and not on which server gives it, as far as a
        server's arithmetic does not depend on what else it computes (vLLM: VLLM_BATCH_INVARIANT=1).

        Raises:
            ServerError: if no server is there, or one serves another model or other weights, or refuses a request.
            ValueError: for an unknown adapter.
        """
        if not prompts:
            return []
        self._asked_for = sorted({prompt.adapter for prompt in prompts if prompt.adapter is not None})
        for adapter in {prompt.adapter for prompt in prompts}:
            check_adapter(self._model, adapter)
        if self._sends:
            self._prepare()

        def ask(replica: Replica, prompt: Prompt) -> ServedSample | None:
            name = replica.name if prompt.adapter is None else self._adapters[prompt.adapter][0]
            sample = replica.client.complete(name, prompt, sampling, self._stop_ids)
            return sample if sample.versions == {self._version} else None

        served = self._replicas.ask(prompts, ask)
        if self._serving.keeps_logprobs and not sampling.greedy:
            self._check_mode(served, sampling)
        if self._shards is not None:
            return [self._unscored(each) for each in served]
        ids = [answer.ids for answer in served]
        samples = scored_samples(
            self._model, self._scorer, prompts, ids, sampling, self._stop_ids, value_head=self._value_head
        )
        pairs = zip(served, samples, strict=True)
        self._check_drift([(theirs.url, theirs.logprobs, ours.logprobs) for theirs, ours in pairs], sampling)
        if self._serving.keeps_logprobs and not sampling.greedy:
            return [replace(ours, logprobs=theirs.logprobs) for ours, theirs in zip(samples, served, strict=True)]
        return samples

    def fix_shapes(self) -> None:
        """Refused: a server batches requests as they come.

        Raises:
            ValueError: always.
        """
        raise ValueError("deterministic=True needs a model in this process: a vLLM server rounds by what it batches")

    def forget(self) -> None:
        """Let the servers have the present weights before they sample again."""
        if not isinstance(self._model, PeftModel):
            self._version = None
        self._stale_adapters.update(self._adapters)

    def rest(self) -> None:
        """Nothing: the servers' memory is their own."""

    def make_ready(self, processes: Processes, adapter: str | None, shards: Shards | None) -> None:
        """Let the servers have the present weights, sent by one process; all that train together call it.

        Until the next call their samples are of these weights, whoever asks. Where processes share weights, samples
        come with the servers' log-probabilities and without entropies and values.

        Args:
            adapter: the adapter that will be asked for; None: the model's own weights.
            shards: what they share of the model; None: each has all of it.

        Raises:
            ServerError: on all of them, if no server has the weights for the patience, or one refuses them.
        """
        self._sends = processes.is_writer
        self._asked_for = [] if adapter is None else [adapter]
        if shards is not self._shards:
            self._shards, self._version = shards, None  # what a server was started with is written nowhere
        is_new = self._version is None
        self._run, self._version, self._adapters = processes.by_writer(self._prepare)
        self._stale_adapters.difference_update(self._asked_for)
        if is_new and shards is not None:
            assert isinstance(self._sender, Folder) and isinstance(self._model, PreTrainedModel)
            self._sender.write(self._model, shards.weights(), self._version, processes)
        processes.by_writer(self._replicas.make_ready)

    def compare(
        self, theirs: Sequence[NDArray[np.float32]], ours: Sequence[NDArray[np.float32]], sampling: Sampling
    ) -> None:
        """Compare log-probabilities of samples that were computed later.

        Args:
            theirs: the servers' log-probabilities.
            ours: the learner's, of the same tokens.

        Raises:
            ServerError: if the servers have other weights.
        """
        self._check_drift([(self._all, *pair) for pair in zip(theirs, ours, strict=True)], sampling)

    def _unscored(self, served: ServedSample) -> Sample:
        return Sample(served.ids, served.logprobs, NO_TOKENS, int(served.ids[-1]) not in self._stop_ids, None)

    def _prepare(self) -> tuple[str, str, dict[str, tuple[str, Path]]]:
        """Give a label to all weights that were changed, and names and folders to adapters.

        Returns:
            The run's label, that of the weights, and the adapters.
        """
        if self._version is None:
            self._version = self._new_name("weights")
        for adapter in self._asked_for:
            if adapter not in self._adapters or adapter in self._stale_adapters:
                self._write_adapter(adapter)
        return self._run, self._version, self._adapters

    def _write_adapter(self, adapter: str) -> None:
        assert isinstance(self._model, PeftModel)
        if self._folder is None:
            self._folder = temporary_folder(self)
        name = self._new_name(adapter)
        folder = self._folder / name
        self._model.save_pretrained(str(folder), selected_adapters=[adapter])
        if adapter in self._adapters:
            shutil.rmtree(self._adapters[adapter][1])
        self._adapters[adapter] = name, folder
        self._stale_adapters.discard(adapter)

    def _new_name(self, what: str) -> str:
        self._num_sent += 1
        return f"collm-{self._run}-{what}-{self._num_sent}"

    def _update(self, replica: Replica) -> None:
        """Let a replica have the present weights and adapters."""
        if not self._sends:
            self._check_sent(replica)
            return
        if not replica.is_known:
            self._look_at(replica)
        if replica.version != self._version:
            if isinstance(self._model, PeftModel):
                raise ServerError(
                    f"the server at {replica.client.url} has weights {replica.version!r} below the adapters, and not "
                    "those that it was started with; start it anew"
                )
            assert self._version is not None
            replica.version = None
            self._sender.send(replica.client, self._model, self._version)
            replica.version = self._version
        for adapter in self._asked_for:
            name, folder = self._adapters[adapter]
            if name in replica.adapters:
                continue
            inner = folder / adapter  # peft puts an adapter that is not named "default" into a folder of its name
            replica.client.load_adapter(name, str(inner if inner.is_dir() else folder))
            replica.adapters.add(name)
            for old in [each for each in replica.adapters if each.rpartition("-")[0] == name.rpartition("-")[0]]:
                if old != name:
                    replica.client.unload_adapter(old)
                    replica.adapters.remove(old)

    def _check_sent(self, replica: Replica) -> None:
        """Find out whether a replica has been sent the present weights and adapters.

        Raises:
            ServerLost: if it has not.
        """
        names = {self._adapters[adapter][0] for adapter in self._asked_for}
        if not (replica.is_known and replica.version == self._version and names <= replica.adapters):
            self._look_at(replica)
        if replica.version != self._version or not names <= replica.adapters:
            raise ServerLost(
                f"the server at {replica.client.url} has not been sent the present weights, as rank 0 sends them where "
                "it finds that a server lacks them"
            )

    def _look_at(self, replica: Replica) -> None:
        """Find out what a replica holds.

        Raises:
            ServerError: if that is another model.
        """
        self._sender.forget(replica.client)
        served = replica.client.base_model()
        ours = base_of(self._model).name_or_path or ""
        if ours not in (served.name, served.root) and Path(ours).resolve() != Path(served.root).resolve():
            raise ServerError(
                f"the server at {replica.client.url} serves {served.root!r} as {served.name!r}, but what learns is "
                f"{ours!r}; start it with that model (or, from another folder, with --served-model-name {ours})"
            )
        replica.client.check_sampling()
        replica.adapters = {name for name in replica.client.adapters() if name.startswith(f"collm-{self._run}-")}
        replica.version = replica.client.version() or INITIAL
        if self._serving.keeps_logprobs:
            self._says_processed[replica.client.url] = self._is_processed(replica.client, served.name)
        replica.name, replica.is_known = served.name, True

    def _is_processed(self, client: VLLMClient, name: str) -> bool:
        """Whether its log-probabilities are after the filters: that of the only token which one lets through is 0."""
        probe = Prompt([self._stop_ids[0]], (0, 0, 0, 0), 1)
        return float(client.complete(name, probe, Sampling(top_k=1), self._stop_ids).logprobs[0]) == 0

    def _check_mode(self, served: Sequence[ServedSample], sampling: Sampling) -> None:
        for url in sorted({answer.url for answer in served}):
            if not _is_plain(sampling) and not self._says_processed[url]:
                raise ServerError(
                    f"server_logprobs='server' needs log-probabilities of what is sampled from, after temperature and "
                    f"filters; start the server at {url} with --logprobs-mode processed_logprobs"
                )

    @property
    def _all(self) -> str:
        """Addresses of all servers, for a message."""
        return " or ".join(self._serving.addresses)

    def _check_drift(
        self, pairs: Sequence[tuple[str, NDArray[np.float32], NDArray[np.float32]]], sampling: Sampling
    ) -> None:
        self.drift = None
        if not _is_plain(sampling):
            return
        gaps: dict[str, list[np.ndarray]] = {}
        for url, theirs, ours in pairs:
            gaps.setdefault(url, []).append(np.abs(theirs - ours))
        drifts = {url: float(np.concatenate(each).mean()) for url, each in gaps.items()}
        url, self.drift = max(drifts.items(), key=lambda item: item[1])
        if not self.drift <= MAX_DRIFT:
            raise ServerError(
                f"the log-probabilities of the server at {url} differ from ours by {self.drift:.2g} nats per token, "
                f"more than {MAX_DRIFT}: it has other weights, or logprobs of another mode than raw_logprobs or "
                "processed_logprobs"
            )


def _is_plain(sampling: Sampling) -> bool:
    """Whether log-probabilities before and after temperature and filters are the same."""
    return sampling.temperature == 1 and sampling.top_k == 0 and sampling.top_p == 1 and not sampling.greedy
