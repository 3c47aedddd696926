"""Forward passes of learning: how many tokens one may have."""

from __future__ import annotations

import torch

from ...agents.batching import default_max_tokens
from ..config import TrainConfig

FIXED_TOKENS = 256
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
