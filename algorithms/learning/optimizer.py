"""Optimizer of a model: micro-batches, metrics summed over them, gradient clipping, and AdamW with a schedule."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..._ranges import MAX_LEARNING_RATE
from ...agents.batching import default_max_tokens
from ...agents.core import Critic, Divergence, TrainablePolicy
from ...agents.scoring.sharding import own_rows
from ..config import TrainConfig
from ..distribution.group import current
from ..distribution.shares import Share
from .offloading import moments_on_device

NORM = "grad_norm"
SMALLEST_SCALE = 1.0  # smallest loss scale; if the gradient is still not finite, training has diverged
FIXED_TOKENS = 2_048  # per forward pass with `deterministic`, so that sums do not depend on the machine's memory


class Optimizer:
    """AdamW with gradient clipping and a learning rate schedule, whose peak is `learning_rate`.

    Raises `ValueError` if the learning rate is negative or too large for float32 weights. `scales_loss` multiplies
    losses by a loss scale, because small gradients round to 0 in float16.
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
            raise ValueError(f"the learning rate {learning_rate} must be between 0 and {MAX_LEARNING_RATE:g}")
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
            fused=True,  # one pass over memory, without a copy of the weights
        )
        self._whole: dict[int, Any] | None = None
        device = self.parameters[0].device.type if self.parameters else "cpu"
        self.scaler = torch.amp.GradScaler(device, enabled=scales_loss)

    def zero_grad(self) -> None:
        self.share.forget_gradients()

    def scaled(self, loss: Tensor) -> Tensor:
        """Return the loss to differentiate: multiplied by the loss scale if the gradient is computed in float16."""
        return self.scaler.scale(loss)

    def step(self, tally: Tally) -> dict[str, float] | None:
        """Clip the accumulated gradient, summed over ranks, and take an AdamW step.

        Returns the metrics of `tally` and "grad_norm", the norm before clipping. Returns None if a float16 gradient
        overflowed: the loss scale is then halved, and the gradient must be computed again. Raises `Divergence` if a
        metric or the norm is not finite. In both cases no weight changes.
        """
        self.share.take_gradients()
        self.scaler.unscale_(self.adamw)
        norm = self.share.clip(self.config.max_grad_norm)
        if current().is_writer:  # all ranks have the same norm, and `read` sums over ranks
            tally.add(NORM, norm)
        metrics = tally.read()
        for name, number in metrics.items():
            if name != NORM and not math.isfinite(number):
                raise diverged(f"{name} is {number}", self.parameters)
        if not math.isfinite(metrics[NORM]):
            if self.scaler.get_scale() > SMALLEST_SCALE:
                self.scaler.update(self.scaler.get_scale() / 2)
                return None
            divergence = diverged(f"the gradient's norm is {metrics[NORM]}", self.parameters)
            divergence.learning_rate = self.learning_rate
            raise divergence
        with nullcontext() if self.config.offload == "none" else moments_on_device(self.adamw):
            self.scaler.step(self.adamw)
        self.scaler.update()
        return metrics

    def set_progress(self, update: int) -> None:
        """Set the learning rate for an update, counted from 0."""
        rate = self.learning_rate * scheduled(update, self.config)
        for group in self.adamw.param_groups:
            group["lr"] = rate

    def keep_rate(self, update: int) -> None:
        """Keep the peak rate of a loaded state after `update` updates, also if a model's default rate has changed."""
        rate = self.adamw.param_groups[0]["lr"] / (scheduled(update - 1, self.config) if update else 1)
        if not math.isclose(rate, self.learning_rate):  # else rounding would change a resumed run
            self.learning_rate = rate

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Inside the block, `state_dict` on rank 0 returns AdamW's moments of all ranks (collective)."""
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


class Learner:
    """Base class of a model that learns, with its optimizer.

    Attributes:
        agents: agents that use the policy or critic, or "joint" for a joint critic; set by the trainer.
        optimizer: None if the model has no separate weights, such as a value head on a policy.
    """

    optimizer: Optimizer | None

    def __init__(self, model: TrainablePolicy | Critic, config: TrainConfig, learning_rate: float):
        self.agents: list[str] = []
        self.model = model
        current().share_out(model, shards=config.fsdp)
        parameters = model.parameters()
        scales_loss = model.compute_dtype == torch.float16
        self.optimizer = Optimizer(parameters, learning_rate, config, scales_loss=scales_loss) if parameters else None
        self.device = parameters[0].device if parameters else torch.device("cpu")
        self.max_tokens = tokens_per_pass(config, self.device)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Gather all weights and AdamW's moments on rank 0 inside the block, if ranks hold shards (collective)."""
        with self.model.whole(), nullcontext() if self.optimizer is None else self.optimizer.whole():
            yield


