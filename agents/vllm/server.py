"""Samples from a vLLM server: it decodes, this process scores and learns.

    vllm serve MODEL --enable-lora --max-lora-rank 16            (adapters; VLLM_ALLOW_RUNTIME_LORA_UPDATING=True)
    vllm serve MODEL                                             (all weights; VLLM_SERVER_DEV_MODE=1)

The server runs in an environment of its own, as its pins conflict with ours, and reads the folder for temporary files
of this machine. After an update it is sent an adapter under a new name: under an old one it may go on using keys and
values of the old adapter (https://github.com/vllm-project/vllm/issues/42125).
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
import weakref
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel

from ..decoding.adapters import check_adapter
from ..decoding.base import base_of
from ..decoding.samples import Prompt, Sample
from ..decoding.sampling import Sampling
from ..scoring.completions import scored_samples
from ..scoring.scorer import Scorer
from .api import ServedSample, ServerError, VLLMClient

__all__ = ["ServerError", "VLLMServer"]

MAX_DRIFT = 0.5
"""Nats per token by which the server's log-probabilities may differ from ours; half precisions make up to 0.1."""


class VLLMServer:
    """A `Generator` whose tokens come from a server, and whose log-probabilities from the model that learns.

    What the server says of its log-probabilities depends on how it was started: before temperature and filters (the
    default), or after both. Neither is what learning differentiates, the distribution with temperature and without
    filters; nor does it tell entropies or values. So all three are computed here, in one pass over the completions.
    Where both agree in what they mean, at temperature 1 without filters, a difference shows other weights.

    Args:
        url: where the server listens.
        model: what learns; its name must be the served model's.
        scorer: the same model's.
        stop_ids: tokens that end a completion.
        value_head: maps hidden states [N, d] at the ends of prompts to [N, 1].
        num_connections: requests under way at the same time.
        timeout_s: seconds that one answer may take.
    """

    def __init__(
        self,
        url: str,
        model: PreTrainedModel | PeftModel,
        scorer: Scorer,
        stop_ids: Collection[int],
        *,
        value_head: nn.Module | None = None,
        num_connections: int = 128,
        timeout_s: float = 600.0,
    ):
        self.drift: float | None = None  # nats per token of the last call; None where it could not be told
        self._client = VLLMClient(url, timeout_s)
        self._model = model
        self._scorer = scorer
        self._stop_ids = sorted(stop_ids)
        self._value_head = value_head
        self._num_connections = num_connections
        self._folder: Path | None = None  # holds what was sent
        self._run = uuid.uuid4().hex[:8]  # several runs may use one server
        self._num_synced = 0
        self._base: str | None = None  # what the server calls the model; None until it was asked
        self._base_folder: Path | None = None  # holds the weights that were sent last
        self._is_base_current = True  # a server starts with the weights of the model's name
        self._adapters: dict[str, tuple[str, Path]] = {}  # served: name on the server, and folder
        self._is_current: set[str] = set()

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Sample]:
        """One sample for each prompt, in their order.

        A sample depends on its prompt, its stream and the weights, as far as the server's arithmetic does not depend on
        what else it computes (vLLM: VLLM_BATCH_INVARIANT=1).

        Raises:
            ServerError: if the server is not there, serves another model or other weights, or refuses a request.
            ValueError: for an unknown adapter.
        """
        if not prompts:
            return []
        names = {adapter: self._served(adapter) for adapter in dict.fromkeys(prompt.adapter for prompt in prompts)}
        with ThreadPoolExecutor(min(self._num_connections, len(prompts))) as pool:
            ask = partial(self._client.complete, sampling=sampling, stop_ids=self._stop_ids)
            asked = [pool.submit(ask, names[prompt.adapter], prompt) for prompt in prompts]
            try:
                served = [answer.result() for answer in asked]
            except ServerError:
                for answer in asked:
                    answer.cancel()
                raise
        ids = [answer.ids for answer in served]
        samples = scored_samples(
            self._model, self._scorer, prompts, ids, sampling, self._stop_ids, value_head=self._value_head
        )
        self._check_drift(served, samples, sampling)
        return samples

    def fix_shapes(self) -> None:
        """Refused: a server batches requests as they come.

        Raises:
            ValueError: always.
        """
        raise ValueError("deterministic=True needs a model in this process: a vLLM server rounds by what it batches")

    def forget(self) -> None:
        """Let the server have the present weights before it samples again."""
        self._is_base_current = isinstance(self._model, PeftModel)
        self._is_current.clear()

    def rest(self) -> None:
        """Nothing: the server's memory is its own."""

    def _served(self, adapter: str | None) -> str:
        """What the server calls the model or adapter, with the present weights."""
        check_adapter(self._model, adapter)
        if self._base is None:
            self._base = self._checked_base()
        if adapter is not None:
            if adapter not in self._is_current:
                self._send_adapter(adapter)
            return self._adapters[adapter][0]
        if not self._is_base_current:
            folder = self._new_folder()
            base_of(self._model).save_pretrained(folder)
            self._client.reload(folder)
            self._is_base_current = True
            old, self._base_folder = self._base_folder, folder
            if old is not None:
                shutil.rmtree(old)
        return self._base

    def _checked_base(self) -> str:
        served = self._client.base_model()
        ours = base_of(self._model).name_or_path or ""
        if ours not in (served.name, served.root) and Path(ours).resolve() != Path(served.root).resolve():
            raise ServerError(
                f"the server at {self._client.url} serves {served.root!r} as {served.name!r}, but what learns is "
                f"{ours!r}; start it with that model (or, from another folder, with --served-model-name {ours})"
            )
        return served.name

    def _send_adapter(self, adapter: str) -> None:
        assert isinstance(self._model, PeftModel)
        folder = self._new_folder()
        self._model.save_pretrained(str(folder), selected_adapters=[adapter])
        inner = folder / adapter  # peft puts an adapter that is not named "default" into a folder of its name
        name = f"collm-{self._run}-{adapter}-{self._num_synced}"
        self._client.load_adapter(name, inner if inner.is_dir() else folder)
        old, self._adapters[adapter] = self._adapters.get(adapter), (name, folder)
        self._is_current.add(adapter)
        if old is not None:
            self._client.unload_adapter(old[0])
            shutil.rmtree(old[1])

    def _new_folder(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="collm-served-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._num_synced += 1
        return self._folder / str(self._num_synced)

    def _check_drift(self, served: Sequence[ServedSample], samples: Sequence[Sample], sampling: Sampling) -> None:
        is_plain = sampling.temperature == 1 and sampling.top_k == 0 and sampling.top_p == 1 and not sampling.greedy
        self.drift = None
        if is_plain:
            theirs = np.concatenate([answer.logprobs for answer in served])
            ours = np.concatenate([sample.logprobs for sample in samples])
            self.drift = float(np.abs(theirs - ours).mean())
            if not self.drift <= MAX_DRIFT:
                raise ServerError(
                    f"the log-probabilities of the server at {self._client.url} differ from ours by {self.drift:.2g} "
                    f"nats per token, more than {MAX_DRIFT}: it has other weights, or logprobs of another mode than "
                    "raw_logprobs or processed_logprobs"
                )
