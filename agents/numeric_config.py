"""Settings of the perceptrons that play environments of vectors."""

from __future__ import annotations

from dataclasses import dataclass

from .perceptron import Activation


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """Policies and critics for vectors; text environments do not read it."""

    hidden_dims: tuple[int, ...] = (64, 64)
    """Width of each hidden layer, of policies and critics alike."""
    activation: Activation = "tanh"
    """After each hidden layer."""
    is_squashed: bool = False
    """For actions that are numbers: squash them into their bounds by a tanh, rather than clip them to it."""
    initial_log_std: float = 0.0
    """For actions that are numbers: of the learned deviation, before training."""
    normalizes_observations: bool = False
    """Read observations in deviations from their running mean."""
