"""Action distributions: categorical, Gaussian and squashed Gaussian.

Axes: N decisions, O network outputs, R components of the raw action. The raw action is the sample: indices of options,
or real numbers before clipping or squashing. Log-probabilities and entropies, in nats, are sums over the components.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ..decoding.sampling import LOWEST_LOGIT, Sampling, draw
from .config import LOG_STD_BOUNDS

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
SMALLEST_UNIFORM = 2.0**-54  # replaces the random number 0, whose quantile is infinite
QUADRATURE_NODES = 32


class ActionHead(nn.Module, ABC):
    """Action distribution, whose parameters are the outputs of a network."""

    kind: str
    settings: dict[str, Any]  # arguments of the constructor, as JSON
    num_outputs: int
    num_uniforms: int  # random numbers per action

    def masked(self, outputs: Tensor, legal: Tensor) -> Tensor:
        """Set the probabilities of illegal options to 0. `legal`: bool [N, O], at least one True per component."""
        raise ValueError("action masks need Discrete or MultiDiscrete actions, got continuous actions")

    @abstractmethod
    def drawn(self, outputs: Tensor, uniforms: Tensor | None) -> Tensor:
        """Sample raw actions [N, R] from float64 `uniforms` [N, num_uniforms] in [0, 1). None: return the mode."""

    @abstractmethod
    def logprobs(self, outputs: Tensor, raw: Tensor) -> Tensor:
        """Return [N] log-probabilities of raw actions; for continuous actions log-densities."""

    @abstractmethod
    def entropies(self, outputs: Tensor) -> Tensor:
        """Return [N] entropies; for continuous actions differential entropies, which can be negative."""

    @abstractmethod
    def action(self, raw: NDArray[Any]) -> Any:
        """Convert one raw action [R] to an element of the action space."""


class CategoricalHead(ActionHead):
    """Independent categorical distributions, for Discrete and MultiDiscrete actions.

    Args:
        num_choices: number of options per component.
        starts: smallest option per component.
        shape: shape of the action. None: an integer.
    """

    kind = "categorical"

    def __init__(self, num_choices: Sequence[int], starts: Sequence[int], shape: Sequence[int] | None = None):
        super().__init__()
        self.num_choices = list(num_choices)
        self.starts = np.asarray(starts, dtype=np.int64)
        self.shape = None if shape is None else tuple(shape)
        self.settings = {
            "num_choices": self.num_choices,
            "starts": self.starts.tolist(),
            "shape": None if shape is None else list(shape),
        }
        self.num_outputs = sum(self.num_choices)
        self.num_uniforms = len(self.num_choices)

    def masked(self, outputs: Tensor, legal: Tensor) -> Tensor:
        return outputs.masked_fill(~legal, LOWEST_LOGIT)

    def drawn(self, outputs: Tensor, uniforms: Tensor | None) -> Tensor:
        sampling = Sampling(greedy=uniforms is None)
        tokens = [
            # `draw` modifies its input
            draw(logits.clone(), sampling, None if uniforms is None else uniforms[:, choice]).tokens
            for choice, logits in enumerate(outputs.split(self.num_choices, dim=-1))
        ]
        return torch.stack(tokens, dim=-1)

    def logprobs(self, outputs: Tensor, raw: Tensor) -> Tensor:
        chosen = [
            logits.log_softmax(-1).gather(-1, raw[:, choice : choice + 1])
            for choice, logits in enumerate(outputs.split(self.num_choices, dim=-1))
        ]
        return torch.cat(chosen, dim=-1).sum(-1)

    def entropies(self, outputs: Tensor) -> Tensor:
        logprobs = [logits.log_softmax(-1) for logits in outputs.split(self.num_choices, dim=-1)]
        return torch.stack([-(each.exp() * each).sum(-1) for each in logprobs], dim=-1).sum(-1)

    def action(self, raw: NDArray[Any]) -> Any:
        chosen = raw + self.starts
        return int(chosen[0]) if self.shape is None else chosen.reshape(self.shape)


class GaussianHead(ActionHead):
    """Independent normal distributions, whose means are network outputs.

    Actions are clipped to the bounds. Log-probabilities are computed before clipping.

    Args:
        low: lower bound per component; may be infinite.
        high: upper bound per component; may be infinite.
        shape: shape of the action.
        initial_log_std: initial log standard deviation, in the action's unit.
        has_state_std: True: log standard deviations are `initial_log_std` plus the second half of the network
            outputs. False: they are parameters.
        log_std_bounds: minimum and maximum to which log standard deviations are clamped.
    """

    kind = "gaussian"

    def __init__(
        self,
        low: Sequence[float],
        high: Sequence[float],
        shape: Sequence[int],
        initial_log_std: float = 0.0,
        *,
        has_state_std: bool = False,
        log_std_bounds: Sequence[float] = LOG_STD_BOUNDS,
    ):
        super().__init__()
        lowest, highest = log_std_bounds
        if not lowest <= initial_log_std <= highest:
            raise ValueError(
                f"initial_log_std={initial_log_std} is outside of log_std_bounds={lowest}..{highest}, where its "
                "gradient is 0; choose a value within the bounds"
            )
        self.low, self.high = np.asarray(low, dtype=np.float32), np.asarray(high, dtype=np.float32)
        self.shape = tuple(shape)
        self.settings = {
            "low": self.low.tolist(),
            "high": self.high.tolist(),
            "shape": list(shape),
            "initial_log_std": initial_log_std,
            "has_state_std": has_state_std,
            "log_std_bounds": list(log_std_bounds),
        }
        self.num_uniforms = len(self.low)
        self.num_outputs = (2 if has_state_std else 1) * self.num_uniforms
        self.initial_log_std, self.log_std_bounds = initial_log_std, (lowest, highest)
        self.log_std = None if has_state_std else nn.Parameter(torch.full((self.num_uniforms,), initial_log_std))

    def normal(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return means [N, R] and log standard deviations [N, R]."""
        if self.log_std is None:
            means, above_initial = outputs.chunk(2, dim=-1)
            log_std = self.initial_log_std + above_initial
        else:
            means, log_std = outputs, self.log_std.expand_as(outputs)
        return means, log_std.clamp(*self.log_std_bounds)

    def drawn(self, outputs: Tensor, uniforms: Tensor | None) -> Tensor:
        means, log_std = self.normal(outputs)
        if uniforms is None:
            return means
        # The quantile function uses one random number per component, so that samples do not depend on the batch.
        normal: Tensor = torch.special.ndtri(uniforms.clamp(min=SMALLEST_UNIFORM))
        return (means.double() + log_std.double().exp() * normal).to(outputs.dtype)

    def logprobs(self, outputs: Tensor, raw: Tensor) -> Tensor:
        means, log_std = self.normal(outputs)
        deviation = (raw - means) * (-log_std).exp()
        return (-0.5 * deviation.square() - log_std - HALF_LOG_2PI).sum(-1)

    def entropies(self, outputs: Tensor) -> Tensor:
        return (self.normal(outputs)[1] + 0.5 + HALF_LOG_2PI).sum(-1)

    def action(self, raw: NDArray[Any]) -> Any:
        return raw.clip(self.low, self.high).reshape(self.shape)


