"""Tests of a model on a few tokens: forward passes with and without a KV cache must give the same logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache

from ..batching import sent
from .base import computing_type, next_logits, window_of
from .engine import Engine
from .samples import Prompt, Sample
from .sampling import Sampling
from .slots import Claim, SlotTable

FAILURES = (ArithmeticError, AttributeError, LookupError, NotImplementedError, RuntimeError, TypeError, ValueError)
"""Exceptions that models raise if they do not support a given cache or mask."""


def uses_tf32(base: PreTrainedModel) -> bool:
    """Return True if float32 matrix multiplications of a model on a GPU read 10 bits of each mantissa (TF32)."""
    # PyTorch before 2.9 does not have this setting.
    return base.device.type == "cuda" and getattr(torch.backends.cuda.matmul, "fp32_precision", "") == "tf32"


def tolerance(base: PreTrainedModel) -> float:
    """Return the largest accepted rounding error of a model's outputs, relative to the largest output."""
    return {torch.float64: 1e-8, torch.float32: 0.01 if uses_tf32(base) else 5e-5}.get(computing_type(base), 0.05)


def check_arena(base: PreTrainedModel) -> int:
    """Raise `ValueError` with the reason if logits with the decoder's KV cache differ from logits without a cache.

    Returns:
        Number of elements in the keys and values of one token, in all layers.
    """
    window_of(base)
    if base.config.is_encoder_decoder or base.base_model is base:
        raise ValueError("the model is not a decoder with a separate output head")
    config = base.config.get_text_config(decoder=True)
    longest = getattr(config, "max_position_embeddings", None) or 23
    ids = [(np.arange(length) * 7 + 3 * length) % config.vocab_size for length in (11, 4, min(23, longest))]
    engine = Engine(base, prefill_tokens=64)
    try:
        worst, scale = _largest_difference(engine, ids)
    except FAILURES as error:
        raise ValueError(f"a forward pass with the KV cache raises {type(error).__name__}: {error}") from error
    if not worst <= tolerance(base) * scale:
        raise ValueError(f"logits with the KV cache have errors up to {worst:.2g}; the largest logit is {scale:.2g}")
    stores = [store for layer in engine.arena.layers for store in (layer.keys, layer.values)]
    return sum(store.shape[1] * store.shape[3] for store in stores)


def is_cache_exact(base: PreTrainedModel) -> bool:
    """Return True if decoding with transformers' cache gives the same logits as a forward pass without a cache."""
    # Some models expect a cache in another argument. They ignore `past_key_values`, and see only the newest tokens.
    ids = torch.arange(3, 12, device=base.device)[None] % base.config.get_text_config(decoder=True).vocab_size
    expected = base(input_ids=ids, use_cache=False).logits[:, -1]
    try:
        cache = DynamicCache(config=base.config)
        for part in (ids[:, :6], ids[:, 6:7], ids[:, 7:8], ids[:, 8:]):
            logits = next_logits(base, part, cache)
    except FAILURES:
        return False
    return bool((logits - expected).abs().max() <= tolerance(base) * expected.abs().max())


def is_exact_alone(generate: Callable[[Sequence[Prompt], Sampling], list[Sample]], vocab_size: int, limit: int) -> bool:
    """Return True if `generate` returns bitwise equal samples for prompts alone and for the same prompts in a batch."""
    lengths = [min(length, limit - 3) for length in (5, 70, 17, 130)]
    prompts = [Prompt((np.arange(n) * 7 + 3 * n) % vocab_size, (), max_new_tokens=3) for n in lengths]
    together = generate(prompts, Sampling(greedy=True))
    alone = [generate([prompt], Sampling(greedy=True))[0] for prompt in prompts]
    return all(
        np.array_equal(one.ids, other.ids)
        and np.array_equal(one.logprobs, other.logprobs)
        and np.array_equal(one.entropies, other.entropies)
        for one, other in zip(together, alone, strict=True)
    )


def _largest_difference(engine: Engine, sequences: list[NDArray[np.int64]]) -> tuple[float, float]:
    """Return the largest absolute error of a logit with the KV cache, and the largest absolute logit."""
    base = engine.base
    engine.arena.reserve(len(sequences), max(map(len, sequences)))
    table = SlotTable(len(sequences))
    plain = [base(input_ids=torch.from_numpy(ids)[None].to(base.device)).logits[0] for ids in sequences]
    worst, scale = 0.0, max(float(logits.abs().max()) for logits in plain)
    for fractions in ((0.3, 0.5), (0.8, 1.0)):
        cuts = [max(1, int(len(ids) * fractions[0])) for ids in sequences]
        ends = [int(len(ids) * fractions[1]) for ids in sequences]
        claims = [
            Claim(owner, Prompt(ids[:cut], (), max_new_tokens=end - cut + 1, parked=owner))
            for owner, (ids, cut, end) in enumerate(zip(sequences, cuts, ends, strict=True))
        ]
        seats = table.admit(claims, ())
        engine.move(table.take_moves())
        engine.prefill(seats)
        while table.num_active:
            count = table.num_active
            tokens, columns = sent(np.stack([table.token[:count], table.column[:count]]), base.device)
            logits = engine.step(tokens, columns, table.width)
            for row in range(count):
                expected = plain[table.owner[row]][table.column[row]]
                worst = max(worst, float((logits[row] - expected).abs().max()))
            table.column[:count] += 1
            done = np.flatnonzero(table.column[:count] >= table.end[:count])
            for row in np.flatnonzero(table.column[:count] < table.end[:count]).tolist():
                table.token[row] = sequences[table.owner[row]][table.column[row]]
            table.retire(done.tolist())
            engine.move(table.take_moves())
        for claim, ids, end in zip(claims, sequences, ends, strict=True):
            assert claim.prompt.key is not None
            table.remember(claim.prompt.key, ids[:end])
    return worst, scale
