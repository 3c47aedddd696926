"""FLOP/s of decoding and training, as a fraction of the FLOP/s of a matrix product in torch.

    utilization = FLOPs that the model needs / CPU second  :  FLOPs of a matrix product / CPU second

Both are measured on one thread of the same process. Only the model's matrix products are counted: layers, attention,
and logits of sampled or scored tokens. A backward pass counts as two forward passes. Skipped work raises the
utilization, and padding lowers it. With oneDNN it can exceed 1, because MKL computes the reference.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
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

SIDE = 1024  # rows and columns of the multiplied matrices
BATCH = 128
MAX_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class Utilization:
    name: str  # of the workload
    tokens_per_s: Spread  # sampled or scored tokens per second
    operations: float  # FLOPs per token
    limit: float  # FLOP/s of the matrix product
    floor: float  # lower limit of the expected utilization

    @property
    def ratio(self) -> Spread:
        return self.tokens_per_s.times(self.operations / self.limit)


def measure(repeats: int = 5, device: str = "cpu") -> list[Utilization]:
    model = tiny_model(device)
    prompts = ragged_prompts(BATCH)
    replies = np.random.default_rng(3).integers(1, VOCABULARY, (BATCH, NEW_TOKENS))
    tracks = [
        (Completion("", tokens=TokenRecord(prompt, reply, False, "")),)
        for prompt, reply in zip(prompts, replies, strict=True)
    ]
    workloads = {
        "decode": partial(_decoded, Decoder(model, [], max_slots=BATCH), prompts),
        "training": partial(_learned, Scorer(model), tracks),
    }
    limit = product_rate(device=device)
    found = rates(workloads, repeats, clock=clock_of(device))
    limit = max(limit, product_rate(device=device))
    per_token = operations(model, [len(prompt) for prompt in prompts]) / (BATCH * NEW_TOKENS)
    return [
        Utilization(name, Spread.of(found[name]), factor * per_token, limit, floor)
        for name, factor, floor in (("decode", 1, 0.25), ("training", 3, 0.30))
    ]


def product_rate(repeats: int = 20, device: str = "cpu") -> float:
    """FLOP/s of the fastest of several matrix products. Other processes can only slow a product down."""
    matrix = torch.rand(SIDE, SIDE, device=device)
    now = clock_of(device) or time.process_time
    seconds = []
    for _ in range(repeats + 1):
        start = now()
        matrix @ matrix
        seconds.append(now() - start)
    return 2.0 * SIDE**3 / min(seconds[1:])


def operations(model: PreTrainedModel, prompt_lengths: Sequence[int], new_tokens: int = NEW_TOKENS) -> float:
    """FLOPs of one forward pass over prompts and completions, with logits for the completions only."""
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


def table(measured: Sequence[Utilization], device: str = "cpu") -> str:
    title = f"Fraction of the machine's limit, {BATCH} sequences, prompts of 64 to 128 tokens, {NEW_TOKENS} new tokens:"
    header = ("", f"tokens per {unit_of(device)}", "GFLOP/s", "matrix product, GFLOP/s", "share", "floor")
    cells = [
        (
            each.name,
            each.tokens_per_s.shown(),
            each.tokens_per_s.times(each.operations / 1e9).shown(".1f"),
            f"{each.limit / 1e9:.1f}",
            each.ratio.shown(".0%"),
            f"{each.floor:.0%}",
        )
        for each in measured
    ]
    return f"{title}\n\n{markdown_table(header, cells)}"
