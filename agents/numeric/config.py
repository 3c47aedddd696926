"""Settings of networks for vector observations. This module does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..._ranges import Advanced, Checked, Count

Activation = Literal["tanh", "relu"]
Gaussian = Literal["plain", "squashed", "state"]
Images = Literal["auto", "convolved", "flat"]
LOG_STD_BOUNDS = (-20.0, 2.0)


@dataclass(frozen=True, kw_only=True)
class NetworkConfig(Checked):
    """Settings of policy and critic networks for vector observations, without effect in text environments."""

    hidden_dims: Advanced[tuple[Count, ...]] = (64, 64)
    """Widths of the hidden layers of policies and critics."""
    activation: Advanced[Activation] = "tanh"
    """Activation function after each hidden layer."""
    images: Advanced[Images] = "auto"
    """Network for observations with three axes: convolutions before the hidden layers ("convolved"), or one flat vector
    ("flat"). "auto": convolutions for uint8 images of at least 5 x 5."""
    gaussian: Advanced[Gaussian] = "plain"
    """Distribution of continuous actions. "plain": Gaussian with one learned standard deviation per component, clipped
    to the bounds. "squashed": as "plain", but squashed into the bounds by tanh. "state": as "plain", but the network
    computes the standard deviations from the observation."""
    normalizes_observations: Advanced[bool] = False
    """Normalize observations by their running mean and standard deviation."""
