"""Hidden layers of numeric policies and critics: a perceptron, or a convolutional network in front of one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .config import Activation, Images
from .features import Features
from .perceptron import ACTIVATIONS, Perceptron


class Layer(NamedTuple):
    """A convolution: channels that it gives, side of its kernel, stride."""

    channels: int
    kernel: int
    stride: int


LARGE = Layer(32, 8, 4), Layer(64, 4, 2), Layer(64, 3, 1)
"""Mnih et al. (Nature 518, 2015), for Atari's 84 x 84 pixels."""
SMALL = Layer(16, 3, 1), Layer(32, 3, 1)
"""For grids such as MiniGrid's 7 x 7 cells."""
SMALLEST_LARGE, SMALLEST = 36, 5  # shortest sides that the layers leave anything of


class Convolution(nn.Module):
    """Images laid out in one row → hidden layers; `width` is the last one's.

    Weights are orthogonal with gain sqrt(2) and biases 0, as the perceptron's.

    Args:
        shape: of an image: height and width with the channels, at most as many as either, before or after them.
        scale: what pixels are divided by.
        num_others: numbers that come after the image and pass by the convolutions, as a critic's actions.
        hidden_dims: widths of the hidden layers after the convolutions.
        activation: after each layer.
        generator: draws the weights.

    Raises:
        ValueError: if the image is smaller than 5 x 5.
    """

    def __init__(
        self,
        shape: Sequence[int],
        scale: float,
        num_others: int,
        hidden_dims: Sequence[int],
        activation: Activation,
        generator: torch.Generator,
    ):
        super().__init__()
        self.shape, self.scale = tuple(shape), scale
        self.is_channels_last = shape[2] <= shape[0]
        channels, *sides = (shape[2], shape[0], shape[1]) if self.is_channels_last else shape
        if min(sides) < SMALLEST:
            raise ValueError(f"an image of {sides[0]} x {sides[1]} is too small to convolve; use images='flat'")
        layers: list[nn.Module] = []
        for layer in LARGE if min(sides) >= SMALLEST_LARGE else SMALL:
            layers += [convolution(channels, layer, generator), ACTIVATIONS[activation]()]
            channels, sides = layer.channels, [(side - layer.kernel) // layer.stride + 1 for side in sides]
        self.layers = nn.Sequential(*layers, nn.Flatten())
        self.size = math.prod(self.shape)
        self.hidden = Perceptron(channels * sides[0] * sides[1] + num_others, hidden_dims, activation, generator)
        self.width = self.hidden.width

    def forward(self, inputs: Tensor) -> Tensor:
        """[N, size + num_others] → [N, width]."""
        image, others = inputs[:, : self.size], inputs[:, self.size :]
        image = image.reshape(-1, *self.shape) / self.scale
        if self.is_channels_last:
            image = image.permute(0, 3, 1, 2)
        hidden: Tensor = self.hidden(torch.cat([self.layers(image), others], dim=-1))
        return hidden


def convolution(num_channels: int, layer: Layer, generator: torch.Generator) -> nn.Conv2d:
    """A convolution with orthogonal weights and no bias at first, from its own random numbers."""
    made = nn.Conv2d(num_channels, layer.channels, layer.kernel, layer.stride, device="meta").to_empty(device="cpu")
    nn.init.orthogonal_(made.weight, math.sqrt(2), generator)
    assert made.bias is not None
    nn.init.zeros_(made.bias)
    return made


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
