"""Settings of the perceptrons that play environments of vectors. Nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..._ranges import Checked, Count, Finite

Activation = Literal["tanh", "relu"]


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
    normalizes_observations: bool = False
    """Normalize observations by their running mean and standard deviation."""
