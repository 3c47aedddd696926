"""`Generator` for vLLM servers: the servers decode, this process computes log-probabilities and trains.

Commands that start a server, first for full weights, then for adapters:

    VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --enable-scale-out
    VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve MODEL --enable-scale-out --enable-lora --max-lora-rank 16

Servers need a separate Python environment, because vLLM and collm pin different versions. Each version of an adapter
gets a new name: under an old name, vLLM may reuse the KV cache of the old adapter
(https://github.com/vllm-project/vllm/issues/42125).
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel

from ..._progress import phase
from ..batching import default_max_tokens, micro_batches
from ..core import NO_TOKENS, Processes
from ..decoding.adapters import active_adapter, check_adapter, save_adapter
from ..decoding.base import base_of
from ..decoding.samples import Prompt, Sample
from ..decoding.sampling import Sampling
from ..encoding import TokenRecord
from ..scoring.packing import PackedRow
from ..scoring.scorer import Scorer
from ..scoring.sharding import Shards
from .client import ServedSample, ServerError, ServerLost, VLLMClient
from .replicas import Replica, Replicas
from .weight_transfer import INITIAL, WeightFolder, temporary_folder

__all__ = ["ServerError", "Serving", "VLLMServer"]

# Maximum mean difference between a server's and the learner's log-probabilities, in nats per token. Half precision
# causes differences up to 0.1.
MAX_DRIFT = 0.5


@dataclass(frozen=True, kw_only=True)
class Serving:
    """Settings of the servers of one model."""

    addresses: tuple[str, ...]  # URLs of servers with the same weights
    keeps_logprobs: bool = False  # return the servers' log-probabilities instead of the learner's
    timeout_s: float = 600.0  # timeout per request
    patience_s: float = 60.0  # maximum time without an answer from any server


class VLLMServer:
    """`Generator` that samples on servers and computes log-probabilities, entropies and values with the learner.

    The learner computes them in one forward pass over the completions, because servers return no entropies and values,
    and no log-probabilities with the temperature but without filters. With `keeps_logprobs`, samples have the servers'
    log-probabilities. At temperature 1 without filters, servers and learner must compute similar log-probabilities.

    Args:
        model: the learner's model. Its name must be the name of the served model.
        scorer: computes log-probabilities with the same model.
        stop_ids: tokens that end a completion.
        value_head: maps hidden states [N, d] at the ends of prompts to [N, 1].
    """

    def __init__(
        self,
        serving: Serving,
        model: PreTrainedModel | PeftModel,
        scorer: Scorer,
        stop_ids: Collection[int],
        *,
        value_head: nn.Module | None = None,
    ):
        self.drift: float | None = None  # mean error of log-probabilities in the last call, in nats; None: not measured
        self._serving = serving
        self._model = model
        self._scorer = scorer
        self._stop_ids = sorted(stop_ids)
        self._value_head = value_head
        clients = [VLLMClient(address, serving.timeout_s) for address in serving.addresses]
        self._replicas = Replicas(clients, self._update, serving.patience_s)
        self._weight_folder = WeightFolder()
        self._run = uuid.uuid4().hex[:8]  # unique, because several runs may use one server
        self._num_sent = 0
        self._sends = True  # False if another training process sends the weights
        self._shards: Shards | None = None
        self._version: str | None = INITIAL  # label of the current weights; None: not chosen yet
        self._folder: Path | None = None  # parent of the adapters' folders
        self._adapters: dict[str, tuple[str, Path]] = {}  # current versions: name on the servers, and folder
        self._stale_adapters: set[str] = set()
        self._requested: list[str] = []  # adapters of the current call
        self._are_processed: dict[str, bool] = {}  # URL → True if log-probabilities are after temperature and filters

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Sample]:
        """Return one sample per prompt, in the order of the prompts, from the current weights.

        A sample depends only on its prompt, its random stream and the weights, up to rounding. With
        VLLM_BATCH_INVARIANT=1, rounding does not depend on the batch.

        Raises:
            ServerError: if no server answers, or if a server has another model or other weights, or refuses a request.
        """
        if not prompts:
            return []
        self._requested = sorted({prompt.adapter for prompt in prompts if prompt.adapter is not None})
        for adapter in {prompt.adapter for prompt in prompts}:
            check_adapter(self._model, adapter)
        if self._sends:
            self._prepare()

        def ask(replica: Replica, prompt: Prompt) -> ServedSample | None:
            name = replica.name if prompt.adapter is None else self._adapters[prompt.adapter][0]
            sample = replica.client.complete(name, prompt, sampling, self._stop_ids)
            return sample if sample.versions == {self._version} else None

        with phase("decode", "replies"):
            served = self._replicas.ask(prompts, ask)
        if self._serving.keeps_logprobs and not sampling.greedy:
            self._check_mode(served, sampling)
        if self._shards is not None:
            return [
                Sample(each.ids, each.logprobs, NO_TOKENS, int(each.ids[-1]) not in self._stop_ids, None)
                for each in served
            ]
        samples = self._scored(prompts, [answer.ids for answer in served], sampling)
        pairs = zip(served, samples, strict=True)
        self._check_drift([(theirs.url, theirs.logprobs, ours.logprobs) for theirs, ours in pairs], sampling)
        if self._serving.keeps_logprobs and not sampling.greedy:
            return [replace(ours, logprobs=theirs.logprobs) for ours, theirs in zip(samples, served, strict=True)]
        return samples

    def fix_shapes(self) -> None:
        raise ValueError(
            "deterministic=True needs sampling in this process, because a server's rounding depends on the batch; "
            "omit server"
        )

    def forget(self) -> None:
        """Mark the servers' weights as outdated. New weights are sent before the next request."""
        if not isinstance(self._model, PeftModel):
            self._version = None
        self._stale_adapters.update(self._adapters)

    def rest(self) -> None:
        """Do nothing, because this process has no KV cache."""

    def make_ready(self, processes: Processes, adapter: str | None, shards: Shards | None) -> None:
        """Send the current weights from one process to the servers (collective).

        With sharded weights, samples have the servers' log-probabilities, and neither entropies nor values.

        Args:
            adapter: adapter of the next requests. None: the model's own weights.
            shards: the sharded model. None: each process has all weights.

        Raises:
            ServerError: on all processes, if no server answers for `patience_s`, or a server refuses the weights.
        """
        self._sends = processes.is_writer
        self._requested = [] if adapter is None else [adapter]
        if shards is not self._shards:
            self._shards, self._version = shards, None  # no folder contains the weights with which servers started
        is_new = self._version is None
        self._run, self._version, self._adapters = processes.by_writer(self._prepare)
        self._stale_adapters.difference_update(self._requested)
        if is_new and shards is not None:
            assert isinstance(self._model, PreTrainedModel)
            self._weight_folder.write(self._model, shards.weights(), self._version, processes)
        processes.by_writer(self._replicas.make_ready)

    def compare(
        self, theirs: Sequence[NDArray[np.float32]], ours: Sequence[NDArray[np.float32]], sampling: Sampling
    ) -> None:
        """Raise `ServerError` if the log-probabilities of servers and learner for the same tokens differ."""
        urls = " or ".join(self._serving.addresses)
        self._check_drift([(urls, *pair) for pair in zip(theirs, ours, strict=True)], sampling)

    def _scored(
        self, prompts: Sequence[Prompt], completions: Sequence[NDArray[np.int64]], sampling: Sampling
    ) -> list[Sample]:
        """Return the completions with the learner's log-probabilities, entropies and values."""
        rows = []
        for prompt, ids in zip(prompts, completions, strict=True):
            read = np.asarray(prompt.ids, np.int64)
            rows.append(PackedRow(np.concatenate([read, ids]), (TokenRecord(read, ids, False, ""),)))
        samples: dict[int, Sample] = {}
        limit = default_max_tokens(self._scorer.device)
        filters = sampling if sampling.learns_filtered and not sampling.greedy else None
        for adapter in dict.fromkeys(prompt.adapter for prompt in prompts):
            own = [number for number, prompt in enumerate(prompts) if prompt.adapter == adapter]
            batches = micro_batches([len(row.ids) for row in rows], own, limit)
            with torch.no_grad(), active_adapter(self._model, adapter):
                for batch in batches:
                    scores = self._scorer.scores([rows[number] for number in batch], sampling.temperature, filters)
                    logprobs, entropies, ends = scores
                    values: list[float | None] = [None] * len(batch)
                    if self._value_head is not None:
                        values = self._value_head(ends.float()).reshape(-1).tolist()
                    cuts = np.cumsum([len(completions[number]) for number in batch])[:-1]
                    parts = (np.split(each.float().cpu().numpy(), cuts) for each in (logprobs, entropies))
                    for number, logprob, entropy, value in zip(batch, *parts, values, strict=True):
                        ids = completions[number]
                        samples[number] = Sample(ids, logprob, entropy, int(ids[-1]) not in self._stop_ids, value)
        return [samples[number] for number in range(len(prompts))]

    def _prepare(self) -> tuple[str, str, dict[str, tuple[str, Path]]]:
        """Label changed weights and save changed adapters. Return the run's label, the weights' label, and adapters."""
        if self._version is None:
            self._version = self._new_name("weights")
        for adapter in self._requested:
            if adapter in self._adapters and adapter not in self._stale_adapters:
                continue
            assert isinstance(self._model, PeftModel)
            if self._folder is None:
                self._folder = temporary_folder(self)
            name = self._new_name(adapter)
            folder = self._folder / name
            save_adapter(self._model, adapter, folder)
            if adapter in self._adapters:
                shutil.rmtree(self._adapters[adapter][1])
            self._adapters[adapter] = name, folder
            self._stale_adapters.discard(adapter)
        return self._run, self._version, self._adapters

    def _new_name(self, what: str) -> str:
        self._num_sent += 1
        return f"collm-{self._run}-{what}-{self._num_sent}"

    def _update(self, replica: Replica) -> None:
        """Send the current weights and adapters to a server, unless the server already has them."""
        if not self._sends:
            self._check_sent(replica)
            return
        if not replica.is_known:
            self._query(replica)
        if replica.version != self._version:
            if isinstance(self._model, PeftModel):
                raise ServerError(
                    f"the server at {replica.client.url} has base weights of version {replica.version!r}, but adapters "
                    f"need the weights with which a server starts, {self._version!r}; restart the server"
                )
            assert self._version is not None
            replica.version = None
            self._weight_folder.send(replica.client, self._model, self._version)
            replica.version = self._version
        for adapter in self._requested:
            name, folder = self._adapters[adapter]
            if name in replica.adapters:
                continue
            replica.client.load_adapter(name, str(folder))
            replica.adapters.add(name)
            for old in [each for each in replica.adapters if each.rpartition("-")[0] == name.rpartition("-")[0]]:
                if old != name:
                    replica.client.unload_adapter(old)
                    replica.adapters.remove(old)

    def _check_sent(self, replica: Replica) -> None:
        """Raise `ServerLost` if the sending process has not yet sent the current weights and adapters."""
        names = {self._adapters[adapter][0] for adapter in self._requested}
        if not (replica.is_known and replica.version == self._version and names <= replica.adapters):
            self._query(replica)
        if replica.version != self._version or not names <= replica.adapters:
            raise ServerLost(
                f"the server at {replica.client.url} has not received the current weights; rank 0 sends the "
                "weights when it finds that a server lacks them"
            )

    def _query(self, replica: Replica) -> None:
        """Read a server's model, weight version and adapters. Raise `ServerError` if it is not the learner's model."""
        served = replica.client.base_model()
        ours = base_of(self._model).name_or_path or ""
        if ours not in (served.name, served.root) and Path(ours).resolve() != Path(served.root).resolve():
            raise ServerError(
                f"the server at {replica.client.url} serves {served.root!r} as {served.name!r}, but the learner's "
                f"model is {ours!r}; start the server with this model (from another folder: with "
                f"--served-model-name {ours})"
            )
        replica.client.check_sampling()
        replica.adapters = {name for name in replica.client.adapters() if name.startswith(f"collm-{self._run}-")}
        replica.version = replica.client.version() or INITIAL
        if self._serving.keeps_logprobs:
            # If log-probabilities are computed after filters, the sampled token has 0 with top-k 1.
            prompt = Prompt([self._stop_ids[0]], (0, 0, 0, 0), 1)
            probe = replica.client.complete(served.name, prompt, Sampling(top_k=1), self._stop_ids)
            self._are_processed[replica.client.url] = float(probe.logprobs[0]) == 0
        replica.name, replica.is_known = served.name, True

    def _check_mode(self, served: Sequence[ServedSample], sampling: Sampling) -> None:
        for url in sorted({answer.url for answer in served}):
            if not _is_plain(sampling) and not self._are_processed[url]:
                raise ServerError(
                    f"server_logprobs='server' needs log-probabilities after temperature and filters; start the server "
                    f"at {url} with --logprobs-mode processed_logprobs"
                )

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
                f"the log-probabilities of the server at {url} differ from the learner's by {self.drift:.2g} nats per "
                f"token, more than {MAX_DRIFT}: its weights differ, or its --logprobs-mode is neither raw_logprobs nor "
                "processed_logprobs"
            )


def _is_plain(sampling: Sampling) -> bool:
    """Return True if temperature and filters leave the distribution unchanged."""
    return sampling.temperature == 1 and sampling.top_k == 0 and sampling.top_p == 1 and not sampling.greedy
