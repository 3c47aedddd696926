"""From a network's outputs to actions: categorical, Gaussian and squashed Gaussian distributions.

Axes: N decisions, O outputs of the network, R numbers of the raw action. The *raw* action is what was drawn: indices of
choices, or numbers before they are clipped or squashed. Log-probabilities and entropies, in nats, are sums over the
components of one action, which are independent given the observation.
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
SMALLEST_UNIFORM = 2.0**-54  # half of a double's step near 0: the stream may draw 0, whose quantile is infinite
QUADRATURE_NODES = 32


class ActionHead(nn.Module, ABC):
    """A distribution over actions, given the outputs of a network."""

    kind: str
    settings: dict[str, Any]  # what makes the same head again, as JSON
    num_outputs: int
    num_uniforms: int  # random numbers that one action takes

    def masked(self, outputs: Tensor, legal: Tensor) -> Tensor:
        """The outputs with which no action that is illegal has any probability, nor any gradient.

        Args:
            outputs: [N, O] of the network.
            legal: bool [N, O], with a legal option of each choice.

        Raises:
            ValueError: if actions are no choices.
        """
        raise ValueError("an action mask needs actions that are choices; use Discrete or MultiDiscrete")

    @abstractmethod
    def drawn(self, outputs: Tensor, uniforms: Tensor | None) -> Tensor:
        """Raw actions [N, R] from float64 uniforms [N, num_uniforms] in [0, 1); None takes the mode."""

    @abstractmethod
    def logprobs(self, outputs: Tensor, raw: Tensor) -> Tensor:
        """[N] log-probability (density, for numbers) of the actions that the environment gets."""

    @abstractmethod
    def entropies(self, outputs: Tensor) -> Tensor:
        """[N]; the differential entropy, for numbers, which may be negative."""

    @abstractmethod
    def action(self, raw: NDArray[Any]) -> Any:
        """What the environment gets for one raw action [R]."""


class CategoricalHead(ActionHead):
    """One or several choices, each among its own options.

    Args:
        num_choices: options of each choice.
        starts: the number of each choice's first option.
        shape: the action's; None: a single number.
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
            # draw works in the memory it is given
            draw(logits.clone(), sampling, None if uniforms is None else uniforms[:, choice]).tokens
            for choice, logits in enumerate(self._each(outputs))
        ]
        return torch.stack(tokens, dim=-1)

    def logprobs(self, outputs: Tensor, raw: Tensor) -> Tensor:
        chosen = [
            logits.log_softmax(-1).gather(-1, raw[:, choice : choice + 1])
            for choice, logits in enumerate(self._each(outputs))
        ]
        return torch.cat(chosen, dim=-1).sum(-1)

    def entropies(self, outputs: Tensor) -> Tensor:
        logprobs = [logits.log_softmax(-1) for logits in self._each(outputs)]
        return torch.stack([-(each.exp() * each).sum(-1) for each in logprobs], dim=-1).sum(-1)

    def action(self, raw: NDArray[Any]) -> Any:
        chosen = raw + self.starts
        return int(chosen[0]) if self.shape is None else chosen.reshape(self.shape)

    def _each(self, outputs: Tensor) -> tuple[Tensor, ...]:
        """[N, options] logits of each choice."""
        return torch.split(outputs, self.num_choices, dim=-1)


