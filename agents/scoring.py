"""Token ids → hidden states → log-probabilities, with a gradient: the update's forward pass.

Logits are made only where a token was sampled; the values of a shared head come from the same pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from .core import Completion
from .encoding import TokenTrace


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a batch: the tokens of consecutive turns that extend each other."""

    ids: NDArray[np.int64]
    """[L] the last of these turns' prompt and completion: it contains all the others."""
    turns: tuple[TokenTrace, ...]


def rows_of(track: Sequence[Completion]) -> list[Row]:
    """As few rows as hold all the turns of a track: one, unless its history was rewritten."""
    chains: list[list[TokenTrace]] = []
    for completion in track:
        trace: TokenTrace = completion.trace
        if chains and trace.is_extension:
            chains[-1].append(trace)
        else:
            chains.append([trace])
    return [Row(np.concatenate([chain[-1].prompt_ids, chain[-1].completion_ids]), tuple(chain)) for chain in chains]


def padded(rows: Sequence[NDArray[np.int64]], device: torch.device) -> Tensor:
    """[R, L] rows padded on the right; with causal attention nothing before it reads the padding."""
    ids = np.zeros((len(rows), max(len(row) for row in rows)), dtype=np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    return torch.from_numpy(ids).to(device)


class Scorer:
    """Hidden states and selected logits of a causal language model.

    Args:
        model: the transformers model itself, below any adapter wrapper.

    A model whose logits are more than its output matrix times its last hidden state (a soft cap, a scale) is found by a
    comparison on a few tokens, and then run whole.
    """

    def __init__(self, model: PreTrainedModel):
        self.model = model
        self.backbone: nn.Module = model.base_model
        self.head: nn.Module = model.get_output_embeddings()
        self.device = model.device
        self._has_plain_head = self._agrees()

    def hidden(self, ids: Tensor) -> Tensor:
        """[R, L, d] last hidden states of right-padded ids [R, L]."""
        states: Tensor = self.backbone(input_ids=ids, use_cache=False).last_hidden_state
        return states

    def scores(self, rows: Sequence[Row], temperature: float) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities [K], entropies [K] of all sampled tokens in order, and prompt-end hidden states [N, d]."""
        device = self.device
        ids = padded([row.ids for row in rows], device)
        row_of, position, target, row_of_turn, prompt_end = _positions(rows)
        index = torch.from_numpy(np.stack([row_of, position])).to(device)
        ends = torch.from_numpy(np.stack([row_of_turn, prompt_end])).to(device)
        if self._has_plain_head:
            hidden = self.hidden(ids)
            logits = self.head(hidden[index[0], index[1]])
        else:
            output = self.model(input_ids=ids, use_cache=False, output_hidden_states=True)
            hidden, logits = output.hidden_states[-1], output.logits[index[0], index[1]]
        logits = logits.float() / temperature
        total = torch.logsumexp(logits, dim=-1)
        targets = torch.from_numpy(target).to(device)
        logprobs = logits.gather(-1, targets[:, None])[:, 0] - total
        entropies = total - (torch.softmax(logits, dim=-1) * logits).sum(-1)
        return logprobs, entropies, hidden[ends[0], ends[1]]

    @torch.no_grad()
    def _agrees(self) -> bool:
        ids = torch.arange(1, 5, device=self.model.device)[None]
        plain = self.head(self.hidden(ids))
        return bool(torch.allclose(plain, self.model(input_ids=ids, use_cache=False).logits, atol=1e-4, rtol=1e-3))


def _positions(rows: Sequence[Row]) -> tuple[NDArray[np.int64], ...]:
    """Where each sampled token is predicted (row, position), which it is, and where each turn's prompt ends."""
    row_of, position, target, row_of_turn, prompt_end = [], [], [], [], []
    for r, row in enumerate(rows):
        for trace in row.turns:
            start, length = len(trace.prompt_ids), len(trace.completion_ids)
            row_of.append(np.full(length, r))
            position.append(np.arange(start - 1, start - 1 + length))
            target.append(trace.completion_ids)
            row_of_turn.append(r)
            prompt_end.append(start - 1)
    return (
        np.concatenate(row_of),
        np.concatenate(position),
        np.concatenate(target),
        np.asarray(row_of_turn),
        np.asarray(prompt_end),
    )
