"""FLOP/s of decoding and learning as a share of this machine's measured limit, that of one of torch's matrix products.

    share = operations that the work needs / CPU second  :  operations of a matrix product / CPU second

Both are measured on one thread of the same process; the limit is the best of many products, as other work on the
machine slows it down most. The operations that the work needs are the model's matrix products alone: every token
through every layer, logits where a token is sampled or scored, attention to earlier tokens; a gradient costs twice as
much again. Skipped operations therefore raise the share, wasted ones (such as padding) lower it.

Beside the share stands that of the model's products alone, with as many rows as the work has and nothing in between: no
decoder and no learner with these matrices can exceed it. Layers that multiply by oneDNN can exceed the limit, since
torch's own products of fp32 matrices are MKL's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import PreTrainedModel

from ...agents.core import Completion
from ...agents.decoding.decoder import Decoder, Prompt
from ...agents.decoding.sampling import Sampling
from ...agents.encoding import TokenRecord
from ...agents.scoring.packing import rows_of
from ...agents.scoring.scorer import Scorer
from ..markdown import markdown_table
from .decode import NEW_TOKENS, VOCABULARY, ragged_prompts, tiny_model
from .timing import Spread, clock_of, rates, unit_of

SIDE = 1024  # of the square matrices
BATCH = 128
MAX_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class Share:
    """Share of the machine's limit that one kind of work reaches."""

    name: str
    tokens_per_s: Spread  # sampled or scored tokens per second
    operations: float  # per token
    limit: float  # operations per second of a matrix product
    products: float  # operations per second of the model's products with as many rows as the work has
    floor: float
    goal: float

    @property
    def ratio(self) -> Spread:
        return self.tokens_per_s.times(self.operations / self.limit)


def measure(repeats: int = 5, device: str = "cpu") -> list[Share]:
    """Shares of decoding and of learning at a large batch."""
    model = tiny_model()
    nn.Module.to(model, device)
    prompts = ragged_prompts(BATCH)
    replies = np.random.default_rng(3).integers(1, VOCABULARY, (BATCH, NEW_TOKENS))
    tracks = [
        (Completion("", tokens=TokenRecord(prompt, reply, False, "")),)
        for prompt, reply in zip(prompts, replies, strict=True)
    ]
    decoder, scorer = Decoder(model, [], max_slots=BATCH), Scorer(model)
    limit = product_rate(device=device)
    found = rates(
        {
            "decode": partial(_decoded, decoder, prompts),
            "training": partial(_learned, scorer, tracks),
        },
        repeats,
        clock=clock_of(device),
    )
    limit = max(limit, product_rate(device=device))
    a_token = operations(model, [len(prompt) for prompt in prompts]) / (BATCH * NEW_TOKENS)
    return [
        Share(name, Spread.of(found[name]), factor * a_token, limit, products_rate(model, num_rows), floor, goal)
        for name, factor, num_rows, floor, goal in (
            ("decode", 1, BATCH, 0.25, 0.40),
            ("training", 3, MAX_TOKENS, 0.30, 0.45),
        )
    ]


def product_rate(repeats: int = 20, device: str = "cpu") -> float:
    """Operations per second of a matrix product, the best of several."""
    factor = torch.rand(SIDE, SIDE, device=device)
    return 2.0 * SIDE**3 / _least_seconds(lambda: factor @ factor, repeats, device)


def _least_seconds(work: Callable[[], object], repeats: int, device: str) -> float:
    now = clock_of(device) or time.process_time
    found = []
    for _ in range(repeats + 1):
        start = now()
        work()
        found.append(now() - start)
    return min(found[1:])  # the first warms the caches


@torch.no_grad()
def products_rate(model: nn.Module, num_rows: int, repeats: int = 20) -> float:
    """Operations per second of one product with each linear layer, the best of several rounds.

    Args:
        num_rows: rows of what the weights are multiplied with.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    device = layers[0].weight.device
    inputs = {width: torch.rand(num_rows, width, device=device) for width in {layer.in_features for layer in layers}}

    def multiply() -> None:
        for layer in layers:
            layer(inputs[layer.in_features])

    num_operations = 2.0 * num_rows * sum(layer.weight.numel() for layer in layers)
    return num_operations / _least_seconds(multiply, repeats, str(device))


def operations(model: PreTrainedModel, prompt_lengths: Sequence[int], new_tokens: int = NEW_TOKENS) -> float:
    """Operations of one forward pass over prompts and completions, with logits for the completions only."""
    config = model.config.get_text_config(decoder=True)
    looked_up = {id(weight) for weight in model.get_input_embeddings().parameters()}
    linear = sum(weight.numel() for weight in model.base_model.parameters() if id(weight) not in looked_up)
    lengths = [length + new_tokens for length in prompt_lengths]
    logits = 2.0 * len(lengths) * new_tokens * config.hidden_size * config.vocab_size
    attention = 4.0 * config.hidden_size * config.num_hidden_layers * sum(length**2 / 2 for length in lengths)
    total: float = 2.0 * linear * sum(lengths) + logits + attention
    return total


def _decoded(decoder: Decoder, prompts: Sequence[NDArray[np.int64]]) -> int:
    decoder.generate([Prompt(ids, (number,), NEW_TOKENS) for number, ids in enumerate(prompts)], Sampling())
    return NEW_TOKENS * len(prompts)


def _learned(scorer: Scorer, tracks: Sequence[Sequence[Completion]]) -> int:
    scorer.base.zero_grad()
    for batch in scorer.batches(tracks, range(len(tracks)), MAX_TOKENS):
        logprobs, _, _ = scorer.scores([row for item in batch for row in rows_of(tracks[item])], 1.0)
        torch.autograd.backward(logprobs.sum())
    return sum(len(turn.tokens.completion_ids) for track in tracks for turn in track)


def table(shares: Sequence[Share], device: str = "cpu") -> str:
    """The shares as a Markdown table."""
    title = f"Share of the machine's limit, {BATCH} sequences, prompts of 64 to 128 tokens, {NEW_TOKENS} new ones:"
    header = (
        "",
        f"tokens per {unit_of(device)}",
        "GFLOP/s",
        "matrix product, GFLOP/s",
        "share",
        "its products alone",
        "floor",
        "goal",
    )
    cells = [
        (
            each.name,
            each.tokens_per_s.shown(),
            each.tokens_per_s.times(each.operations / 1e9).shown(".1f"),
            f"{each.limit / 1e9:.1f}",
            each.ratio.shown(".0%"),
            f"{each.products / each.limit:.0%}",
            f"{each.floor:.0%}",
            f"{each.goal:.0%}",
        )
        for each in shares
    ]
    return f"{title}\n\n{markdown_table(header, cells)}"