class GaussianHead(ActionHead):
    """Independent normal numbers, whose means the network gives.

    Their deviations are learned and the same everywhere or, with `has_state_std`, outputs of the network too.

    The environment gets the number clipped to its bounds, and the log-probability is the unclipped number's: the
    clipping is part of the environment then.

    Args:
        low: bound of each number; may be infinite.
        high: bound of each number; may be infinite.
        shape: the action's.
        initial_log_std: initial log standard deviation of every number, in the unit of the action.
        has_state_std: the network gives the log standard deviations: its second half of outputs, above the initial one.
        log_std_bounds: lowest and highest log standard deviation, to which it is clamped.

    Raises:
        ValueError: if the initial log standard deviation is out of its bounds.
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
                f"initial_log_std is {initial_log_std}, but log_std_bounds clamp it to {lowest}..{highest}, where it "
                "cannot learn; start within the bounds"
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
        """Means [N, R] and log standard deviations [N, R] of the normal numbers."""
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
        # By the quantile function: one uniform number per component, whatever else is drawn.
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
    """Normal numbers squashed into the bounds, so that no probability is lost beyond them.

        a = low + (high - low) * (tanh(u) + 1) / 2,  u normal
        log p(a) = log p(u) - log |da/du|,  log |da/du| = log((high - low) / 2) + 2 * (log 2 - u - softplus(-2 u))

    Source: Haarnoja et al. (arXiv:1801.01290), appendix C. The second form of log(1 - tanh(u)^2) loses no digits where
    the tanh has rounded to 1.

    Args:
        low: finite bound of each number.
        high: finite bound of each number.
        shape: the action's.
        initial_log_std: initial log standard deviation of u, before the squashing.
        settings: of the normal numbers, as in `GaussianHead`.

    Raises:
        ValueError: if a bound is infinite, or as `GaussianHead`.
    """

    kind = "squashed_gaussian"
    _nodes: Tensor
    _weights: Tensor

    def __init__(
        self,
        low: Sequence[float],
        high: Sequence[float],
        shape: Sequence[int],
        initial_log_std: float = 0.0,
        **settings: Any,
    ):
        super().__init__(low, high, shape, initial_log_std, **settings)
        if not (np.isfinite(self.low).all() and np.isfinite(self.high).all()):
            raise ValueError(
                f"the bounds {self.low.tolist()}..{self.high.tolist()} are not finite, so nothing can be squashed into "
                "them; use a plain Gaussian, or gymnasium.wrappers.RescaleAction"
            )
        self._log_half_width = float(np.log((self.high - self.low) / 2).sum())
        # Gauss-Hermite: the mean of f over a standard normal is sum of weight * f(node), smooth f.
        nodes, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE_NODES)
        self.register_buffer("_nodes", torch.tensor(nodes, dtype=torch.float32), persistent=False)
        self.register_buffer("_weights", torch.tensor(weights / weights.sum(), dtype=torch.float32), persistent=False)

    def logprobs(self, outputs: Tensor, raw: Tensor) -> Tensor:
        return super().logprobs(outputs, raw) - log_slope_of_tanh(raw).sum(-1) - self._log_half_width

    def entropies(self, outputs: Tensor) -> Tensor:
        """The normal's entropy and the mean of log |da/du|, which has no closed form and is integrated numerically.

        An estimate from the one action drawn would carry no gradient to how actions are drawn.
        """
        means, log_std = self.normal(outputs)
        slopes = log_slope_of_tanh(means[..., None] + log_std.exp()[..., None] * self._nodes)
        return super().entropies(outputs) + (slopes @ self._weights).sum(-1) + self._log_half_width

    def action(self, raw: NDArray[Any]) -> Any:
        squashed = self.low + (self.high - self.low) * (np.tanh(raw) + 1) / 2
        return squashed.clip(self.low, self.high).reshape(self.shape)  # rounding may pass the bound


HEADS: dict[str, type[ActionHead]] = {head.kind: head for head in (CategoricalHead, GaussianHead, SquashedGaussianHead)}


def head_for(
    space: gymnasium.Space[Any],
    *,
    is_squashed: bool = False,
    initial_log_std: float = 0.0,
    has_state_std: bool = False,
    log_std_bounds: Sequence[float] = LOG_STD_BOUNDS,
) -> ActionHead:
    """The head for an action space.

    Args:
        space: Discrete, MultiDiscrete or Box.
        is_squashed: for a Box, squash into its bounds rather than clip to them.
        initial_log_std: for a Box, as in `GaussianHead`.
        has_state_std: likewise.
        log_std_bounds: likewise.

    Raises:
        ValueError: if the space is another, a Box to squash into is not bounded, or as `GaussianHead`.
    """
    if isinstance(space, gymnasium.spaces.Discrete):
        return CategoricalHead([int(space.n)], [int(space.start)])
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return CategoricalHead(space.nvec.ravel().tolist(), space.start.ravel().tolist(), space.shape)
    if isinstance(space, gymnasium.spaces.Box):
        kind = SquashedGaussianHead if is_squashed else GaussianHead
        return kind(
            space.low.ravel().tolist(),
            space.high.ravel().tolist(),
            space.shape,
            initial_log_std,
            has_state_std=has_state_std,
            log_std_bounds=log_std_bounds,
        )
    raise ValueError(f"there is no policy for actions in {space}; use Discrete, MultiDiscrete or Box")


def log_slope_of_tanh(u: Tensor) -> Tensor:
    """log(1 - tanh(u)^2), without rounding to log 0 for large u."""
    return 2 * (math.log(2) - u - functional.softplus(-2 * u))
