"""The forward pass of an update: token ids to hidden states to log-probabilities, with gradients.

Logits are computed only at sampled tokens; the values of a shared head come from the same pass. Rollouts of one prompt
share its tokens, if the model accepts a mask for that. Completions that a server sampled are scored the same way.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from peft import PeftModel
from torch import Tensor, nn
from transformers import PreTrainedModel

from ..batching import default_max_tokens, micro_batches, sent
from ..core import Completion
from ..decoding.adapters import active_adapter
from ..decoding.base import computing_type, window_of
from ..decoding.cpu import patch_layers
from ..decoding.samples import Prompt, Sample
from ..decoding.sampling import Sampling
from ..decoding.self_check import FAILURES, tolerance
from ..encoding import TokenRecord
from .packing import Layout, PassCost, Row, Tree, laid_out, rows_of, trees_of
from .token_scores import logit_scores, token_scores

Result = TypeVar("Result")
PAIR_SLOWNESS = {"cpu": 3}
"""An operation in attention takes so many times as long as one in a linear layer (CPU: measured with heads of 32). On
other devices as long: both are products of matrices that keep a GPU busy."""


class Scorer:
    """Hidden states and selected logits of a causal language model.

    Args:
        base: the transformers model itself, below any adapter wrapper.

    Two things are found by a comparison on a few tokens. A model whose logits are more than its output matrix times its
    last hidden state (a soft cap, a scale) is run whole. One that does not follow a mask of trees exactly, or whose
    attention has a window shorter than a row, gets every row with a prompt of its own.
    """

    def __init__(self, base: PreTrainedModel):
        patch_layers(base)
        self.base = base
        backbone: Any = base.base_model
        self.backbone: PreTrainedModel = backbone
        self.head: nn.Module = base.get_output_embeddings()
        self.device = base.device
        config = base.config.get_text_config(decoder=True)
        looked_up = {id(weight) for weight in base.get_input_embeddings().parameters()}
        linear = sum(weight.numel() for weight in self.backbone.parameters() if id(weight) not in looked_up)
        pair = 4.0 * config.hidden_size * config.num_hidden_layers
        self.cost = PassCost(token=2.0 * linear, pair=PAIR_SLOWNESS.get(self.device.type, 1) * pair)
        self._has_plain_head = self._agrees()
        self._window: int | None = None
        self.shares_prompts = self._follows_trees()
        self._inside: Callable[[Callable[[], Any]], Any] = at_once

    def on(self, base: PreTrainedModel, inside: Callable[[Callable[[], Any]], Any] | None = None) -> Scorer:
        """The same, of a copy of the base, of which nothing is tried out again.

        Args:
            inside: calls what computes with the copy where its weights are gathered. None: they are always there.
        """
        twin = copy.copy(self)
        backbone: Any = base.base_model
        twin.base, twin.backbone, twin.head, twin.device = base, backbone, base.get_output_embeddings(), base.device
        twin._inside = inside or at_once
        return twin

    def hidden(self, ids: Tensor) -> Tensor:
        """[R, L, d] last hidden states of right-padded ids [R, L]."""
        states: Tensor = self.backbone(input_ids=ids, use_cache=False).last_hidden_state
        return states

    def batches(self, tracks: Sequence[Sequence[Completion]], items: Sequence[int], max_tokens: int) -> list[list[int]]:
        """Tracks (by number) to be scored in one pass, those that share a prompt together."""
        rows = [rows_of(tracks[item]) for item in items]
        lone = [number for number, own in enumerate(rows) if len(own) == 1]
        groups = [[number] for number, own in enumerate(rows) if len(own) > 1]
        sizes = [sum(len(row.ids) for row in rows[number]) for (number,) in groups]
        for tree in self._trees([rows[number][0] for number in lone], max_tokens):
            groups.append([lone[row] for row in tree.rows])
            sizes.append(tree.length)
        return [
            [items[number] for group in batch for number in groups[group]]
            for batch in micro_batches(sizes, range(len(groups)), max_tokens)
        ]

    def scores(
        self, rows: Sequence[Row], temperature: float, filters: Sampling | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities [K], entropies [K] of all sampled tokens in order, and prompt-end hidden states [N, d].

        Args:
            filters: score the distribution after its top-k and top-p; None: the one before.
        """
        scored: tuple[Tensor, Tensor, Tensor] = self._inside(lambda: self._scores(rows, temperature, filters))
        return scored

    def _scores(
        self, rows: Sequence[Row], temperature: float, filters: Sampling | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        layout = laid_out(rows, self._trees(rows))
        targets = sent(layout.targets, self.device)
        if self._has_plain_head:
            predicting, ends = self._states(layout, layout.predictors, layout.prompt_ends)
            return *token_scores(predicting, self.head, targets, temperature, filters=filters), ends
        output = self.base(**self._inputs(layout), output_hidden_states=True)
        logprobs, entropies = logit_scores(at(output.logits, layout.predictors), targets, temperature, filters)
        return logprobs, entropies, at(output.hidden_states[-1], layout.prompt_ends)

    def prompt_states(self, rows: Sequence[Row]) -> Tensor:
        """[N, d] hidden states at the ends of all turns' prompts, without a logit."""
        layout = laid_out(rows, self._trees(rows))
        states: Tensor = self._inside(lambda: self._states(layout, layout.prompt_ends)[0])
        return states

    def _states(self, layout: Layout, *wanted: NDArray[np.int64]) -> list[Tensor]:
        """[K, d] last hidden states of each of these selections of tokens [2, K]."""
        states: Tensor = self.backbone(**self._inputs(layout)).last_hidden_state
        return [at(states, each) for each in wanted]

    def _trees(self, rows: Sequence[Row], max_tree: int | None = None) -> list[Tree]:
        if not self.shares_prompts:
            return [Tree((number,), len(row.ids), len(row.ids)) for number, row in enumerate(rows)]
        return trees_of(rows, self.cost, max_row=self._window, max_tree=max_tree)

    def _inputs(self, layout: Layout) -> dict[str, Any]:
        inputs: dict[str, Any] = {"input_ids": sent(layout.ids, self.device), "use_cache": False}
        if layout.is_visible is not None:
            hides = sent(~layout.is_visible, self.device)[:, None]
            dtype = computing_type(self.base)
            mask = torch.zeros(hides.shape, dtype=dtype, device=self.device)
            inputs["attention_mask"] = mask.masked_fill_(hides, torch.finfo(dtype).min)
            assert layout.places is not None
            inputs["position_ids"] = sent(layout.places, self.device)
        return inputs

    @torch.no_grad()
    def _agrees(self) -> bool:
        size = self.base.config.get_text_config(decoder=True).vocab_size
        ids = torch.arange(1, 5, device=self.base.device)[None] % size
        plain = self.head(self.hidden(ids))
        whole = self.base(input_ids=ids, use_cache=False).logits
        if computing_type(self.base) in (torch.float32, torch.float64):
            return bool(torch.allclose(plain, whole, atol=1e-4, rtol=1e-3))
        return bool((plain - whole).abs().max() <= tolerance(computing_type(self.base)) * whole.abs().max())

    @torch.no_grad()
    def _follows_trees(self) -> bool:
        """Whether a tree's logits are those of its rows alone."""
        try:
            self._window = window_of(self.base)
            trees, apart = (_trial_states(self, is_shared) for is_shared in (True, False))
        except FAILURES:
            return False  # it takes no such mask, or no positions
        return bool((trees - apart).abs().max() <= tolerance(computing_type(self.base)) * apart.abs().max())


def at(states: Tensor, wanted: NDArray[np.int64]) -> Tensor:
    """[K, d] of [R, L, d], at rows and places [2, K]."""
    index = sent(wanted, states.device)
    return states[index[0], index[1]]


def at_once(compute: Callable[[], Result]) -> Result:
    """What a function returns."""
    return compute()


def _trial_states(scorer: Scorer, is_shared: bool) -> Tensor:
    """[K, d] where the replies of two trees of rows are predicted, in the order of the rows."""
    size = scorer.base.config.get_text_config(decoder=True).vocab_size
    rows = []
    for prompt_length, lengths in ((5, (3, 1, 6)), (2, (4, 2))):
        prompt = (np.arange(prompt_length) * 7 + 3) % size
        for number, length in enumerate(lengths):
            reply = (np.arange(length) * 5 + 11 * number + 1) % size
            rows.append(Row(np.concatenate([prompt, reply]), (TokenRecord(prompt, reply, False, ""),)))
    trees = [Tree((0, 1, 2), 5, 15), Tree((3, 4), 2, 8)]
    layout = laid_out(rows, trees if is_shared else [Tree((n,), len(r.ids), len(r.ids)) for n, r in enumerate(rows)])
    return at(scorer.backbone(**scorer._inputs(layout)).last_hidden_state, layout.predictors)


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
