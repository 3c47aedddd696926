"""Batched decoding: many prompts in, one sample each out, whatever else is in the batch.

    decoder = Decoder(model, stop_ids=[tokenizer.eos_token_id])
    samples = decoder.generate([Prompt(ids, stream=(seed, episode, agent, turn), max_new_tokens=64)], Sampling())

Rows leave the batch when they end and new ones take their place; rows parked between turns are extended by what was
appended. A sample depends on its prompt, its stream and the weights alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel

from ..._errors import UserError
from .adapters import AdapterBank, active_adapter, check_adapter, values_of
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

FIXED_ROWS = 32  # of every step in fixed shapes
PACKED_ROWS, PACKED_STEPS = 3, 32
"""Sequences, and tokens of the longest, that are worth to pack weights for on a CPU."""
PREFILL_TOKENS = {"cpu": 1536, "cuda": 8192}  # a pass that fills the second-level cache, or the GPU


class Decoder:
    """Samples completions from one causal language model, with or without adapters on it."""

    def __init__(
        self,
        model: PreTrainedModel | PeftModel,
        stop_ids: Collection[int],
        *,
        max_slots: int = 128,
        max_parked: int | None = None,
        prefill_tokens: int | None = None,
        value_head: nn.Module | Mapping[str | None, nn.Module] | None = None,
        kv_memory: float | None = None,
        capture: Capture | None = None,
    ) -> None:
        """Check on the model itself whether the fast path is exact for it, and warn once if it is not.

        Args:
            model: any causal language model of transformers, bare or wrapped by peft.
            stop_ids: tokens that end a completion; the token itself belongs to it.
            max_slots: sequences decoded at the same time.
            max_parked: sequences kept between calls beyond that, the oldest leaving first; None is `max_slots`.
            prefill_tokens: most tokens in one pass over prompts; None chooses by device.
            value_head: maps the hidden state [N, d] at the last prompt token to [N] or [N, 1]; or one for each adapter.
            kv_memory: GiB that keys and values may take, from which the number of sequences follows; None: what
                `Engine` thinks right.
            capture: records steps of the arena, in static shapes, so that a device can be given a whole step at once;
                None: the host starts kernel by kernel.

        Raises:
            ValueError: if a limit is below 1, a stop token outside the vocabulary, or the model shows a value head no
                hidden states.
        """
        if max_slots < 1:
            raise ValueError(f"max_slots {max_slots} leaves no room for a sequence: use at least 1")
        self._model = model
        self._base = base_of(model)
        patch_layers(self._base)
        if value_head is not None and self._base.base_model is self._base:
            raise ValueError(f"{type(self._base).__name__} does not show the hidden states that a value head reads")
        self._heads = value_head
        self._valuer = None if value_head is None else partial(values_of, value_head)
        self._is_stop = self._stop_table(stop_ids)
        self._prefill_tokens = prefill_tokens or PREFILL_TOKENS.get(self._base.device.type, PREFILL_TOKENS["cuda"])
        self._engine = Engine(self._base, self._prefill_tokens, kv_memory)
        num_parked = max_slots if max_parked is None else max_parked
        self._scheduler = Scheduler(self._engine, self._is_stop, max_slots, num_parked, capture)
        self._bank: AdapterBank | None = None  # of the newest call that needed one
        self._reason = self._why_not_served()
        self._window = None if self._reason else window_of(self._base)
        self._is_cached: bool | None = None  # by the plain loop; None until that is needed
        self._has_warned = False
        self._computes = self._base.device, self._base.dtype

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Sample]:
        """One sample for each prompt, in their order.

        Raises:
            ValueError: for an empty prompt, a limit below 1, two prompts with one handle, an unknown adapter, or more
                tokens than the model has positions.
        """
        if not prompts:
            return []
        self._check(prompts)
        if self._engine.num_fixed:
            # What is parked was computed in other shapes than what is filled anew, and may have left by then.
            prompts = [replace(prompt, parked=None) for prompt in prompts]
        self._follow_type_and_device()
        recorder = DrawRecorder(prompts, sampling)
        adapters = list(dict.fromkeys(prompt.adapter for prompt in prompts))
        claims = [Claim(owner, prompt) for owner, prompt in enumerate(prompts)]
        reason = self._why_not(prompts)
        with torch.inference_mode(), self._evaluation(), self._engine.casting(), self._packing(prompts):
            is_mixed = len(adapters) > 1 and not self._engine.num_fixed
            if reason is None and is_mixed and AdapterBank.serves(self._model):
                assert isinstance(self._model, PeftModel)
                if self._bank is None or not self._bank.holds(adapters):
                    self._bank = AdapterBank(self._model, adapters)
                self._engine.bank = self._bank
                try:
                    with self._engine.bank.acting():
                        self._scheduler.run(claims, sampling, recorder, self._valuer)
                finally:
                    self._engine.bank = None
            else:
                for adapter in adapters:
                    with active_adapter(self._model, adapter):
                        own = [claim for claim in claims if claim.prompt.adapter == adapter]
                        self._complete(own, sampling, recorder, reason)
        samples = recorder.samples(self._is_stop)
        for prompt, sample in zip(prompts, samples, strict=True):
            if prompt.key is not None:
                ids = np.concatenate([np.asarray(prompt.ids, np.int64), sample.ids[:-1]])
                self._scheduler.remember(prompt.key, ids)
        return samples

    def forget(self) -> None:
        """Drop what is parked, and give its memory back; necessary after every change of weights."""
        self._release()

    def rest(self) -> None:
        """Give the memory of keys and values back, until something is generated again."""
        self._release()

    @property
    def kv_bytes(self) -> int:
        """Memory that keys and values take at the moment."""
        return self._engine.arena.num_bytes

    def fix_shapes(self) -> None:
        """From here on, no sample depends on the others by a single bit, nor on what was sampled before.

        Every step decodes `FIXED_ROWS` rows, prompts are read one by one, and nothing is parked.

        Raises:
            ValueError: if this model still rounds by what else is in the batch, on this device.
        """
        self._prefill_tokens = 1  # for the plain loop: one prompt per batch
        self._scheduler.fix_shapes(FIXED_ROWS)
        if not is_exact_alone(self.generate, len(self._is_stop), self._limit() or 1024):
            raise ValueError(
                f"{type(self._base).__name__} rounds by what else is in the batch even in fixed shapes, on "
                f"{self._base.device.type}; leave deterministic=True out"
            )

    def _complete(
        self, claims: Sequence[Claim], sampling: Sampling, recorder: DrawRecorder, reason: str | None
    ) -> None:
        """Complete the prompts of one adapter, through the arena unless there is a reason against it."""
        if reason is None:
            self._scheduler.run(claims, sampling, recorder, self._valuer)
            return
        self._warn(reason)
        if self._is_cached is None:
            self._is_cached = is_cache_exact(self._base)
        decode_by_hf_cache(
            self._base,
            claims,
            sampling,
            self._is_stop,
            recorder,
            self._prefill_tokens,
            self._valuer,
            is_cached=self._is_cached,
        )

    def _packing(self, prompts: Sequence[Prompt]) -> AbstractContextManager[None]:
        """Packed weights where they gain; in fixed shapes always, as no sample may depend on how many there are."""
        is_long = len(prompts) >= PACKED_ROWS and max(prompt.max_new_tokens for prompt in prompts) >= PACKED_STEPS
        return packed_weights(self._base) if is_long or self._engine.num_fixed else nullcontext()

    def _release(self) -> None:
        self._scheduler.release()
        self._bank = None

    def _follow_type_and_device(self) -> None:
        """Drop parked rows if the model, or autocast, now computes in another type or place than they have."""
        computes = self._base.device, computing_type(self._base)
        if computes != self._computes:
            self._computes = computes
            self._release()

    def _why_not(self, prompts: Sequence[Prompt]) -> str | None:
        """Why the arena must not serve these prompts; None if it may."""
        longest = max(len(prompt.ids) + prompt.max_new_tokens for prompt in prompts)
        if self._reason is None and self._window is not None and longest > self._window:
            return f"{longest} tokens exceed its attention window of {self._window}"
        return self._reason

    def _check(self, prompts: Sequence[Prompt]) -> None:
        limit = self._limit()
        keys: set[Hashable] = set()
        for number, prompt in enumerate(prompts):
            if len(prompt.ids) == 0:
                raise ValueError(f"prompt {number} has no tokens: a completion needs at least one to follow")
            check_adapter(self._model, prompt.adapter)
            if prompt.max_new_tokens < 1:
                raise ValueError(f"prompt {number} has max_new_tokens {prompt.max_new_tokens}: use at least 1")
            total = len(prompt.ids) + prompt.max_new_tokens
            if limit is not None and total > limit:
                raise UserError(
                    f"prompt {number} has {len(prompt.ids)} tokens, which with max_new_tokens {prompt.max_new_tokens} "
                    f"makes {total}, above the model's max_position_embeddings {limit}: "
                    "shorten the prompt or lower max_new_tokens"
                )
            if prompt.key is not None:
                if prompt.key in keys:
                    raise ValueError(f"two prompts of one call share the handle {prompt.parked!r}: use one for each")
                keys.add(prompt.key)

    def _limit(self) -> int | None:
        """Positions that the model has; None where it sets no limit."""
        config = self._base.config.get_text_config(decoder=True)
        limit: int | None = getattr(config, "max_position_embeddings", None)
        return limit

    def _stop_table(self, stop_ids: Collection[int]) -> NDArray[np.bool_]:
        size = self._base.config.get_text_config(decoder=True).vocab_size
        table = np.zeros(size, np.bool_)
        for token in stop_ids:
            if not 0 <= token < size:
                raise ValueError(f"stop token {token} is outside the vocabulary of {size} tokens")
            table[token] = True
        return table

    def _why_not_served(self) -> str | None:
        try:
            with torch.inference_mode(), self._evaluation():
                self._engine.kept_per_position = check_arena(self._base)
        except ValueError as error:
            return str(error)
        return None

    def _warn(self, reason: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            name = type(self._base).__name__
            warnings.warn(f"{name} is decoded by the slower plain loop: {reason}", stacklevel=4)

    @contextmanager
    def _evaluation(self) -> Iterator[None]:
        """Dropout off inside the block; every module's mode is restored."""
        roots: list[nn.Module] = [self._model]
        if isinstance(self._heads, Mapping):
            roots += self._heads.values()
        elif self._heads is not None:
            roots.append(self._heads)
        with ExitStack() as stack:
            for module in (module for root in roots for module in root.modules() if module.training):
                module.training = False
                stack.callback(setattr, module, "training", True)
            yield