def scheduled(update: int, config: TrainConfig) -> float:
    """Return the learning rate of an update as a fraction of the peak: linear warm-up, then the schedule."""
    if update < config.warmup_updates:
        return (update + 1) / (config.warmup_updates + 1)
    if config.learning_rate_schedule == "constant":
        return 1.0
    progress = (update - config.warmup_updates) / max(1, config.num_updates - config.warmup_updates)
    return 1 - progress if config.learning_rate_schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2


class Pass(NamedTuple):
    """Forward pass of one rank over one micro-batch."""

    items: list[int]
    weight: float  # factor of the loss; 0 for a padding pass, whose numbers are not used


def own_passes(cut: Callable[[int], Sequence[list[int]]], num_tokens: int, max_tokens: int) -> list[Pass]:
    """Return the forward passes of this rank, of at most `max_tokens` tokens each.

    All ranks run the same number of passes, because a pass with sharded weights is collective. `cut` divides all items
    into passes of at most a given number of tokens, the same on all ranks.
    """
    group = current()
    passes = cut(max_tokens)
    if len(passes) < group.size:
        passes = cut(-(-num_tokens // group.size))
    own = [Pass(items, 1.0) for items in group.shard(passes)]
    return own + [Pass(passes[0], 0.0)] * (-(-len(passes) // group.size) - len(own))


def tokens_per_pass(config: TrainConfig, device: torch.device) -> int:
    """Return the tokens per forward pass. Raises `ValueError` if `max_batch_tokens` contradicts `deterministic`."""
    if not config.deterministic:
        return config.max_batch_tokens or default_max_tokens(device)
    if config.max_batch_tokens is not None and config.max_batch_tokens < FIXED_TOKENS:
        raise ValueError(
            f"max_batch_tokens={config.max_batch_tokens} is too small for deterministic=True, whose passes have "
            f"{FIXED_TOKENS} tokens; raise max_batch_tokens to {FIXED_TOKENS}, or omit either setting"
        )
    return FIXED_TOKENS


class Tally:
    """Metrics of a rank's forward passes, accumulated on the device by name; `read` combines all ranks."""

    def __init__(self) -> None:
        self._numbers: list[Tensor] = []
        self._uses: list[tuple[str, float | None]] = []  # None: a maximum

    def add(self, name: str, number: Tensor, weight: float = 1.0) -> None:
        """Add `number * weight` to the sum with this name."""
        self._numbers.append(number.detach())
        self._uses.append((name, weight))

    def add_maximum(self, name: str, number: Tensor) -> None:
        self._numbers.append(number.detach())
        self._uses.append((name, None))

    def read(self) -> dict[str, float]:
        """Return the sums and maxima over all ranks by name. Waits for the device once (collective)."""
        numbers = torch.stack([number.double() for number in self._numbers]).cpu().tolist() if self._numbers else []
        own_sums: dict[str, float] = defaultdict(float)
        own_maxima: dict[str, float] = {}
        for (name, weight), number in zip(self._uses, numbers, strict=True):
            if weight is None:
                own_maxima[name] = max(own_maxima.get(name, -math.inf), number)
            else:
                own_sums[name] += number * weight
        sums: dict[str, float] = defaultdict(float)
        maxima: dict[str, float] = {}
        for rank_sums, rank_maxima in current().gather((dict(own_sums), own_maxima)):
            for name, number in rank_sums.items():
                sums[name] += number
            for name, number in rank_maxima.items():
                maxima[name] = max(maxima.get(name, -math.inf), number)
        return {**sums, **maxima}


def means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each metric over rows (models or optimizer steps); empty if there are no rows."""
    return {name: sum(row[name] for row in rows) / len(rows) for name in (rows[0] if rows else ())}


def diverged(problem: str, parameters: Iterable[nn.Parameter]) -> Divergence:
    """Return a `Divergence` error that contains the largest weight of all ranks (collective)."""
    found = Divergence(problem, [nn.Parameter(own_rows(weight)) for weight in parameters])
    ranks = [each for each in current().gather(found.largest_weight) if each is not None]
    found.largest_weight = max(ranks, default=None)
    return found
