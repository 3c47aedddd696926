"""Decoding speed of our decoder and of transformers' `generate`, in one process on one thread.

Workloads that are compared take turns, several times over. Rates are tokens per CPU second of the process, or per
second on a GPU. Other work on the machine moves all figures together, so ratios mean more than rates.
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
}
"""About 2 million weights: enough that arithmetic, not Python, dominates."""
VOCABULARY = 4096
NEW_TOKENS = 64
FILTERS = Sampling(temperature=0.8, top_k=50, top_p=0.95)
TURNS, OBSERVED, ANSWERED = 6, 24, 24  # turns; tokens read before each; tokens generated in each

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Row:
    """One comparison: what was decoded, and how fast by each workload."""

    name: str
    rates: Mapping[str, Sequence[float]]  # tokens per second of each round, by workload
    ours: str
    reference: str
    floor: float | None  # ratio that must be reached
    goal: float | None

    @property
    def ratio(self) -> Spread:
        return ratio_of(self.rates[self.ours], self.rates[self.reference])


def random_llama(vocab_size: int, *, seed: int, end_id: int | None, pad_id: int) -> LlamaForCausalLM:
    """Llama of `MODEL_SIZE` with random weights."""
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


def tiny_model() -> PreTrainedModel:
    """A Llama of 2.4 million parameters with random weights; large enough that arithmetic, not Python, dominates."""
    return random_llama(VOCABULARY, seed=0, end_id=None, pad_id=0)


def rows(repeats: int = 5, device: str = "cpu") -> list[Row]:
    """All comparisons of this module, measured."""
    model = tiny_model()
    torch.nn.Module.to(model, device)
    batches = {count: ragged_prompts(count) for count in (1, 32, 128)}
    found = []
    for sampling, label in ((Sampling(), "no filter"), (FILTERS, "T .8, top-k 50, top-p .95")):
        for count, floor, goal in ((1, None, None), (32, 6.0, 9.0), (128, 7.0, 10.0)):
            same = {1: (None, None), 32: (1.5, 1.9), 128: (1.8, 2.2)}[count] if sampling is FILTERS else (None, None)
            found_rates = rates(
                {
                    "decoder": _decoder_run(model, _copies(batches[count], count), sampling),
                    "generate": _generate_run(model, _copies(batches[count], count), sampling, count),
                    "generate, batch 1": _generate_run(model, batches[128][:6], sampling, 1),
                },
                repeats,
                clock=clock_of(device),
            )
            found.append(Row(f"batch {count}, {label}", found_rates, "decoder", "generate", *same))
            found.append(Row(f"batch {count}, {label}", found_rates, "decoder", "generate, batch 1", floor, goal))
    found.append(_ragged_row(model, repeats, device))
    found.append(_turns_row(model, repeats, device))
    return found


def ragged_prompts(count: int, seed: int = 0) -> list[Ids]:
    """Prompts of 64 to 128 random tokens."""
    rng = np.random.default_rng(seed)
    return [rng.integers(1, VOCABULARY, int(rng.integers(64, 129))) for _ in range(count)]


def _copies(prompts: list[Ids], count: int) -> list[Ids]:
    # A batch of 1 alone is too short to be timed.
    return prompts if count > 1 else ragged_prompts(6)


def _decoder_run(model: PreTrainedModel, prompts: Sequence[Ids], sampling: Sampling) -> Workload:
    decoder = Decoder(model, [], max_slots=128)
    alone = len(prompts) < 32

    def run() -> int:
        requests = [Prompt(ids, (number,), NEW_TOKENS) for number, ids in enumerate(prompts)]
        for batch in [[request] for request in requests] if alone else [requests]:
            decoder.generate(batch, sampling)
        return NEW_TOKENS * len(prompts)

    return run


def _generate_run(
    model: PreTrainedModel, prompts: Sequence[Ids], sampling: Sampling, batch_size: int, lengths: Ids | None = None
) -> Workload:
    """`generate` on left-padded batches; a batch runs until its longest completion is done."""
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


def _ragged_row(model: PreTrainedModel, repeats: int, device: str) -> Row:
    prompts = ragged_prompts(128)
    lengths = np.clip(np.random.default_rng(1).exponential(48, len(prompts)), 4, 192).astype(np.int64)
    decoder = Decoder(model, [], max_slots=32)

    def ours() -> int:
        decoder.generate([Prompt(ids, (n,), int(lengths[n])) for n, ids in enumerate(prompts)], Sampling())
        return int(lengths.sum())

    workloads = {"decoder": ours, "generate, batches": _generate_run(model, prompts, Sampling(), 32, lengths)}
    name = f"{len(prompts)} completions of {lengths.min()}-{lengths.max()} tokens, 32 slots"
    return Row(name, rates(workloads, repeats, clock=clock_of(device)), "decoder", "generate, batches", 2.0, 2.5)


def _turns_row(model: PreTrainedModel, repeats: int, device: str, count: int = 32) -> Row:
    decoder = Decoder(model, [], max_slots=count)
    openings = [ids[:64] for ids in ragged_prompts(count)]
    observations = np.random.default_rng(2).integers(1, VOCABULARY, (TURNS, count, OBSERVED))

    def episode(is_parked: bool) -> int:
        histories = openings
        for turn in range(TURNS):
            prompts = [
                Prompt(ids, (turn, row), ANSWERED, row if is_parked else None) for row, ids in enumerate(histories)
            ]
            samples = decoder.generate(prompts, Sampling())
            histories = [
                np.concatenate([ids, sample.ids, observations[turn, row]])
                for row, (ids, sample) in enumerate(zip(histories, samples, strict=True))
            ]
        return TURNS * count * ANSWERED

    workloads = {"extended": lambda: episode(True), "prefilled anew": lambda: episode(False)}
    found = rates(workloads, repeats, clock=clock_of(device))
    return Row(f"{TURNS} turns, {count} rows", found, "extended", "prefilled anew", 1.5, 2.0)


def table(measured: Sequence[Row], device: str = "cpu") -> str:
    """The comparisons as a Markdown table: medians, and in brackets minimum to maximum over the rounds."""
    cells = [
        (
            row.name,
            f"{row.ours} {Spread.of(row.rates[row.ours]).shown()}",
            row.reference,
            Spread.of(row.rates[row.reference]).shown(),
            f"{row.ratio.shown('.2f')}x",
            *("" if target is None else f"{target:g}x" for target in (row.floor, row.goal)),
        )
        for row in measured
    ]
    unit = f"tokens per {unit_of(device)}"
    header = ("what is decoded", f"ours, {unit}", "beside", unit, "ratio", "floor", "goal")
    return markdown_table(header, cells)
