"""Features → the hidden layers of a numeric policy or critic: a perceptron, or convolutions in front of one."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .config import Activation, Images
from .convolution import SMALLEST, Convolution
from .features import Features
from .perceptron import Perceptron


def trunk_for(
    observation: Features,
    num_others: int,
    hidden_dims: Sequence[int],
    activation: Activation,
    images: Images,
    generator: torch.Generator,
) -> Perceptron | Convolution:
    """The hidden layers.

    Args:
        observation: features of the observations.
        num_others: numbers that are read after the observation.
        hidden_dims: width of each hidden layer.
        activation: after each layer.
        images: as in `NetworkConfig.images`.
        generator: draws the weights.

    Raises:
        ValueError: if observations are to be convolved that have no three axes, or sides below 5.
    """
    if images == "convolved" and not observation.image:
        raise ValueError("images='convolved' needs observations with three axes; use images='auto' or 'flat'")
    if images == "convolved" or (images == "auto" and is_picture(observation)):
        return Convolution(observation.image, observation.scale, num_others, hidden_dims, activation, generator)
    return Perceptron(observation.size + num_others, hidden_dims, activation, generator)


def is_picture(observation: Features) -> bool:
    """Whether observations are images of bytes that are large enough to convolve."""
    return bool(observation.image) and observation.scale > 1 and sorted(observation.image)[1] >= SMALLEST
