"""Causal language models with their tokenizer, decoder and scorer."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from peft import PeftModel
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..decoding.adapters import active_adapter
from ..decoding.base import base_of
from ..decoding.decoder import Decoder
from ..decoding.samples import Generator
from ..decoding.steps.graph_steps import CudaGraphs
from ..encoding import Encoder
from ..scoring.recomputing import recompute_layers
from ..scoring.scorer import Scorer
from ..scoring.sharding import Shards
from ..vllm.server import Serving, VLLMServer


class LanguageModel:
    """A causal language model with its generator and scorer, which policies of equal or adapted weights share.

    Args:
        model: transformers' model, or peft's wrapper around it.
        tokenizer: the model's.
        is_chat: feed messages through the tokenizer's chat template; False feeds plain text.
        compute_dtype: type of forward passes, by autocast; None computes in the weights' own type. Weights that learn
            should be fp32: at learning rates near 1e-6 most updates of a bf16 weight round to nothing.
        recomputes_activations: run layers again in the backward pass, instead of keeping their activations.
        template_kwargs: passed to the chat template.
        sampler: the decoder of this process, without ("arena") or with CUDA graphs ("graphs").
        serving: the vLLM servers that sample; None samples here.
        kv_memory: GiB for keys and values while decoding; None: by device.
    """

    def __init__(
        self,
        model: PreTrainedModel | PeftModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        is_chat: bool = False,
        compute_dtype: torch.dtype | None = None,
        recomputes_activations: bool = False,
        template_kwargs: dict[str, Any] | None = None,
        sampler: str = "arena",
        serving: Serving | None = None,
        kv_memory: float | None = None,
    ):
        if recomputes_activations:
            recompute_layers(base_of(model))
        self.recomputes_activations = recomputes_activations
        self.model = model.eval()  # dropout would make the update score another distribution than was sampled
        self.base = base_of(model)
        self.num_weights = sum(weight.numel() for weight in self.base.parameters())
        self.encoder = Encoder(tokenizer, is_chat=is_chat, template_kwargs=template_kwargs)
        self.compute_dtype = compute_dtype
        self.scorer = Scorer(self.base)
        self.sampler = sampler
        self.serving = serving
        self.kv_memory = kv_memory
        self.generator = self.generator_with(None)
        self._shards: Shards | None = None

    def generator_with(self, value_head: nn.Module | None) -> Generator:
        """The generator of completions, which also values their prompts if there is a head."""
        if self.serving is None:
            capture = CudaGraphs(self.device) if self.sampler == "graphs" else None
            return Decoder(
                self.model, self.encoder.stop_ids, value_head=value_head, kv_memory=self.kv_memory, capture=capture
            )
        return VLLMServer(self.serving, self.model, self.scorer, self.encoder.stop_ids, value_head=value_head)

    @property
    def device(self) -> torch.device:
        return self.base.device

    @property
    def learned(self) -> nn.Module:
        """The module that the optimizer changes: the model, or its sharded twin, whose weights have the same names."""
        return self.model if self._shards is None else self._shards.module

    def shard(self, mesh: DeviceMesh) -> None:
        """Shard the weights over ranks. A model that learns keeps a copy to decode with, unless a server decodes.

        A base with adapters is not sharded: its copy would be all of it.
        """
        if self._shards is not None or isinstance(self.model, PeftModel):
            return
        decodes = self.serving is None and any(weight.requires_grad for weight in self.model.parameters())
        self._shards = Shards(self.model, mesh, self.compute_dtype, keeps_copy=decodes)
        self.scorer = self.scorer.on(self._shards.module, self._shards)

    def refresh(self) -> None:
        """Copy the current weights to the decoder."""
        if self._shards is not None:
            self._shards.refresh()

    @property
    def shards(self) -> Shards | None:
        """The sharded twin; None if the weights are not sharded."""
        return self._shards

    @contextmanager
    def whole(self, *, on_all: bool = False) -> Iterator[None]:
        """See `Learnable.whole`.

        Args:
            on_all: gather all weights on all ranks.
        """
        if self._shards is None:
            yield
            return
        with self._shards.whole(on_all=on_all):
            shards, self._shards = self._shards, None
            try:
                yield
            finally:
                self._shards = shards

    def autocast(self) -> torch.autocast:
        """The context of every forward pass."""
        return torch.autocast(self.device.type, dtype=self.compute_dtype, enabled=self.compute_dtype is not None)

    def of(self, model: PreTrainedModel | PeftModel) -> LanguageModel:
        """A twin with a copy of the model, for scoring."""
        twin = copy.copy(self)
        twin.model, twin.base, twin._shards = model, base_of(model), None
        twin.scorer = self.scorer.on(twin.base)
        return twin

    @contextmanager
    def passing(self, adapter: str | None) -> Iterator[None]:
        """Context of a scored forward pass: its data type and its active adapter; None: no adapter."""
        if adapter is None:
            with active_adapter(self.model, None), self.autocast():
                yield
            return
        assert isinstance(self.model, PeftModel)
        if self.model.active_adapter != adapter:  # peft walks all modules and weights
            self.model.set_adapter(adapter)  # stays set, so that the backward pass finds its weights learning
        with self.autocast():
            yield
