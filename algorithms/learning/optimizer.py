"""AdamW with gradient clipping and a learning-rate schedule."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..._ranges import MAX_LEARNING_RATE
from ...agents.core import Divergence
from ..config import TrainConfig
from ..distribution.gradients import add_up_gradients
from .offloading import to_host

FUSED_DEVICES = {"cpu", "cuda", "mps", "xpu"}
"""Kinds of devices with a kernel that does a whole step: once through memory, without a copy of the weights' size."""
SMALLEST_SCALE = 1.0
"""Loss scale at which a gradient that is not finite is the model's own fault, and not the scale's."""


class Optimizer:
    """AdamW with a clipped gradient norm and a learning rate scheduled over updates.

    Args:
        parameters: parameters to optimize.
        learning_rate: peak learning rate.
        config: AdamW's settings, `max_grad_norm` and the learning-rate schedule.
        scales_loss: multiply losses before the backward pass and divide the gradient after it, for passes in float16,
            where small gradients would round to 0.

    Raises:
        ValueError: if no weight could stay finite at the learning rate.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        learning_rate: float,
        config: TrainConfig,
        *,
        scales_loss: bool = False,
    ):
        if not 0 <= learning_rate <= MAX_LEARNING_RATE:
            raise ValueError(f"learning rate {learning_rate}: must lie in 0..{MAX_LEARNING_RATE:g}")
        self.parameters = list(parameters)
        self.config = config
        self.learning_rate = learning_rate
        devices = {weight.device.type for weight in self.parameters}
        self.adamw = torch.optim.AdamW(
            self.parameters,
            lr=learning_rate,
            betas=(config.adam_beta1, config.adam_beta2),
            eps=config.adam_epsilon,
            weight_decay=config.weight_decay,
            fused=devices <= FUSED_DEVICES or None,
        )
        self.offloads = config.offload != "none"
        device = self.parameters[0].device.type if self.parameters else "cpu"
        self.scaler = torch.amp.GradScaler(device, enabled=scales_loss)

    def zero_grad(self) -> None:
        self.adamw.zero_grad(set_to_none=True)

    def backward(self, loss: Tensor) -> None:
        """Add the loss's gradient, scaled where losses are."""
        torch.autograd.backward(self.scaler.scale(loss))

    def clip(self) -> Tensor:
        """Clip the gradient, the sum of all ranks' parts; returns its norm before that, on the device."""
        add_up_gradients(self.parameters)
        self.scaler.unscale_(self.adamw)
        return torch.nn.utils.clip_grad_norm_(self.parameters, self.config.max_grad_norm)

    def step(self, norm: float) -> float | None:
        """Take an optimizer step with the clipped gradient; returns the gradient's norm before clipping.

        Args:
            norm: what `clip` gave, read together with whatever else the host wants to know.

        Returns:
            None where the scaled gradient overflowed: the weights stay unchanged, and the scale is now smaller, so that
            the same gradient may be computed again.

        Raises:
            Divergence: if the gradient's norm is not finite, at the smallest scale if losses are scaled; the weights
                stay unchanged.
        """
        if not math.isfinite(norm) and self.scaler.get_scale() > SMALLEST_SCALE:
            self.scaler.update(self.scaler.get_scale() / 2)
            return None
        if not math.isfinite(norm):
            divergence = Divergence(f"the gradient's norm is {norm}", self.parameters)
            divergence.learning_rate = self.learning_rate
            raise divergence
        with self._moments_here():
            self.scaler.step(self.adamw)
        self.scaler.update()
        return norm

    @contextmanager
    def _moments_here(self) -> Iterator[None]:
        """Have the moments on the device inside the block; outside it they stay in host memory, where they are to."""
        if not self.offloads:
            yield
            return
        for weight, moments in self.adamw.state.items():
            for name, value in moments.items():
                moments[name] = value.to(weight.device, non_blocking=True)
        yield
        for moments in self.adamw.state.values():
            for name, value in moments.items():
                moments[name] = to_host(value)

    def set_progress(self, update: int) -> None:
        """Set the learning rate for an update, counted from 0."""
        rate = self.learning_rate * scheduled(update, self.config)
        for group in self.adamw.param_groups:
            group["lr"] = rate

    def state_dict(self) -> dict[str, Any]:
        scaler = {"scaler": self.scaler.state_dict()} if self.scaler.is_enabled() else {}
        return self.adamw.state_dict() | scaler

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.adamw.load_state_dict(state)
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(state["scaler"])


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
