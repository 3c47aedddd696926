"""Causal language models with tokenizer, decoder and scorer."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from peft import PeftModel
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..config import HistoryTokens
from ..decoding.adapters import REFERENCE, active_adapter
from ..decoding.base import base_of, context_of
from ..decoding.decoder import Decoder
from ..decoding.samples import Generator
from ..decoding.self_check import check_causal
from ..decoding.steps.graph_steps import CudaGraphs
from ..encoding import Encoder, end_ids_of
from ..scoring.recomputing import recompute_layers
from ..scoring.scorer import Scorer
from ..scoring.sharding import Shards
from ..vllm.server import Serving, VLLMServer


class LanguageModel:
    """Causal language model with tokenizer, generator and scorer. Policies with the same base model share one.

    Args:
        model: model of transformers or peft. Use fp32 for trainable weights: bf16 weights lose updates near 1e-6.
        compute_dtype: data type of autocast in forward passes. None: the weights' data type.
        serving: vLLM servers for sampling. None: sample in this process. Other arguments: see `ModelConfig`.
    """

    def __init__(
        self,
        model: PreTrainedModel | PeftModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        is_chat: bool | None = None,
        compute_dtype: torch.dtype | None = None,
        recomputes_activations: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
        history_tokens: HistoryTokens = "extended",
        sampler: str = "arena",
        serving: Serving | None = None,
        kv_memory: float | None = None,
    ):
        if recomputes_activations:
            recompute_layers(base_of(model))
        self.recomputes_activations = recomputes_activations
        self.model = model.eval()  # with dropout, sampling and updates would use different distributions
        self.base = base_of(model)
        self.hidden_size = check_causal(self.base)
        self.num_weights = sum(weight.numel() for weight in self.base.parameters())
        self.encoder = Encoder(
            tokenizer,
            is_chat=is_chat,
            template_kwargs=template_kwargs,
            end_ids=end_ids_of(self.base, tokenizer),
            history_tokens=history_tokens,
        )
        self.compute_dtype = compute_dtype
        self.scorer = Scorer(self.base)
        self.sampler = sampler
        self.serving = serving
        self.kv_memory = kv_memory
        self.generator = self.generator_with(None)
        self.shards: Shards | None = None  # sharded copy; None: the weights are not sharded

    def generator_with(self, value_head: nn.Module | None) -> Generator:
        """Return a decoder, or a client of vLLM servers. A value head adds the values of prompts to the samples."""
        if self.serving is None:
            capture = CudaGraphs(self.device) if self.sampler == "graphs" else None
            return Decoder(
                self.model, self.encoder.stop_ids, value_head=value_head, kv_memory=self.kv_memory, capture=capture
            )
        return VLLMServer(self.serving, self.model, self.scorer, self.encoder.stop_ids, value_head=value_head)

    @property
    def context(self) -> int | None:
        """Maximum number of tokens of a prompt with its completion. None: unlimited."""
        return context_of(self.base.config)

    @property
    def device(self) -> torch.device:
        return self.base.device

    @property
    def learned(self) -> nn.Module:
        """Module with the trainable weights: the model, or the sharded copy of the model."""
        return self.model if self.shards is None else self.shards.module

    def shard(self, mesh: DeviceMesh) -> None:
        """Shard the weights over the mesh's ranks. Keep an unsharded copy if this process samples a trained model."""
        # Models with adapters are not sharded, because the copy would contain the whole base model.
        if self.shards is not None or isinstance(self.model, PeftModel):
            return
        decodes = self.serving is None and any(weight.requires_grad for weight in self.model.parameters())
        self.shards = Shards(self.model, mesh, self.compute_dtype, keeps_copy=decodes)
        self.scorer = self.scorer.on(self.shards.module, self.shards)

    @contextmanager
    def whole(self, *, on_all: bool = False) -> Iterator[None]:
        """Context manager in which rank 0 (`on_all`: every rank) has the unsharded weights (collective)."""
        if self.shards is None:
            yield
            return
        with self.shards.whole(on_all=on_all):
            shards, self.shards = self.shards, None
            try:
                yield
            finally:
                self.shards = shards

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=self.compute_dtype, enabled=self.compute_dtype is not None)

    def of(self, model: PreTrainedModel | PeftModel) -> LanguageModel:
        """Return a copy of this object with another model, for example a frozen reference model."""
        twin = copy.copy(self)
        twin.model, twin.base, twin.shards = model, base_of(model), None
        twin.scorer = self.scorer.on(twin.base)
        return twin

    @contextmanager
    def passing(self, adapter: str | None) -> Iterator[None]:
        """Context manager for a forward pass with autocast and one active adapter (None: without adapters)."""
        if adapter in (None, REFERENCE):
            with active_adapter(self.model, adapter), self.autocast():
                yield
            return
        assert isinstance(self.model, PeftModel)
        if self.model.active_adapter != adapter:  # `set_adapter` is slow, because it iterates over all modules
            self.model.set_adapter(adapter)  # not undone before the backward pass: inactive adapters are frozen
        with self.autocast():
            yield
