"""Whether the arena serves a model exactly: a look at its attention, and a comparison with plain forward passes."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from .engine import Engine
from .plain_decoding import next_logits
from .slots import Claim, SlotTable

TOLERANCES = {torch.float64: 1e-8, torch.float32: 5e-5}  # of the largest logit; half precisions get COARSE
COARSE = 0.05
# What a model may raise that does not know what to do with a cache or a mask.
FAILURES = (ArithmeticError, AttributeError, LookupError, NotImplementedError, RuntimeError, TypeError, ValueError)
WINDOW_NAMES = ("window_size", "attention_window_size")  # of models whose cache does not tell, as GPT-Neo


def window_of(core: PreTrainedModel) -> int | None:
    """The shortest window of the model's attention layers in tokens; None if all of them see everything.

    Raises:
        ValueError: if a layer keeps something other than the keys and values of its tokens.
    """
    config = core.config.get_text_config(decoder=True)
    windows = [window for name in WINDOW_NAMES if (window := getattr(config, name, None)) is not None]
    for layer in DynamicCache(config=core.config).layers:
        if type(layer) is DynamicSlidingWindowLayer:
            windows.append(layer.sliding_window)
        elif type(layer) is not DynamicLayer:
            raise ValueError(f"its {type(layer).__name__} keeps more than one key and value a token")
    return min(windows, default=None)


def check_arena(core: PreTrainedModel) -> None:
    """Compare rows of different lengths, begun, decoded, parked and extended, with plain forward passes.

    Token ids are fixed, so that no random state is touched.

    Raises:
        ValueError: saying why the arena must not serve this model.
    """
    window_of(core)
    if core.config.is_encoder_decoder or core.base_model is core:
        raise ValueError("it is not a decoder with a separate head")
    config = core.config.get_text_config(decoder=True)
    longest = getattr(config, "max_position_embeddings", None) or 23
    ids = [(np.arange(length) * 7 + 3 * length) % config.vocab_size for length in (11, 4, min(23, longest))]
    try:
        worst, scale = _largest_difference(core, ids)
    except FAILURES as error:
        raise ValueError(f"a pass through the arena fails with {type(error).__name__}: {error}") from error
    if not worst <= TOLERANCES.get(core.dtype, COARSE) * scale:
        raise ValueError(f"logits through the arena differ from a plain forward pass by {worst:.2g} of {scale:.2g}")


def is_cache_exact(core: PreTrainedModel) -> bool:
    """Whether transformers' own cache, fed one token at a time, gives the logits of a plain forward pass.

    Some models take their state by another name and would silently start every token afresh.
    """
    ids = torch.arange(3, 12, device=core.device)[None] % core.config.get_text_config(decoder=True).vocab_size
    expected = core(input_ids=ids, use_cache=False).logits[:, -1]
    try:
        cache = DynamicCache(config=core.config)
        for part in (ids[:, :6], ids[:, 6:7], ids[:, 7:8], ids[:, 8:]):
            logits = next_logits(core, part, cache)
    except FAILURES:
        return False
    return bool((logits - expected).abs().max() <= TOLERANCES.get(core.dtype, COARSE) * expected.abs().max())


def _largest_difference(core: PreTrainedModel, sequences: list[NDArray[np.int64]]) -> tuple[float, float]:
    """Largest difference of a logit, and the largest logit."""
    engine = Engine(core, prefill_tokens=64)
    engine.arena.reserve(len(sequences), max(map(len, sequences)))
    table = SlotTable(len(sequences))
    plain = [core(input_ids=torch.from_numpy(ids)[None].to(core.device)).logits[0] for ids in sequences]
    worst, scale = 0.0, max(float(logits.abs().max()) for logits in plain)
    for shares in ((0.3, 0.5), (0.8, 1.0)):
        cuts = [max(1, int(len(ids) * shares[0])) for ids in sequences]
        ends = [int(len(ids) * shares[1]) for ids in sequences]
        claims = [
            Claim(owner, ids[:cut], end - cut + 1, owner)
            for owner, (ids, cut, end) in enumerate(zip(sequences, cuts, ends, strict=True))
        ]
        seats = table.admit(claims, ())
        engine.move(table.take_moves())
        engine.prefill(seats)
        while table.num_active:
            count = table.num_active
            logits = engine.step(table.token[:count].copy(), table.column[:count].copy())
            for row in range(count):
                expected = plain[table.owner[row]][table.column[row]]
                worst = max(worst, float((logits[row] - expected).abs().max()))
            table.column[:count] += 1
            done = np.flatnonzero(table.column[:count] >= table.end[:count])
            for row in np.flatnonzero(table.column[:count] < table.end[:count]).tolist():
                table.token[row] = sequences[table.owner[row]][table.column[row]]
            table.retire(done.tolist())
            engine.move(table.take_moves())
        for number, (ids, end) in enumerate(zip(sequences, ends, strict=True)):
            table.remember(number, ids[:end])
    return worst, scale
