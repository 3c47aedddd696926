"""AdamW with gradient clipping and a learning-rate schedule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ...agents.core import Divergence
from ..config import TrainConfig

MAX_LEARNING_RATE = 1e30  # beyond it a step of AdamW leaves the range of float32


class Optimizer:
    """AdamW with a clipped gradient norm and a learning rate scheduled over updates.

    Args:
        parameters: parameters to optimize.
        learning_rate: peak learning rate.
        config: AdamW's settings, `max_grad_norm` and the learning-rate schedule.

    Raises:
        ValueError: if no weight could stay finite at the learning rate.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], learning_rate: float, config: TrainConfig):
        if not 0 <= learning_rate <= MAX_LEARNING_RATE:
            raise ValueError(f"learning rate {learning_rate}: must lie in 0..{MAX_LEARNING_RATE:g}")
        self.parameters = list(parameters)
        self.config = config
        self.learning_rate = learning_rate
        self.adamw = torch.optim.AdamW(
            self.parameters,
            lr=learning_rate,
            betas=(config.adam_beta1, config.adam_beta2),
            eps=config.adam_epsilon,
            weight_decay=config.weight_decay,
        )

    def zero_grad(self) -> None:
        self.adamw.zero_grad(set_to_none=True)

    def step(self) -> float:
        """Take an optimizer step; returns the gradient's norm before clipping.

        Raises:
            Divergence: if the gradient's norm is not finite; the weights stay unchanged.
        """
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, self.config.max_grad_norm))
        if not math.isfinite(norm):
            divergence = Divergence(f"the gradient's norm is {norm}", self.parameters)
            divergence.learning_rate = self.learning_rate
            raise divergence
        self.adamw.step()
        return norm

    def set_progress(self, update: int) -> None:
        """Set the learning rate for an update, counted from 0."""
        rate = self.learning_rate * scheduled(update, self.config)
        for group in self.adamw.param_groups:
            group["lr"] = rate

    def state_dict(self) -> dict[str, Any]:
        return self.adamw.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.adamw.load_state_dict(state)


def scheduled(update: int, config: TrainConfig) -> float:
    """Learning rate as a fraction of its peak: linear warm-up, then the decay that the settings name.

    Args:
        update: number of the update, counted from 0.
    """
    if update < config.warmup_updates:
        return (update + 1) / (config.warmup_updates + 1)
    if config.learning_rate_schedule == "constant":
        return 1.0
    progress = (update - config.warmup_updates) / max(1, config.num_updates - config.warmup_updates)
    return 1 - progress if config.learning_rate_schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2
