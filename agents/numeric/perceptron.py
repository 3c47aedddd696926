"""The network of numeric policies and critics: a perceptron, started as PPO's are, its normalization and its files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ..._errors import UserError
from ..._json import read_json, refuse_device
from ..core import Learnable
from .config import Activation
from .moments import RunningMoments

ACTIVATIONS: dict[Activation, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}
LARGEST_NORMALIZED = 10.0  # deviations; an observation unlike all before it must not drive the network anywhere


class Perceptron(nn.Sequential):
    """Hidden layers; `width` is the last one's.

    Weights are orthogonal with gain sqrt(2) and biases 0. Source: Huang et al., The 37 Implementation Details of
    Proximal Policy Optimization (ICLR Blog Track, 2022), detail 2.
    """

    def __init__(self, num_inputs: int, hidden_dims: Sequence[int], activation: Activation, generator: torch.Generator):
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation is {activation!r}; choose one of {list(ACTIVATIONS)}")
        widths = [num_inputs, *hidden_dims]
        layers: list[nn.Module] = []
        for width, next_width in pairwise(widths):
            layers += [linear(width, next_width, math.sqrt(2), generator), ACTIVATIONS[activation]()]
        super().__init__(*layers)
        self.width = widths[-1]


def linear(num_inputs: int, num_outputs: int, gain: float, generator: torch.Generator) -> nn.Linear:
    """A linear layer with orthogonal weights of this gain and no bias at first, from its own random numbers."""
    layer = nn.Linear(num_inputs, num_outputs, device="meta").to_empty(device="cpu")  # no draw from the global stream
    nn.init.orthogonal_(layer.weight, gain, generator)
    nn.init.zeros_(layer.bias)
    return layer


class Normalizer(nn.Module):
    """Observations by their running mean and deviation, which are part of the module's state.

    What is observed counts from the next `commit`, so that the normalization stands still between two of them.
    """

    count: Tensor
    mean: Tensor
    squares: Tensor

    def __init__(self, size: int):
        super().__init__()
        moments = RunningMoments.empty((size,))
        for state in ("", "next_"):
            self.register_buffer(f"{state}count", moments.count.clone())
            self.register_buffer(f"{state}mean", moments.mean.clone())
            self.register_buffer(f"{state}squares", moments.squares.clone())

    def observe(self, observations: Tensor) -> None:
        """[n, size] observations that count from the next `commit`."""
        moments = self._moments("next_").updated(observations)
        self.next_count, self.next_mean, self.next_squares = moments.count, moments.mean, moments.squares

    def commit(self) -> None:
        """Normalize by all that was observed, from now on."""
        for name in ("count", "mean", "squares"):
            # In place: as one tensor under two names, loading a state would write one over the other.
            self.get_buffer(name).copy_(self.get_buffer(f"next_{name}"))

    def forward(self, observations: Tensor) -> Tensor:
        """[n, size] observations in deviations from the mean, cut off at `LARGEST_NORMALIZED`."""
        return self._moments("").normalize(observations).clamp(-LARGEST_NORMALIZED, LARGEST_NORMALIZED)

    def _moments(self, state: str) -> RunningMoments:
        count, mean, squares = (self.get_buffer(f"{state}{name}") for name in ("count", "mean", "squares"))
        return RunningMoments(count, mean, squares)


class NumericNetwork(Learnable):
    """The parts of a numeric policy or critic as one network, with the settings that make it again.

    Args:
        parts: modules by name, in the order in which an optimizer sees their weights; None is left out.
        settings: arguments of the constructor, as JSON.
        device: where it computes.
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
        """Write a folder with the settings as JSON and the weights as safetensors; `load` reads it."""
        directory.mkdir(parents=True, exist_ok=True)
        save_file(self.state_dict(), directory / self.weights_file)
        (directory / self.settings_file).write_text(json.dumps(self._settings, indent=2) + "\n")

    @classmethod
    def saved_settings(cls, directory: Path) -> dict[str, Any]:
        """The settings that `save` wrote."""
        return read_json(directory / cls.settings_file)

    def load_weights(self, directory: Path) -> None:
        """Take over the weights that `save` wrote."""
        file = directory / self.weights_file
        refuse_device(file)
        try:
            weights = load_file(file)
        except SafetensorError as error:
            raise UserError(f"{file} is no whole file of weights: {error}; copy or save it again") from error
        self.load_state_dict(weights)
