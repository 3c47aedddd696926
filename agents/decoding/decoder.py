"""Batched decoding with a KV cache.

    decoder = Decoder(model, stop_ids=[tokenizer.eos_token_id])
    samples = decoder.generate([Prompt(ids, stream=(seed, episode, agent, turn), max_new_tokens=64)], Sampling())

A sample depends only on its prompt, its random stream and the weights, not on the rest of the batch. The parts:

- `Scheduler` fills the batch: a sequence that ends makes room for the next prompt.
- `Engine` runs the model: prefill of prompts, then one token per sequence and step.
- `Arena` is the KV cache, with one row per sequence. Rows with a handle stay parked for the next turn of an episode.
- `draw` samples tokens from logits. `DrawRecorder` collects them into samples.
- `decode_by_hf_cache` decodes models that the arena cannot serve.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace

import numpy as np
import torch
from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel

from ..._errors import UserError
from .adapters import AdapterBank, active_adapter, check_adapter
from .base import base_of, computing_type, window_of
from .cpu import packed_weights, patch_layers
from .engine import Engine
from .hf_cache import decode_by_hf_cache
from .samples import DrawRecorder, Prompt, Sample
from .sampling import Sampling
from .scheduler import Scheduler
from .self_check import check_arena, is_cache_exact, is_exact_alone
from .slots import Claim
from .steps.graph_steps import Capture

__all__ = ["Decoder", "Prompt", "Sample"]

FIXED_ROWS = 32  # rows of every step in fixed shapes
PACKED_ROWS, PACKED_STEPS = 3, 32
"""Fewest prompts, and fewest tokens of the longest completion, for which packing weights on a CPU saves time."""
PREFILL_TOKENS = {"cpu": 1536, "cuda": 8192}
"""Tokens per prefill pass, by device: they fill the second-level cache, or keep a GPU busy."""


class Decoder:
    """Samples completions from a causal language model, with or without adapters.

    Args:
        model: any causal language model of transformers, bare or wrapped by peft. It is tested on a few tokens: if the
            arena does not reproduce its logits, decoding falls back to transformers' cache with one warning.
        stop_ids: tokens that end a completion. They are part of it.
        max_slots: most sequences decoded at the same time. As many are parked between calls; the oldest leave first.
        value_head: maps hidden states [N, d] at the last prompt tokens to values [N] or [N, 1].
        kv_memory: memory for the KV cache in GiB. None: 40 % of a GPU's free memory; no limit on a CPU.
        capture: recorder of steps in static shapes, as CUDA graphs. None: steps run eagerly.

    Raises:
        ValueError: if `max_slots` is below 1, a stop token is outside the vocabulary, or the model does not expose the
            hidden states that a value head reads.
    """

    def __init__(
        self,
        model: PreTrainedModel | PeftModel,
        stop_ids: Collection[int],
        *,
        max_slots: int = 128,
        value_head: nn.Module | None = None,
        kv_memory: float | None = None,
        capture: Capture | None = None,
    ) -> None:
        if max_slots < 1:
            raise ValueError(f"max_slots={max_slots} leaves no room for a sequence: use at least 1")
        self._model = model
        self._base = base_of(model)
        patch_layers(self._base)
        if value_head is not None and self._base.base_model is self._base:
            raise ValueError(f"{type(self._base).__name__} does not expose the hidden states that a value head reads")
        self._value_head = value_head
        config = self._base.config.get_text_config(decoder=True)
        self._max_length: int | None = getattr(config, "max_position_embeddings", None)
        self._is_stop = np.zeros(config.vocab_size, np.bool_)
        for token in stop_ids:
            if not 0 <= token < config.vocab_size:
                raise ValueError(f"stop token {token} is outside the vocabulary of {config.vocab_size} tokens")
            self._is_stop[token] = True
        self._prefill_tokens = PREFILL_TOKENS.get(self._base.device.type, PREFILL_TOKENS["cuda"])
        self._engine = Engine(self._base, self._prefill_tokens, kv_memory)
        self._scheduler = Scheduler(self._engine, self._is_stop, max_slots, capture)
        self._bank: AdapterBank | None = None  # of the last call with several adapters
        self._reason = self._why_not_served()
        self._window = None if self._reason else window_of(self._base)
        self._is_cached: bool | None = None  # transformers' cache serves the model; None: not tested yet
        self._has_warned = False
        self._computes = self._base.device, self._base.dtype

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Sample]:
        """Return one sample per prompt, in the order of the prompts.

        Raises:
            ValueError: if a prompt is empty, its limit is below 1, it needs more tokens than the model has positions,
                its adapter is unknown, or two prompts have the same handle.
        """
        if not prompts:
            return []
        # 1) Check the prompts, and drop parked rows that may not be extended.
        self._check(prompts)
        if self._engine.num_fixed:
            prompts = [replace(prompt, parked=None) for prompt in prompts]  # parked rows were computed in other shapes
        computes = self._base.device, computing_type(self._base)
        if computes != self._computes:
            self._computes = computes
            self.forget()
        # 2) Decode: all adapters in one batch if possible, else one batch per adapter.
        recorder = DrawRecorder(prompts, sampling)
        adapters = list(dict.fromkeys(prompt.adapter for prompt in prompts))
        claims = [Claim(owner, prompt) for owner, prompt in enumerate(prompts)]
        reason = self._why_not(prompts)
        is_mixed = len(adapters) > 1 and not self._engine.num_fixed
        with torch.inference_mode(), self._evaluation(), self._engine.casting(), self._packing(prompts):
            if reason is None and is_mixed and AdapterBank.serves(self._model):
                with self._all_adapters(adapters):
                    self._scheduler.run(claims, sampling, recorder, self._value_head)
            else:
                for adapter in adapters:
                    with active_adapter(self._model, adapter):
                        own = [claim for claim in claims if claim.prompt.adapter == adapter]
                        self._complete(own, sampling, recorder, reason)
        # 3) Collect the samples, and note the tokens of parked rows.
        samples = recorder.samples(self._is_stop)
        for prompt, sample in zip(prompts, samples, strict=True):
            if prompt.key is not None:
                ids = np.concatenate([np.asarray(prompt.ids, np.int64), sample.ids[:-1]])
                self._scheduler.remember(prompt.key, ids)
        return samples

    def forget(self) -> None:
        """Drop parked rows and release the KV cache. Required after every change of weights."""
        self._scheduler.release()
        self._bank = None

    def rest(self) -> None:
        """Release the KV cache until the next call."""
        self.forget()

    @property
    def kv_bytes(self) -> int:
        """Current size of the KV cache in bytes."""
        return self._engine.arena.num_bytes

    def fix_shapes(self) -> None:
        """Make samples independent of the batch and of earlier calls, bit for bit.

        Every step then decodes `FIXED_ROWS` rows, prompts are prefilled one by one, and no row is parked.

        Raises:
            ValueError: if the model's rounding still depends on the batch, on this device.
        """
        self._prefill_tokens = 1  # `decode_by_hf_cache` then takes one prompt per batch
        self._scheduler.fix_shapes(FIXED_ROWS)
        if not is_exact_alone(self.generate, len(self._is_stop), self._max_length or 1024):
            raise ValueError(
                f"deterministic=True is not possible: the rounding of {type(self._base).__name__} on "
                f"{self._base.device.type} depends on the batch even in fixed shapes; leave it out"
            )

    @contextmanager
    def _all_adapters(self, adapters: Sequence[str | None]) -> Iterator[None]:
        """Let each row of the batch use its own adapter inside the block."""
        assert isinstance(self._model, PeftModel)
        if self._bank is None or not self._bank.numbers.keys() >= set(adapters):
            self._bank = AdapterBank(self._model, adapters)
        self._engine.bank = self._bank
        try:
            with self._bank.acting():
                yield
        finally:
            self._engine.bank = None

    def _complete(
        self, claims: Sequence[Claim], sampling: Sampling, recorder: DrawRecorder, reason: str | None
    ) -> None:
        """Decode the prompts of one adapter: through the arena, or by transformers' cache if there is a reason."""
        if reason is None:
            self._scheduler.run(claims, sampling, recorder, self._value_head)
            return
        if not self._has_warned:
            self._has_warned = True
            name = type(self._base).__name__
            warnings.warn(f"{name} is decoded by the slower plain loop: {reason}", stacklevel=3)
        if self._is_cached is None:
            self._is_cached = is_cache_exact(self._base)
        decode_by_hf_cache(
            self._base,
            claims,
            sampling,
            self._is_stop,
            recorder,
            self._prefill_tokens,
            self._value_head,
            is_cached=self._is_cached,
        )

    def _packing(self, prompts: Sequence[Prompt]) -> AbstractContextManager[None]:
        """Pack weights if that saves time. In fixed shapes always, so that samples do not depend on the number of
        prompts."""
        is_long = len(prompts) >= PACKED_ROWS and max(prompt.max_new_tokens for prompt in prompts) >= PACKED_STEPS
        return packed_weights(self._base) if is_long or self._engine.num_fixed else nullcontext()

    def _why_not_served(self) -> str | None:
        """The reason why the arena cannot serve the model, found by a test on a few tokens; None if it can."""
        try:
            with torch.inference_mode(), self._evaluation():
                self._engine.kept_per_position = check_arena(self._base)
        except ValueError as error:
            return str(error)
        return None

    def _why_not(self, prompts: Sequence[Prompt]) -> str | None:
        """The reason why the arena cannot serve these prompts; None if it can."""
        longest = max(len(prompt.ids) + prompt.max_new_tokens for prompt in prompts)
        if self._reason is None and self._window is not None and longest > self._window:
            return f"{longest} tokens exceed its attention window of {self._window}"
        return self._reason

    def _check(self, prompts: Sequence[Prompt]) -> None:
        limit = self._max_length
        keys: set[Hashable] = set()
        for number, prompt in enumerate(prompts):
            if len(prompt.ids) == 0:
                raise ValueError(f"prompt {number} has no tokens; a prompt needs at least one")
            check_adapter(self._model, prompt.adapter)
            if prompt.max_new_tokens < 1:
                raise ValueError(f"prompt {number} has max_new_tokens {prompt.max_new_tokens}; use at least 1")
            total = len(prompt.ids) + prompt.max_new_tokens
            if limit is not None and total > limit:
                raise UserError(
                    f"prompt {number} has {len(prompt.ids)} tokens, which with max_new_tokens {prompt.max_new_tokens} "
                    f"makes {total}, above the model's max_position_embeddings {limit}: "
                    "shorten the prompt or lower max_new_tokens"
                )
            if prompt.key is not None:
                if prompt.key in keys:
                    raise ValueError(f"two prompts of one call have the handle {prompt.parked!r}; use one per prompt")
                keys.add(prompt.key)

    @contextmanager
    def _evaluation(self) -> Iterator[None]:
        """Turn off dropout inside the block. Afterwards each module has its own mode again."""
        roots = [self._model] if self._value_head is None else [self._model, self._value_head]
        with ExitStack() as stack:
            for module in (module for root in roots for module in root.modules() if module.training):
                module.training = False
                stack.callback(setattr, module, "training", True)
            yield
