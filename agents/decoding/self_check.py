"""Tests of a model on a few tokens: forward passes with and without a KV cache must give the same logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache

from ..._errors import UserError
from ..batching import sent
from .base import check_layers, computing_type, context_of, hidden_states_of, next_logits
from .cpu import FAILURES
from .engine import Engine
from .samples import Prompt, Sample
from .sampling import Sampling
from .slots import Claim, SlotTable

NUM_TESTED, NUM_STEPS = 24, 16  # number of tokens in a test, and of tokens that are decoded one by one


def tolerance(base: PreTrainedModel) -> float:
    """Return the largest accepted rounding error of a model's outputs, relative to the largest output."""
    # TF32: matmuls of float32 on a GPU read 10 bits of each mantissa. PyTorch before 2.9 does not have this setting.
    is_tf32 = base.device.type == "cuda" and getattr(torch.backends.cuda.matmul, "fp32_precision", "") == "tf32"
    return {torch.float64: 1e-8, torch.float32: 0.01 if is_tf32 else 5e-5}.get(computing_type(base), 0.05)


def check_causal(model: PreTrainedModel) -> int:
    """Return the number of hidden units per token of a model with or without output head.

    Raises:
        UserError: if a pass on token ids alone raises an error, or if outputs depend on later tokens or their number.
    """
    name, config = type(model).__name__, model.config.get_text_config(decoder=True)
    length = max(2, min(6, context_of(config) or 6))
    ids = torch.arange(2 * length, device=model.device).view(2, length) % config.vocab_size
    ids[1, : length // 2] = ids[0, : length // 2]  # the two rows have the same beginning
    learned = [weight for weight in model.parameters() if weight.requires_grad and weight.numel() <= 2**16]
    try:
        with hidden_states_of(model) as states:
            outputs = model(input_ids=ids, use_cache=False)[0]
            shape = states[0].shape
        if learned:
            torch.autograd.grad(outputs.sum(), learned, allow_unused=True)
        alone = model(input_ids=ids[:1, : length // 2], use_cache=False)[0]
    except (*FAILURES, ImportError) as error:
        cause = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise UserError(
            f"{name} cannot be trained on token ids alone ({cause}); give a causal language model for text, or other "
            "lora_target_modules for adapters"
        ) from error
    if not outputs.isfinite().all():
        raise UserError(f"{name} has outputs that are not finite for a few tokens; correct its weights or config.json")
    if not shape[:2] == outputs.shape[:2] == ids.shape:
        raise UserError(f"{name} has hidden states of shape {tuple(shape)}, not one row per token; give another model")
    first, second = outputs[:, : length // 2]
    # The median, because a rounding error may select another expert for a token if the number of tokens differs.
    changes = (first - second).abs().amax(), (first - alone[0]).abs().amax(dim=-1).median()
    if max(changes) > tolerance(model) * outputs.abs().max():
        raise UserError(f"{name} is not causal: outputs depend on later tokens; give a causal language model")
    return int(shape[2])


def check_arena(base: PreTrainedModel) -> int:
    """Raise `ValueError` with the reason if logits with the decoder's KV cache differ from logits without a cache.

    Returns:
        Number of elements in the keys and values of one token, in all layers.
    """
    check_layers(base)
    config = base.config.get_text_config(decoder=True)
    ids = [
        (np.arange(length) * 7 + 3 * length) % config.vocab_size
        for length in (11, 4, min(23, context_of(config) or 23))
    ]
    engine = Engine(base, prefill_tokens=64)
    try:
        worst, scale = _largest_difference(engine, ids)
        stores = [store for layer in engine.arena.layers for store in (layer.keys, layer.values)]
        num_kept = sum(store.shape[1] * store.shape[3] for store in stores)
    except FAILURES as error:
        raise ValueError(f"a forward pass with the KV cache raises {type(error).__name__}: {error}") from error
    if not worst <= tolerance(base) * scale:
        raise ValueError(f"logits with the KV cache have errors up to {worst:.2g}; the largest logit is {scale:.2g}")
    return num_kept


def is_cache_exact(base: PreTrainedModel, num_tokens: int) -> bool:
    """Return True if decoding with transformers' cache gives the same logits as a forward pass without a cache."""
    # Some models ignore `past_key_values`. Others have a cache with a window, and attention without a window.
    size = base.config.get_text_config(decoder=True).vocab_size
    ids = torch.arange(3, 3 + num_tokens, device=base.device)[None] % size
    expected = base(input_ids=ids, use_cache=False).logits[0, -NUM_STEPS:]
    try:
        cache = DynamicCache(config=base.config)
        next_logits(base, ids[:, :-NUM_STEPS], cache)
        logits = torch.cat([next_logits(base, part, cache) for part in ids[:, -NUM_STEPS:].split(1, dim=1)])
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
        np.array_equal(getattr(one, name), getattr(other, name))
        for one, other in zip(together, alone, strict=True)
        for name in ("ids", "logprobs", "entropies")
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
