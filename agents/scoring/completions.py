"""Completions sampled elsewhere → samples with log-probabilities, entropies and values of the model that learns."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel

from ..batching import default_max_tokens, micro_batches
from ..decoding.adapters import active_adapter
from ..decoding.samples import Prompt, Sample
from ..decoding.sampling import Sampling
from ..encoding import TokenRecord
from .packing import Row
from .scorer import Scorer


def scored_samples(
    model: PreTrainedModel | PeftModel,
    scorer: Scorer,
    prompts: Sequence[Prompt],
    completions: Sequence[NDArray[np.int64]],
    sampling: Sampling,
    stop_ids: Collection[int],
    value_head: nn.Module | None = None,
) -> list[Sample]:
    """One sample for each prompt, in their order, with numbers of the distribution that learning differentiates.

    Args:
        model: what learns, with the prompts' adapters.
        scorer: the same model's.
        completions: [T] sampled tokens of each prompt; at least one.
        stop_ids: tokens that end a completion.
        value_head: maps hidden states [N, d] at the ends of prompts to [N, 1].
    """
    rows = [row_of(prompt, ids) for prompt, ids in zip(prompts, completions, strict=True)]
    samples: list[Sample | None] = [None] * len(rows)
    limit = default_max_tokens(scorer.device)
    filters = sampling if sampling.learns_filtered and not sampling.greedy else None
    for adapter in dict.fromkeys(prompt.adapter for prompt in prompts):
        own = [number for number, prompt in enumerate(prompts) if prompt.adapter == adapter]
        batches = micro_batches([len(row.ids) for row in rows], own, limit)
        with torch.no_grad(), active_adapter(model, adapter):
            for batch in batches:
                logprobs, entropies, ends = scorer.scores([rows[n] for n in batch], sampling.temperature, filters)
                cuts = np.cumsum([len(completions[number]) for number in batch])[:-1]
                values = [None] * len(batch) if value_head is None else _values(value_head, ends)
                parts = (np.split(scores.float().cpu().numpy(), cuts) for scores in (logprobs, entropies))
                for number, logprob, entropy, value in zip(batch, *parts, values, strict=True):
                    ids = completions[number]
                    samples[number] = Sample(ids, logprob, entropy, int(ids[-1]) not in stop_ids, value)
    return [sample for sample in samples if sample is not None]


def row_of(prompt: Prompt, ids: NDArray[np.int64]) -> Row:
    """The row in which the completion of a prompt is scored."""
    read = np.asarray(prompt.ids, np.int64)
    return Row(np.concatenate([read, ids]), (TokenRecord(read, ids, False, ""),))


def _values(value_head: nn.Module, ends: torch.Tensor) -> list[float]:
    values: list[float] = value_head(ends.float()).reshape(-1).tolist()
    return values
