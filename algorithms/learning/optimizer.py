"""AdamW with gradient clipping and a learning-rate schedule."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..._ranges import MAX_LEARNING_RATE
from ..config import TrainConfig
from ..distribution.shares import Share
from .metrics import Numbers, Tally, check_finite, diverged

NORM = "grad_norm"
SMALLEST_SCALE = 1.0
"""Loss scale at which the scale is no longer the cause of a gradient that is not finite."""


HOST = torch.device("cpu")


def to_host(tensor: Tensor) -> Tensor:
    """Copy of a tensor in host memory, pinned if it comes from a GPU."""
    if tensor.device == HOST:
        return tensor
    return torch.empty_like(tensor, device=HOST, pin_memory=tensor.device.type == "cuda").copy_(tensor)


class Optimizer:
    """AdamW with a clipped gradient norm and a learning rate scheduled over updates.

    Args:
        parameters: parameters to optimize.
        learning_rate: peak learning rate.
        config: AdamW's settings, `max_grad_norm` and the learning-rate schedule.
        scales_loss: scale losses before the backward pass and unscale the gradient after it, for passes in float16,
            in which small gradients would round to 0.

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
        self.share = Share(self.parameters)
        self.config = config
        self.learning_rate = learning_rate
        self.adamw = torch.optim.AdamW(
            self.share.weights,
            lr=learning_rate,
            betas=config.adam[:2],
            eps=config.adam[2],
            weight_decay=config.weight_decay,
            fused=True,  # once through memory, without a copy of the weights' size
        )
        self.offloads = config.offload != "none"
        self._whole: dict[int, Any] | None = None
        device = self.parameters[0].device.type if self.parameters else "cpu"
        self.scaler = torch.amp.GradScaler(device, enabled=scales_loss)

    def zero_grad(self) -> None:
        self.share.forget_gradients()

    def scaled(self, loss: Tensor) -> Tensor:
        """Loss to differentiate: multiplied by the loss scale, if losses are scaled."""
        return self.scaler.scale(loss)

    def take_step(self, tally: Tally) -> Numbers | None:
        """Clip the gradient and take an optimizer step.

        Args:
            tally: metrics of the passes that computed the gradient.

        Returns:
            The metrics with "grad_norm", the norm before clipping. None if a scaled gradient overflowed: no weight has
            changed and the scale is smaller, so the gradient can be computed again.

        Raises:
            Divergence: if a metric or the gradient's norm is not finite; no weight has changed.
        """
        tally.add_common(NORM, self.clip())
        numbers = tally.read()
        check_finite({name: number for name, number in numbers.sums.items() if name != NORM}, self.parameters)
        return None if self.step(numbers.sums[NORM]) is None else numbers

    def clip(self) -> Tensor:
        """Clip the gradient, summed over ranks; returns its norm before clipping, on the device."""
        self.share.take_gradients()
        self.scaler.unscale_(self.adamw)
        return self.share.clip(self.config.max_grad_norm)

    def step(self, norm: float) -> float | None:
        """Take an optimizer step with the clipped gradient; returns the norm before clipping.

        Args:
            norm: result of `clip`.

        Returns:
            None if a scaled gradient overflowed; see `take_step`.

        Raises:
            Divergence: if the norm is not finite, and if losses are scaled, only at the smallest scale.
        """
        if not math.isfinite(norm):
            if self.scaler.get_scale() > SMALLEST_SCALE:
                self.scaler.update(self.scaler.get_scale() / 2)
                return None
            divergence = diverged(f"the gradient's norm is {norm}", self.parameters)
            divergence.learning_rate = self.learning_rate
            raise divergence
        with self._moments_here():
            self.scaler.step(self.adamw)
        self.scaler.update()
        return norm

    @contextmanager
    def _moments_here(self) -> Iterator[None]:
        """Inside the block AdamW's moments are on the device; with offloading they are in host memory outside it."""
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

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Inside the block `state_dict` has the moments of all weights on rank 0 (collective)."""
        self._whole = self.share.together(self.adamw.state_dict()["state"])
        yield
        self._whole = None

    def state_dict(self) -> dict[str, Any]:
        scaler = {"scaler": self.scaler.state_dict()} if self.scaler.is_enabled() else {}
        state = self.adamw.state_dict()
        return state | scaler | ({} if self._whole is None else {"state": self._whole})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.adamw.load_state_dict(state | {"state": self.share.apart(state["state"])})
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
