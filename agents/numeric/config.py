"""Settings of the perceptrons that play environments of vectors. Nothing heavy is imported here."""

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
    """Networks of policies and critics for vector observations; text environments do not read them."""

    hidden_dims: Advanced[tuple[Count, ...]] = (64, 64)
    """Widths of the hidden layers of policies and critics."""
    activation: Advanced[Activation] = "tanh"
    """Activation function after each hidden layer."""
    images: Advanced[Images] = "auto"
    """Network for observations with three axes: convolutions in front of the hidden layers, or one flat vector. auto:
    convolutions for images of bytes with sides of at least 5."""
    gaussian: Advanced[Gaussian] = "plain"
    """Distribution of continuous actions: Gaussian with one learned standard deviation per number, clipped to the
    bounds ("plain") or squashed into them by a tanh ("squashed"); or clipped, with standard deviations that the network
    computes from the observation ("state")."""
    normalizes_observations: Advanced[bool] = False
    """Normalize observations by their running mean and standard deviation."""
