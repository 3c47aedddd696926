"""AdamW with gradient clipping and a learning-rate schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..._ranges import MAX_LEARNING_RATE
from ..config import TrainConfig
from ..distribution.group import current
from ..distribution.shares import Share
from .finiteness import Numbers, Tally, check_finite, diverged, numbers_of
from .offloading import to_host

UNGUARDED_DEVICES = {"cpu", "mps"}
"""Kinds of devices on which no step is queued under a flag: a CPU queues nothing, and Apple's kernel reads no flag."""
NORM = "grad_norm"
PASSED = "limit_passed"
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
        self._kind = self.parameters[0].device.type if self.parameters else "cpu"
        self._whole: dict[int, Any] | None = None
        self.scaler = torch.amp.GradScaler(self._kind, enabled=scales_loss)

    def zero_grad(self) -> None:
        self.share.forget_gradients()

    def backward(self, loss: Tensor) -> None:
        """Add the loss's gradient, scaled where losses are."""
        torch.autograd.backward(self.scaler.scale(loss))

    def clip(self) -> Tensor:
        """Clip the gradient, the sum of all ranks' parts; returns its norm before that, on the device."""
        self.share.take_gradients()
        self.scaler.unscale_(self.adamw)
        return self.share.clip(self.config.max_grad_norm)

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
        self.check(norm)
        with self._moments_here():
            self.scaler.step(self.adamw)
        self.scaler.update()
        return norm

    def check(self, norm: float) -> None:
        """Refuse a gradient's norm that is not finite.

        Raises:
            Divergence: with the learning rate.
        """
        if not math.isfinite(norm):
            divergence = diverged(f"the gradient's norm is {norm}", self.parameters)
            divergence.learning_rate = self.learning_rate
            raise divergence

    @property
    def can_queue(self) -> bool:
        """Whether `step_unless` works: on a device that reads a flag, where no loss is scaled, on one rank."""
        return not self.scaler.is_enabled() and self._kind not in UNGUARDED_DEVICES and current().size == 1

    def step_unless(self, is_over: Tensor) -> None:
        """Queue a step with the clipped gradient, which the device skips where the flag says so; nothing is waited for.

        Args:
            is_over: bool [], on the device.
        """
        # The fused kernel's own way to skip a step, made for scaled losses: weights, moments and count stay.
        self.adamw.found_inf = is_over.float()  # type: ignore[attr-defined]
        try:
            with self._moments_here():
                self.adamw.step()
        finally:
            del self.adamw.found_inf  # type: ignore[attr-defined]

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

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Inside the block the writer has the moments of all weights, which `state_dict` needs; all ranks enter it."""
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


class Descent:
    """The optimizer steps of an update, of which the host hears as late as it may.

    Where it would have to wait, steps are queued under a flag on the device: once a loss, a metric or a gradient is not
    finite, or a limit is passed, no later step changes a weight. What is read at last then leads to the same weights,
    metrics and errors as if each step had been looked at before it was taken, which is what happens on a CPU.

    Args:
        optimizer: takes the steps.
        limit: name and limit of a metric; a step that exceeds it is the last.
    """

    def __init__(self, optimizer: Optimizer, limit: tuple[str, float] | None = None):
        self.taken: list[Numbers] = []
        self._optimizer = optimizer
        self._limit = limit
        self._queued: list[Tally] = []
        self._is_over: Tensor | None = None

    def step(self, gradient: Callable[[], Tally], *, reads: bool) -> bool:
        """Take a step.

        Args:
            gradient: adds up the step's gradient; returns the numbers of its passes.
            reads: whether the host is to know of this step, and of those queued before, now: for the last of all.

        Returns:
            Whether there may be another.

        Raises:
            Divergence: if a number is not finite; the weights are those before the step that it belongs to.
        """
        if self._optimizer.can_queue and not reads:
            self._queue(self._computed(gradient))
            return True
        while True:
            *earlier, last = numbers_of([*self._queued, self._computed(gradient)])
            self._queued, self._is_over = [], None
            for numbers in earlier:
                self._optimizer.check(self._checked(numbers))
                self.taken.append(numbers)
                if numbers.largest[PASSED]:
                    return False
            if self._optimizer.step(self._checked(last)) is not None:
                self.taken.append(last)
                return self._limit is None or last.sums[self._limit[0]] <= self._limit[1]
            # A scaled gradient overflowed: it is computed again, at a smaller scale.

    def mean(self, name: str) -> float:
        """Mean of a number over the steps that were taken."""
        return sum(numbers.sums[name] for numbers in self.taken) / len(self.taken)

    def _computed(self, gradient: Callable[[], Tally]) -> Tally:
        self._optimizer.zero_grad()
        tally = gradient()
        tally.add_common(NORM, self._optimizer.clip())
        return tally

    def _queue(self, tally: Tally) -> None:
        is_ruined = ~tally.is_finite()
        is_over = is_ruined if self._is_over is None else self._is_over | is_ruined
        self._optimizer.step_unless(is_over)
        has_passed = torch.zeros_like(is_over) if self._limit is None else tally.total(self._limit[0]) > self._limit[1]
        tally.compare(PASSED, has_passed)
        self._is_over = is_over | has_passed
        self._queued.append(tally)

    def _checked(self, numbers: Numbers) -> float:
        """The norm of the gradient; the other numbers are finite."""
        others = {name: number for name, number in numbers.sums.items() if name != NORM}
        check_finite(others, self._optimizer.parameters)
        return numbers.sums[NORM]


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
