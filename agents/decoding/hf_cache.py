"""Slower decoding with transformers' KV cache, for models that do not work with `Arena`, the decoder's KV cache."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache

from ..batching import sent
from .base import hidden_states_of, next_logits
from .samples import DrawRecorder
from .sampling import Sampling, draw
from .slots import Claim


def decode_by_hf_cache(
    base: PreTrainedModel,
    claims: Sequence[Claim],
    sampling: Sampling,
    is_stop: NDArray[np.bool_],
    recorder: DrawRecorder,
    prefill_tokens: int,
    value_head: nn.Module | None,
    *,
    is_cached: bool,
) -> None:
    """Complete all prompts (claims) and record the sampled tokens.

    The prompts of a batch have equal lengths. Padding would need a mask, and models expect different masks. If
    `is_cached` is False, transformers' cache does not work, and every step computes all tokens again.
    """
    for batch in _equal_lengths(claims, prefill_tokens):
        owners = np.array([claim.owner for claim in batch])
        limits = np.array([claim.prompt.max_new_tokens for claim in batch])
        ids = torch.from_numpy(np.stack([claim.ids for claim in batch]))
        cache = DynamicCache(config=base.config) if is_cached else None
        is_open = np.ones(len(batch), bool)
        for step in range(int(limits.max())):
            with hidden_states_of(base) as hidden:
                logits = next_logits(base, sent(ids, base.device), cache)
                if step == 0 and value_head is not None:
                    recorder.record_values(owners, value_head(hidden[0][:, -1]))
            noise = recorder.noise
            own_noise = None if noise is None else sent(noise[owners, np.minimum(step, limits - 1)], logits.device)
            drawn = draw(logits, sampling, own_noise)
            tokens = drawn.tokens.cpu().numpy()
            recorder.record(np.where(is_open, owners, -1), tokens, drawn)
            is_open &= ~is_stop[tokens] & (step + 1 < limits)
            if not is_open.any():
                break
            new = drawn.tokens[:, None]
            ids = new if is_cached else torch.cat([sent(ids, new.device), new], dim=1)


def _equal_lengths(claims: Sequence[Claim], max_tokens: int) -> Iterator[list[Claim]]:
    groups: defaultdict[int, list[Claim]] = defaultdict(list)
    for claim in claims:
        groups[len(claim.prompt.ids)].append(claim)
    for length, group in groups.items():
        size = max(1, max_tokens // length)
        for first in range(0, len(group), size):
            yield group[first : first + size]
