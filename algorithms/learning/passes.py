"""Forward passes of learning: how many tokens one may have, and which of them are whose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from ...agents.batching import default_max_tokens
from ..config import TrainConfig
from ..distribution.group import current

FIXED_TOKENS = 2_048
"""Tokens per pass with `deterministic`: whatever memory a run is given, gradients are added up in the same order."""


def tokens_per_pass(config: TrainConfig, device: torch.device) -> int:
    """Tokens per pass that the settings ask for.

    Raises:
        ValueError: if `max_batch_tokens` leaves less than `deterministic` takes.
    """
    if not config.deterministic:
        return config.max_batch_tokens or default_max_tokens(device)
    if config.max_batch_tokens is not None and config.max_batch_tokens < FIXED_TOKENS:
        raise ValueError(
            f"deterministic=True computes in passes of {FIXED_TOKENS} tokens, but max_batch_tokens is "
            f"{config.max_batch_tokens}; raise it to {FIXED_TOKENS}, or leave one of them out"
        )
    return FIXED_TOKENS


class Pass(NamedTuple):
    """Items that one rank computes in one forward pass."""

    items: list[int]
    weight: float
    """1; 0 for a pass whose result counts elsewhere, made so that all ranks make equally many."""


def dealt(cut: Callable[[int], Sequence[list[int]]], num_tokens: int, max_tokens: int) -> list[Pass]:
    """This rank's passes: every rank has equally many, as those of sharded weights wait for each other.

    Args:
        cut: divides all items into passes of at most so many tokens, on all ranks alike.
        num_tokens: tokens of all items.
        max_tokens: tokens per pass; fewer where that leaves a rank without work.
    """
    group = current()
    passes = cut(max_tokens)
    if len(passes) < group.size:
        passes = cut(-(-num_tokens // group.size))
    own = [Pass(items, 1.0) for items in group.shard(passes)]
    return own + [Pass(passes[0], 0.0)] * (-(-len(passes) // group.size) - len(own))
