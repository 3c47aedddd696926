"""Forward pass of an update: from token ids to hidden states and log-probabilities, with gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from ..batching import micro_batches, sent
from ..core import Completion
from ..decoding.base import backbone_of, check_layers, computing_type, hidden_states_of, window_of
from ..decoding.cpu import FAILURES, patch_layers
from ..decoding.sampling import Sampling
from ..decoding.self_check import tolerance
from ..encoding import TokenRecord
from .packing import Layout, PackedRow, PassCost, Tree, laid_out, rows_of, trees_of
from .small_models import SelectiveLastLayer, at, selective_last_layer, states_at
from .token_scores import logit_scores, token_scores

Result = TypeVar("Result")
PAIR_SLOWNESS = {"cpu": 3}  # time of an operation in attention / in a linear layer, measured with heads of size 32


class Scorer:
    """Scorer of given tokens: computes their log-probabilities and hidden states with a causal language model.

    Two tests on a few tokens select the method. If logits are the output matrix times the last hidden state, logits are
    computed only for sampled tokens. If the model supports the attention masks of trees, equal prompts are shared.
    """

    def __init__(self, base: PreTrainedModel):
        patch_layers(base)
        self.base = base
        self.backbone = backbone_of(base)
        self.head: nn.Module = base.get_output_embeddings()
        self.device = base.device
        config = base.config.get_text_config(decoder=True)
        embeddings = {id(weight) for weight in base.get_input_embeddings().parameters()}
        linear = sum(weight.numel() for weight in self.backbone.parameters() if id(weight) not in embeddings)
        pair = 4.0 * config.hidden_size * config.num_hidden_layers
        self.cost = PassCost(token=2.0 * linear, pair=PAIR_SLOWNESS.get(self.device.type, 1) * pair)
        self._has_plain_head = self._is_head_plain()
        self._window = window_of(base)
        self.shares_prompts = self._follows_trees()
        self._selective = selective_last_layer(self.backbone)
        self._inside: Callable[[Callable[[], Any]], Any] = at_once

    def on(self, base: PreTrainedModel, inside: Callable[[Callable[[], Any]], Any] | None = None) -> Scorer:
        """Return a scorer for a copy of the model. `inside`: calls a forward pass, for example on sharded weights."""
        twin = copy.copy(self)
        twin.base, twin.backbone, twin.device = base, backbone_of(base), base.device
        twin.head = base.get_output_embeddings()
        twin._selective = None if self._selective is None else SelectiveLastLayer(twin.backbone)
        twin._inside = inside or at_once
        return twin

    def batches(self, tracks: Sequence[Sequence[Completion]], items: Sequence[int], max_tokens: int) -> list[list[int]]:
        """Divide agents' episodes (by index) into batches of up to `max_tokens` tokens, with equal prompts together."""
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
        self, rows: Sequence[PackedRow], temperature: float, filters: Sampling | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities [K] and entropies [K] of sampled tokens, and hidden states [N, d] at prompt ends.

        With `filters`, log-probabilities and entropies are those of the distribution after top-k and top-p filters.
        """
        scored: tuple[Tensor, Tensor, Tensor] = self._inside(lambda: self._scores(rows, temperature, filters))
        return scored

    def _scores(
        self, rows: Sequence[PackedRow], temperature: float, filters: Sampling | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        layout = laid_out(rows, self._trees(rows))
        targets = sent(layout.targets, self.device)
        if self._has_plain_head:
            predicting, ends = self._states(layout, layout.predictors, layout.prompt_ends)
            return *token_scores(predicting, self.head, targets, temperature, filters=filters), ends
        with hidden_states_of(self.base) as states:
            logits = at(self.base(**self._inputs(layout)).logits, layout.predictors)
            ends = at(states[0], layout.prompt_ends)
        return *logit_scores(logits, targets, temperature, filters), ends

    def prompt_states(self, rows: Sequence[PackedRow]) -> Tensor:
        """Return the hidden states [N, d] at the ends of all turns' prompts."""
        layout = laid_out(rows, self._trees(rows))
        states: Tensor = self._inside(lambda: self._states(layout, layout.prompt_ends)[0])
        return states

    def _states(self, layout: Layout, *wanted: NDArray[np.int64]) -> list[Tensor]:
        """Return the last layer's hidden states [K, d] for each selection of tokens [2, K]."""
        return states_at(self.backbone, self._inputs(layout), wanted, self._selective)

    def _trees(self, rows: Sequence[PackedRow], max_tree: int | None = None) -> list[Tree]:
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
    def _is_head_plain(self) -> bool:
        """Test whether the head reads the last hidden states, and its output is the logits, without scaling or caps."""
        size = self.base.config.get_text_config(decoder=True).vocab_size
        inputs = {"input_ids": torch.arange(1, 5, device=self.base.device)[None] % size, "use_cache": False}
        states: Tensor = self.backbone(**inputs).last_hidden_state
        seen: list[Tensor] = []

        def replace(head: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
            # Caps change large numbers. They hardly change the logits of a model with small weights.
            seen.extend((args[0], torch.linspace(-1000, 1000, output.numel()).view_as(output).to(output)))
            return seen[1]

        with self.head.register_forward_hook(replace):
            logits = self.base(**inputs).logits
        if len(seen) != 2 or seen[0].shape != states.shape or not torch.equal(logits, seen[1].to(logits)):
            return False
        return bool((seen[0] - states).abs().max() <= tolerance(self.base) * states.abs().max())

    @torch.no_grad()
    def _follows_trees(self) -> bool:
        """Test on a few tokens whether rows with a shared prompt (trees) get the hidden states of separate rows."""
        try:
            check_layers(self.base)
            trees, apart = (_trial_states(self, is_shared) for is_shared in (True, False))
        except FAILURES:
            return False  # the model does not accept the mask or the positions
        return bool((trees - apart).abs().max() <= tolerance(self.base) * apart.abs().max())


def at_once(compute: Callable[[], Result]) -> Result:
    """Call a function without arguments. This is the default of `inside`, for models without sharded weights."""
    return compute()


def _trial_states(scorer: Scorer, is_shared: bool) -> Tensor:
    """Return the hidden states [K, d] that predict the replies in two test trees, or in separate rows."""
    size = scorer.base.config.get_text_config(decoder=True).vocab_size
    rows = []
    for prompt_length, lengths in ((5, (3, 1, 6)), (2, (4, 2))):
        prompt = (np.arange(prompt_length) * 7 + 3) % size
        for number, length in enumerate(lengths):
            reply = (np.arange(length) * 5 + 11 * number + 1) % size
            rows.append(PackedRow(np.concatenate([prompt, reply]), (TokenRecord(prompt, reply, False, ""),)))
    trees = [Tree((0, 1, 2), 5, 15), Tree((3, 4), 2, 8)]
    layout = laid_out(rows, trees if is_shared else [Tree((n,), len(r.ids), len(r.ids)) for n, r in enumerate(rows)])
    return at(scorer.backbone(**scorer._inputs(layout)).last_hidden_state, layout.predictors)