class SquashedGaussianHead(GaussianHead):
    """Normal distributions squashed into the bounds by tanh. Arguments: see `GaussianHead`.

        a = low + (high - low) * (tanh(u) + 1) / 2,  u normal
        log p(a) = log p(u) - log |da/du|,  log |da/du| = log((high - low) / 2) + 2 * (log 2 - u - softplus(-2 u))

    Source: Haarnoja et al. (arXiv:1801.01290), appendix C. This form of log(1 - tanh(u)^2) is also exact for large u.
    """

    kind = "squashed_gaussian"
    _nodes: Tensor
    _weights: Tensor

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if not (np.isfinite(self.low).all() and np.isfinite(self.high).all()):
            raise ValueError(
                f"the bounds {self.low.tolist()}..{self.high.tolist()} are not finite, but gaussian='squashed' needs "
                "finite bounds; use gaussian='plain'"
            )
        self._log_half_width = float(np.log((self.high - self.low) / 2).sum())
        # Gauss-Hermite quadrature: for standard normal u, the mean of f(u) is the sum of weight * f(node).
        nodes, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE_NODES)
        self.register_buffer("_nodes", torch.tensor(nodes, dtype=torch.float32), persistent=False)
        self.register_buffer("_weights", torch.tensor(weights / weights.sum(), dtype=torch.float32), persistent=False)

    def logprobs(self, outputs: Tensor, raw: Tensor) -> Tensor:
        return super().logprobs(outputs, raw) - log_slope_of_tanh(raw).sum(-1) - self._log_half_width

    def entropies(self, outputs: Tensor) -> Tensor:
        """Return [N] entropies of u plus the mean of log |da/du|, by quadrature, because no closed form exists."""
        # An estimate from the sampled action would have no gradient with respect to the sampling distribution.
        means, log_std = self.normal(outputs)
        slopes = log_slope_of_tanh(means[..., None] + log_std.exp()[..., None] * self._nodes)
        return super().entropies(outputs) + (slopes @ self._weights).sum(-1) + self._log_half_width

    def action(self, raw: NDArray[Any]) -> Any:
        squashed = self.low + (self.high - self.low) * (np.tanh(raw) + 1) / 2
        return squashed.clip(self.low, self.high).reshape(self.shape)  # rounding may exceed a bound


HEADS: dict[str, type[ActionHead]] = {head.kind: head for head in (CategoricalHead, GaussianHead, SquashedGaussianHead)}


def head_for(space: gymnasium.Space[Any], *, is_squashed: bool = False, has_state_std: bool = False) -> ActionHead:
    """Return the action distribution for a Discrete, MultiDiscrete or Box space."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return CategoricalHead([int(space.n)], [int(space.start)])
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return CategoricalHead(space.nvec.ravel().tolist(), space.start.ravel().tolist(), space.shape)
    if isinstance(space, gymnasium.spaces.Box):
        kind = SquashedGaussianHead if is_squashed else GaussianHead
        bounds = space.low.ravel().tolist(), space.high.ravel().tolist()
        return kind(*bounds, space.shape, has_state_std=has_state_std)
    raise ValueError(f"there is no policy for actions in {space}; use Discrete, MultiDiscrete or Box")


def log_slope_of_tanh(u: Tensor) -> Tensor:
    """Return log(1 - tanh(u)^2), which is also finite for large u."""
    return 2 * (math.log(2) - u - functional.softplus(-2 * u))
