"""Settings of the perceptrons that play environments of vectors. Nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..._ranges import Checked, Count, Finite

Activation = Literal["tanh", "relu"]
LOG_STD_BOUNDS = (-20.0, 2.0)


@dataclass(frozen=True, kw_only=True)
class NetworkConfig(Checked):
    """Networks of policies and critics for vector observations; text environments do not read them."""

    hidden_dims: tuple[Count, ...] = (64, 64)
    """Widths of the hidden layers of policies and critics."""
    activation: Activation = "tanh"
    """Activation function after each hidden layer."""
    is_squashed: bool = False
    """Squash continuous actions into their bounds by a tanh. False: clip them to the bounds."""
    initial_log_std: Finite = 0.0
    """Initial log standard deviation of Gaussian actions."""
    has_state_std: bool = False
    """State-dependent standard deviation of Gaussian actions: an output of the network. False: one learned vector, the
    same in every state."""
    log_std_bounds: tuple[Finite, Finite] = LOG_STD_BOUNDS
    """Bounds to which the log standard deviation of Gaussian actions is clamped."""
    normalizes_observations: bool = False
    """Normalize observations by their running mean and standard deviation."""
