"""Decoding speed of collm's decoder and of transformers' `generate`, in one process on one thread.

Rates are tokens per CPU second of the process, or per second on a GPU. Workloads alternate for several rounds. Compare
ratios, because other processes change all rates of a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from ...agents.decoding.decoder import Decoder, Prompt
from ...agents.decoding.sampling import Sampling
from ..markdown import markdown_table
from .timing import Spread, Workload, clock_of, rates, ratio_of, unit_of

MODEL_SIZE = {
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}  # about 2 million weights, so that most time is arithmetic and not Python
VOCABULARY = 4096
NEW_TOKENS = 64
FILTERS = Sampling(temperature=0.8, top_k=50, top_p=0.95)
NUM_TURNS, PROMPT_TOKENS, REPLY_TOKENS = 6, 24, 24  # tokens per turn

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class DecodeRow:
    """Comparison of workloads: tokens per second in each round, as a dict with workloads as keys."""

    name: str
    rates: Mapping[str, Sequence[float]]
    ours: str
    reference: str
    floor: float  # lower limit of the ratio in the slow test

    @property
    def ratio(self) -> Spread:
        return ratio_of(self.rates[self.ours], self.rates[self.reference])


def random_llama(vocab_size: int, *, seed: int, end_id: int | None, pad_id: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab_size,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end_id,
        pad_token_id=pad_id,
        **MODEL_SIZE,  # type: ignore[arg-type]
    )
    model = LlamaForCausalLM(config)
    model.eval()
    return model


def tiny_model(device: str = "cpu") -> PreTrainedModel:
    model = random_llama(VOCABULARY, seed=0, end_id=None, pad_id=0)
    torch.nn.Module.to(model, device)
    return model


def measure(repeats: int = 5, device: str = "cpu") -> list[DecodeRow]:
    model = tiny_model(device)
    prompts = ragged_prompts(128)
    found = []
    for count, floor in ((32, 6.0), (128, 7.0)):
        workloads = {
            "decoder": _decoding(model, ragged_prompts(count), Sampling()),
            "generate, batch 1": _generating(model, prompts[:6], Sampling(), 1),
        }
        found.append(_compared(f"batch {count}, no filter", workloads, floor, repeats, device))
    for count, floor in ((32, 1.5), (128, 1.8)):
        workloads = {
            "decoder": _decoding(model, ragged_prompts(count), FILTERS),
            "generate": _generating(model, ragged_prompts(count), FILTERS, count),
        }
        found.append(_compared(f"batch {count}, T .8, top-k 50, top-p .95", workloads, floor, repeats, device))
    lengths = np.clip(np.random.default_rng(1).exponential(48, len(prompts)), 4, 192).astype(np.int64)
    workloads = {
        "decoder": _decoding(model, prompts, Sampling(), lengths, max_slots=32),
        "generate, batches": _generating(model, prompts, Sampling(), 32, lengths),
    }
    name = f"{len(prompts)} completions of {lengths.min()}-{lengths.max()} tokens, 32 slots"
    found.append(_compared(name, workloads, 2.0, repeats, device))
    workloads = {
        "cache kept": _multi_turn(model, 32, keeps_cache=True),
        "cache recomputed": _multi_turn(model, 32, keeps_cache=False),
    }
    found.append(_compared(f"{NUM_TURNS} turns, 32 rows", workloads, 1.5, repeats, device))
    return found


def ragged_prompts(count: int, seed: int = 0) -> list[Ids]:
    rng = np.random.default_rng(seed)
    return [rng.integers(1, VOCABULARY, int(rng.integers(64, 129))) for _ in range(count)]


def _compared(name: str, workloads: Mapping[str, Workload], floor: float, repeats: int, device: str) -> DecodeRow:
    ours, reference = workloads
    return DecodeRow(name, rates(workloads, repeats, clock=clock_of(device)), ours, reference, floor)


def _decoding(
    model: PreTrainedModel,
    prompts: Sequence[Ids],
    sampling: Sampling,
    lengths: Ids | None = None,
    *,
    max_slots: int = 128,
) -> Workload:
    """Workload: one call of collm's decoder. `lengths`: new tokens per prompt; None: `NEW_TOKENS`."""
    decoder = Decoder(model, [], max_slots=max_slots)
    limits = np.full(len(prompts), NEW_TOKENS) if lengths is None else lengths

    def run() -> int:
        decoder.generate([Prompt(ids, (row,), int(limits[row])) for row, ids in enumerate(prompts)], sampling)
        return int(limits.sum())

    return run


def _generating(
    model: PreTrainedModel, prompts: Sequence[Ids], sampling: Sampling, batch_size: int, lengths: Ids | None = None
) -> Workload:
    """Workload: transformers' `generate` on left-padded batches. A batch runs until its longest completion ends."""
    limits = np.full(len(prompts), NEW_TOKENS) if lengths is None else lengths

    def run() -> int:
        for first in range(0, len(prompts), batch_size):
            batch = prompts[first : first + batch_size]
            width = max(map(len, batch))
            ids, is_real = np.zeros((len(batch), width), np.int64), np.zeros((len(batch), width), np.int64)
            for row, prompt in enumerate(batch):
                ids[row, width - len(prompt) :], is_real[row, width - len(prompt) :] = prompt, 1
            model.generate(  # type: ignore[operator]
                torch.from_numpy(ids).to(model.device),
                attention_mask=torch.from_numpy(is_real).to(model.device),
                generation_config=GenerationConfig(
                    max_new_tokens=int(limits[first : first + batch_size].max()),
                    do_sample=True,
                    temperature=sampling.temperature,
                    top_k=sampling.top_k,
                    top_p=sampling.top_p,
                    pad_token_id=0,
                    eos_token_id=None,
                ),
            )
        return int(limits.sum())

    return run


def _multi_turn(model: PreTrainedModel, count: int, *, keeps_cache: bool) -> Workload:
    """Workload: episodes of several turns, with or without the KV cache of earlier turns."""
    decoder = Decoder(model, [], max_slots=count)
    openings = [ids[:64] for ids in ragged_prompts(count)]
    observations = np.random.default_rng(2).integers(1, VOCABULARY, (NUM_TURNS, count, PROMPT_TOKENS))

    def run() -> int:
        histories = openings
        for turn in range(NUM_TURNS):
            prompts = [
                Prompt(ids, (turn, row), REPLY_TOKENS, row if keeps_cache else None)
                for row, ids in enumerate(histories)
            ]
            samples = decoder.generate(prompts, Sampling())
            histories = [
                np.concatenate([ids, sample.ids, observations[turn, row]])
                for row, (ids, sample) in enumerate(zip(histories, samples, strict=True))
            ]
        return NUM_TURNS * count * REPLY_TOKENS

    return run


def table(measured: Sequence[DecodeRow], device: str = "cpu") -> str:
    """Format the comparisons as a Markdown table: median (minimum-maximum) over the rounds."""
    cells = [
        (
            row.name,
            f"{row.ours} {Spread.of(row.rates[row.ours]).shown()}",
            row.reference,
            Spread.of(row.rates[row.reference]).shown(),
            f"{row.ratio.shown('.2f')}x",
            f"{row.floor:g}x",
        )
        for row in measured
    ]
    unit = f"tokens per {unit_of(device)}"
    return markdown_table(("workload", f"collm, {unit}", "reference", unit, "ratio", "floor"), cells)
