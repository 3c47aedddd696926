"""Networks of numeric policies and critics, with orthogonal initial weights and zero biases. Source: Huang et al., The
37 Implementation Details of Proximal Policy Optimization (ICLR Blog Track, 2022), detail 2."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ..._errors import UserError
from ..._json import read_json, refuse_device
from ..core import Learnable
from .config import Activation, Images
from .features import Features
from .moments import RunningMoments

ACTIVATIONS: dict[Activation, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}
MAX_NORMALIZED = 10.0  # normalized observations are clipped to -10..10
# (channels, kernel size, stride) of convolutional layers for 84 x 84 pixels. Source: Mnih et al. (Nature 518, 2015).
LARGE = (32, 8, 4), (64, 4, 2), (64, 3, 1)
SMALL = (16, 3, 1), (32, 3, 1)  # for small grids, such as the 7 x 7 cells of MiniGrid
MIN_LARGE_SIDE, MIN_SIDE = 36, 5  # minimum image sides for the layers LARGE and SMALL
LayerT = TypeVar("LayerT", nn.Linear, nn.Conv2d)


class Perceptron(nn.Sequential):
    """Hidden layers of a multilayer perceptron. `width` is the number of outputs."""

    def __init__(self, num_inputs: int, hidden_dims: Sequence[int], activation: Activation, generator: torch.Generator):
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation is {activation!r}; choose one of {list(ACTIVATIONS)}")
        widths = [num_inputs, *hidden_dims]
        layers: list[nn.Module] = []
        for width, next_width in pairwise(widths):
            layers += [linear(width, next_width, math.sqrt(2), generator), ACTIVATIONS[activation]()]
        super().__init__(*layers)
        self.width = widths[-1]


class Convolution(nn.Module):
    """Convolutional network, followed by a perceptron. `width` is the number of outputs.

    Args:
        shape: (height, width, channels) or (channels, height, width) of an image with fewer channels than rows.
        scale: divisor of the pixels.
        num_others: number of inputs after the image, such as a critic's actions. Only the perceptron reads them.
        hidden_dims: widths of the perceptron's layers.
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
        if min(sides) < MIN_SIDE:
            raise ValueError(f"an image of {sides[0]} x {sides[1]} is too small to convolve; use images='flat'")
        layers: list[nn.Module] = []
        for num_outputs, kernel, stride in LARGE if min(sides) >= MIN_LARGE_SIDE else SMALL:
            layer = nn.Conv2d(channels, num_outputs, kernel, stride, device="meta")
            layers += [_initialized(layer, math.sqrt(2), generator), ACTIVATIONS[activation]()]
            channels, sides = num_outputs, [(side - kernel) // stride + 1 for side in sides]
        self.layers = nn.Sequential(*layers, nn.Flatten())
        self.size = math.prod(self.shape)
        self.hidden = Perceptron(channels * sides[0] * sides[1] + num_others, hidden_dims, activation, generator)
        self.width = self.hidden.width

    def forward(self, inputs: Tensor) -> Tensor:
        """Map inputs [N, size + num_others] to outputs [N, width]."""
        image, others = inputs[:, : self.size], inputs[:, self.size :]
        image = image.reshape(-1, *self.shape) / self.scale
        if self.is_channels_last:
            image = image.permute(0, 3, 1, 2)
        hidden: Tensor = self.hidden(torch.cat([self.layers(image), others], dim=-1))
        return hidden


def trunk_for(
    observation: Features,
    num_others: int,
    hidden_dims: Sequence[int],
    activation: Activation,
    images: Images,
    generator: torch.Generator,
) -> Perceptron | Convolution:
    """Return a convolutional network for images and a perceptron for vectors; see `NetworkConfig.images`."""
    if images == "convolved" and not observation.image:
        raise ValueError("images='convolved' needs observations with three axes; use images='auto' or 'flat'")
    has_bytes = bool(observation.image) and observation.scale > 1
    if images == "convolved" or (images == "auto" and has_bytes and sorted(observation.image)[1] >= MIN_SIDE):
        return Convolution(observation.image, observation.scale, num_others, hidden_dims, activation, generator)
    return Perceptron(observation.size + num_others, hidden_dims, activation, generator)


def linear(num_inputs: int, num_outputs: int, gain: float, generator: torch.Generator) -> nn.Linear:
    """Return a linear layer with orthogonal initial weights, scaled by `gain`."""
    return _initialized(nn.Linear(num_inputs, num_outputs, device="meta"), gain, generator)


def _initialized(layer: LayerT, gain: float, generator: torch.Generator) -> LayerT:
    """Initialize a layer that was made on the meta device, so that torch's global random numbers are not used."""
    layer = layer.to_empty(device="cpu")
    nn.init.orthogonal_(layer.weight, gain, generator)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


class Normalizer(nn.Module):
    """Normalization by running moments. Observations that `observe` adds take effect after the next `commit`."""

    def __init__(self, size: int):
        super().__init__()
        moments = RunningMoments.empty((size,))
        for state in ("", "next_"):
            self.register_buffer(f"{state}count", moments.count.clone())
            self.register_buffer(f"{state}mean", moments.mean.clone())
            self.register_buffer(f"{state}squares", moments.squares.clone())

    def observe(self, observations: Tensor) -> None:
        """Add observations [n, size] to the moments."""
        moments = self._moments("next_").updated(observations)
        self.next_count, self.next_mean, self.next_squares = moments.count, moments.mean, moments.squares

    def commit(self) -> None:
        """Apply the moments of all observations so far to `forward`."""
        for name in ("count", "mean", "squares"):
            # In place: `load_state_dict` writes into both buffers, so they must not be one tensor.
            self.get_buffer(name).copy_(self.get_buffer(f"next_{name}"))

    def forward(self, observations: Tensor) -> Tensor:
        """Normalize observations [n, size] to mean 0 and standard deviation 1, and clip to ±`MAX_NORMALIZED`."""
        return self._moments("").normalize(observations).clamp(-MAX_NORMALIZED, MAX_NORMALIZED)

    def _moments(self, state: str) -> RunningMoments:
        count, mean, squares = (self.get_buffer(f"{state}{name}") for name in ("count", "mean", "squares"))
        return RunningMoments(count, mean, squares)


class NumericNetwork(Learnable):
    """Base class of numeric policies and critics: their weights, settings and files.

    Args:
        parts: dict of modules, in the order of the optimizer's parameters. None: this network lacks the module.
        settings: arguments of the constructor, as JSON.
    """

    settings_file: ClassVar[str]
    weights_file: ClassVar[str]

    def __init__(self, parts: Mapping[str, nn.Module | None], settings: Mapping[str, Any], device: torch.device | str):
        self._network = nn.ModuleDict({name: part for name, part in parts.items() if part is not None}).to(device)
        self._settings = dict(settings)
        self._device = torch.device(device)

    def parameters(self) -> list[nn.Parameter]:
        return list(self._network.parameters())

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self._network.state_dict())

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._network.load_state_dict(state)

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        save_file(self.state_dict(), directory / self.weights_file)
        (directory / self.settings_file).write_text(json.dumps(self._settings, indent=2) + "\n")

    @classmethod
    def saved_settings(cls, directory: Path) -> dict[str, Any]:
        return read_json(directory / cls.settings_file)

    def load_weights(self, directory: Path) -> None:
        file = directory / self.weights_file
        refuse_device(file)
        try:
            weights = load_file(file)
        except SafetensorError as error:
            raise UserError(f"{file} is not a complete weight file: {error}; copy or save it again") from error
        self.load_state_dict(weights)
