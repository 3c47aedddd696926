"""Decoding through transformers' own cache: slower, and right for every decoder that transformers can run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache

from .engine import hidden_states_of
from .samples import Prompt, Tape
from .sampling import Sampling, draw
from .scheduling import Valuer


def decode_plainly(
    core: PreTrainedModel,
    prompts: Sequence[Prompt],
    owners: Sequence[int],
    sampling: Sampling,
    is_stop: NDArray[np.bool_],
    tape: Tape,
    prefill_tokens: int,
    valuer: Valuer | None,
    *,
    is_cached: bool,
) -> None:
    """Complete these prompts and record them under their owners' numbers.

    Prompts of equal length run together, so that no padding and hence no mask is needed: masks are where models differ.

    Args:
        is_cached: whether transformers' cache serves the model; if not, every step passes over all tokens again.
    """
    for numbers in _equal_lengths(prompts, prefill_tokens):
        names = np.array([owners[number] for number in numbers])
        limits = np.array([prompts[number].max_new_tokens for number in numbers])
        ids = torch.from_numpy(np.stack([np.asarray(prompts[number].ids, np.int64) for number in numbers]))
        cache = DynamicCache(config=core.config) if is_cached else None
        is_open = np.ones(len(numbers), bool)
        for step in range(int(limits.max())):
            with hidden_states_of(core) as hidden:
                logits = next_logits(core, ids.to(core.device), cache)
                if step == 0 and valuer is not None:
                    tape.record_values(names, valuer(hidden[0][:, -1], [prompts[n].adapter for n in numbers]))
            noise = tape.noise(names, np.minimum(step, limits - 1))
            drawn = draw(logits, sampling, None if noise is None else noise.to(logits.device))
            tokens = drawn.tokens.cpu().numpy()
            rows = torch.from_numpy(np.flatnonzero(is_open)).to(logits.device)
            tape.record(names[is_open], tokens[is_open], drawn.of(rows))
            is_open &= ~is_stop[tokens] & (step + 1 < limits)
            if not is_open.any():
                break
            new = drawn.tokens[:, None]
            ids = new if is_cached else torch.cat([ids.to(new.device), new], dim=1)


def next_logits(core: PreTrainedModel, ids: Tensor, cache: DynamicCache | None) -> Tensor:
    """Logits [N, V] after the last of the ids [N, T], which follow what the cache holds."""
    kept = {} if cache is None else {"past_key_values": cache}
    logits: Tensor = core(input_ids=ids, use_cache=cache is not None, **kept).logits[:, -1]
    return logits


def _equal_lengths(prompts: Sequence[Prompt], max_tokens: int) -> Iterator[list[int]]:
    """Numbers of prompts that have the same length, at most this many tokens together."""
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for number, prompt in enumerate(prompts):
        groups[len(prompt.ids)].append(number)
    for length, numbers in groups.items():
        size = max(1, max_tokens // length)
        for first in range(0, len(numbers), size):
            yield numbers[first : first + size]
