"""Batched decoding with a KV cache.

    decoder = Decoder(model, stop_ids=[tokenizer.eos_token_id])
    samples = decoder.generate([Prompt(ids, stream=(seed, episode, agent, turn), max_new_tokens=64)], Sampling())

A sample depends only on its prompt, its random stream and the weights, up to rounding; after `fix_shapes` bitwise.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import cache, partial

import numpy as np
import torch
from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache

from ..._errors import UserError
from ..._progress import advance, expect, phase
from ..batching import sent
from .adapters import AdapterBank, active_adapter, check_adapter
from .base import base_of, computing_type, context_of, hidden_states_of, next_logits, window_of
from .cpu import packed_weights, patch_layers
from .engine import Engine
from .samples import DrawRecorder, Prompt, Sample
from .sampling import Sampling, draw
from .scheduler import Scheduler
from .self_check import NUM_TESTED, check_arena, is_cache_exact, is_exact_alone
from .slots import Claim
from .steps.graph_steps import Capture

__all__ = ["Decoder", "Prompt", "Sample"]

FIXED_ROWS = 32  # rows of every decoding step after `fix_shapes`
PACKED_ROWS, PACKED_STEPS = 3, 32  # with fewer prompts or shorter completions, packing weights on a CPU saves no time
PREFILL_TOKENS = {"cpu": 1536, "cuda": 8192}  # limit per prefill pass: fits a CPU's L2 cache, and keeps a GPU busy


class Decoder:
    """Sampler of completions from a causal language model, with or without adapters.

    Args:
        model: causal language model of transformers, with or without peft's wrapper. If logits with the decoder's KV
            cache are wrong in a test on a few tokens, `generate` warns and uses transformers' cache or no cache.
        stop_ids: tokens that end a completion. The completion includes its stop token.
        max_slots: maximum number of sequences in a decoding step. Twice this number may stay cached between calls.
        value_head: maps hidden states [N, d] at the last prompt tokens to values [N] or [N, 1].
        kv_memory: memory of the KV cache in GiB. None: 40 % of a GPU's free memory; no limit on a CPU.
        capture: recorder of decoding steps as CUDA graphs. None: steps run eagerly.
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
            raise ValueError(f"max_slots={max_slots} must be at least 1, because each sequence needs a slot")
        self._model = model
        self._base = base_of(model)
        patch_layers(self._base)
        self._value_head = value_head
        config = self._base.config.get_text_config(decoder=True)
        self._max_length = context_of(config)
        self._is_stop = np.zeros(config.vocab_size, np.bool_)
        for token in stop_ids:
            if not 0 <= token < config.vocab_size:
                raise ValueError(f"stop token {token} is outside the vocabulary of {config.vocab_size} tokens")
            self._is_stop[token] = True
        self._prefill_tokens = PREFILL_TOKENS.get(self._base.device.type, PREFILL_TOKENS["cuda"])
        self._engine = Engine(self._base, self._prefill_tokens, kv_memory)
        self._scheduler = Scheduler(self._engine, self._is_stop, max_slots, capture)
        self._bank: AdapterBank | None = None  # bank of the last call with several adapters
        self._reason: str | None = None  # reason why the decoder's KV cache is not used; None: the cache is used
        self._window = window_of(self._base)
        try:
            with torch.inference_mode(), self._evaluation():
                self._engine.kept_per_position = check_arena(self._base)
        except ValueError as error:
            self._reason = str(error)
        self._is_exact = cache(partial(is_cache_exact, self._base))  # by the number of tokens in the test
        self._has_warned = False
        self._computes = self._base.device, self._base.dtype

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Sample]:
        """Return one sample per prompt, in the order of the prompts. Raise `ValueError` if a prompt is not valid."""
        if not prompts:
            return []
        # 1) Check the prompts, and clear caches after a change of the device or of the compute type.
        self._check(prompts)
        if self._engine.num_fixed:
            prompts = [replace(prompt, parked=None) for prompt in prompts]  # their KV cache has other shapes
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
        is_long = len(prompts) >= PACKED_ROWS and max(prompt.max_new_tokens for prompt in prompts) >= PACKED_STEPS
        # With fixed shapes, weights are always packed, so that samples do not depend on the number of prompts.
        packing = packed_weights(self._base) if is_long or self._engine.num_fixed else nullcontext()
        with torch.inference_mode(), self._evaluation(), self._engine.casting(), packing, phase("decode", "tokens"):
            expect(sum(prompt.max_new_tokens for prompt in prompts))
            if reason is None and is_mixed and AdapterBank.serves(self._model):
                with self._all_adapters(adapters):
                    self._scheduler.run(claims, sampling, recorder, self._value_head)
            else:
                for adapter in adapters:
                    with active_adapter(self._model, adapter):
                        own = [claim for claim in claims if claim.prompt.adapter == adapter]
                        for part in self._parts(own):
                            self._complete(part, sampling, recorder)
        # 3) Collect the samples, and store the token ids of sequences that stay cached.
        samples = recorder.samples(self._is_stop)
        for prompt, sample in zip(prompts, samples, strict=True):
            if prompt.key is not None:
                ids = np.concatenate([np.asarray(prompt.ids, np.int64), sample.ids[:-1]])
                self._scheduler.remember(prompt.key, ids)
        return samples

    def forget(self) -> None:
        """Release the KV cache and its sequences. Must be called after every change of the weights."""
        self._scheduler.release()
        self._bank = None

    def rest(self) -> None:
        self.forget()

    @property
    def kv_bytes(self) -> int:
        return self._engine.arena.num_bytes

    def fix_shapes(self) -> None:
        """Use fixed batch shapes, so that no sample depends on the batch. Raise `ValueError` if impossible."""
        # Every step decodes `FIXED_ROWS` rows, prompts are prefilled one by one, and no row is kept between calls.
        self._prefill_tokens = 1  # then `_decode_by_hf_cache` decodes one prompt per batch
        self._scheduler.fix_shapes(FIXED_ROWS)
        if not is_exact_alone(self.generate, len(self._is_stop), self._max_length or 1024):
            raise ValueError(
                f"deterministic=True is not possible: the rounding of {type(self._base).__name__} on "
                f"{self._base.device.type} depends on the batch even with fixed shapes; remove deterministic=True"
            )

    @contextmanager
    def _all_adapters(self, adapters: Sequence[str | None]) -> Iterator[None]:
        assert isinstance(self._model, PeftModel)
        if self._bank is None or not self._bank.numbers.keys() >= set(adapters):
            self._bank = AdapterBank(self._model, adapters)
        self._engine.bank = self._bank
        try:
            with self._bank.acting():
                yield
        finally:
            self._engine.bank = None

    def _parts(self, claims: Sequence[Claim]) -> list[list[Claim]]:
        """With fixed shapes, split prompts (claims) by KV cache, so that no prompt changes the cache of the others."""
        if not self._engine.num_fixed:
            return [list(claims)]
        parts: dict[bool, list[Claim]] = {}
        for claim in claims:
            parts.setdefault(self._why_not([claim.prompt]) is None, []).append(claim)
        return list(parts.values())

    def _complete(self, claims: Sequence[Claim], sampling: Sampling, recorder: DrawRecorder) -> None:
        """Decode prompts of one adapter with the decoder's KV cache, or more slowly with transformers' cache."""
        reason = self._why_not([claim.prompt for claim in claims])
        if reason is None:
            self._scheduler.run(claims, sampling, recorder, self._value_head)
            return
        if not self._has_warned:
            self._has_warned = True
            name = type(self._base).__name__
            warnings.warn(f"{name} is decoded by a slower plain loop, because {reason}", stacklevel=3)
        for batch in _equal_lengths(claims, self._prefill_tokens):
            self._decode_by_hf_cache(batch, sampling, recorder)

    def _decode_by_hf_cache(self, claims: Sequence[Claim], sampling: Sampling, recorder: DrawRecorder) -> None:
        """Decode prompts of equal length, because models expect different masks for padding."""
        owners = np.array([claim.owner for claim in claims])
        limits = np.array([claim.prompt.max_new_tokens for claim in claims])
        ids = torch.from_numpy(np.stack([claim.ids for claim in claims]))
        window = self._window or 0
        num_tested = NUM_TESTED if ids.shape[1] + limits.max() <= window else NUM_TESTED + window
        is_cached = self._is_exact(min(num_tested, self._max_length or num_tested))
        kept = DynamicCache(config=self._base.config) if is_cached else None  # None: compute all tokens again
        is_open = np.ones(len(claims), bool)
        noise = recorder.noise
        with hidden_states_of(self._base) as hidden:
            for step in range(int(limits.max())):
                logits = next_logits(self._base, sent(ids, self._base.device), kept)
                if step == 0 and self._value_head is not None:
                    recorder.record_values(owners, self._value_head(hidden[0][:, -1]))
                own_noise = None if noise is None else sent(noise[owners, np.minimum(step, limits - 1)], logits.device)
                drawn = draw(logits, sampling, own_noise)
                tokens = drawn.tokens.cpu().numpy()
                recorder.record(np.where(is_open, owners, -1), tokens, drawn)
                advance(int(is_open.sum()))
                is_open &= ~self._is_stop[tokens] & (step + 1 < limits)
                if not is_open.any():
                    break
                new = drawn.tokens[:, None]
                ids = new if is_cached else torch.cat([sent(ids, new.device), new], dim=1)

    def _why_not(self, prompts: Sequence[Prompt]) -> str | None:
        """Return the reason why the decoder's KV cache cannot be used for these prompts. None: it can be used."""
        longest = max(len(prompt.ids) + prompt.max_new_tokens for prompt in prompts)
        if self._reason is None and self._window is not None and longest > self._window:
            return f"{longest} tokens exceed the model's attention window of {self._window}"
        return self._reason

    def _check(self, prompts: Sequence[Prompt]) -> None:
        limit = self._max_length
        keys: set[Hashable] = set()
        for number, prompt in enumerate(prompts):
            if len(prompt.ids) == 0:
                raise ValueError(f"prompt {number} has no tokens; a prompt needs at least one token")
            check_adapter(self._model, prompt.adapter)
            if prompt.max_new_tokens < 1:
                raise ValueError(f"prompt {number} has max_new_tokens {prompt.max_new_tokens}; use at least 1")
            total = len(prompt.ids) + prompt.max_new_tokens
            if limit is not None and total > limit:
                raise UserError(
                    f"prompt {number} has {len(prompt.ids)} tokens; with max_new_tokens {prompt.max_new_tokens} "
                    f"these are {total}, more than the model's max_position_embeddings {limit}: "
                    "shorten the prompt or lower max_new_tokens"
                )
            if prompt.key is not None:
                if prompt.key in keys:
                    raise ValueError(
                        f"two prompts of one call have the handle {prompt.parked!r} (parked); use a handle per prompt"
                    )
                keys.add(prompt.key)

    @contextmanager
    def _evaluation(self) -> Iterator[None]:
        """Context manager in which all modules are in evaluation mode, for example without dropout."""
        roots = [self._model] if self._value_head is None else [self._model, self._value_head]
        with ExitStack() as stack:
            for module in (module for root in roots for module in root.modules() if module.training):
                module.training = False
                stack.callback(setattr, module, "training", True)
            yield


def _equal_lengths(claims: Sequence[Claim], max_tokens: int) -> Iterator[list[Claim]]:
    groups: defaultdict[int, list[Claim]] = defaultdict(list)
    for claim in claims:
        groups[len(claim.prompt.ids)].append(claim)
    for length, group in groups.items():
        size = max(1, max_tokens // length)
        for first in range(0, len(group), size):
            yield group[first : first + size]
