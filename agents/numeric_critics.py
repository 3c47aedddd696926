"""Critics for vector observations: a perceptron of their own, or a head on the actor."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from .core import Critic, View
from .features import Features
from .numeric import NumericPolicy
from .perceptron import Activation, Normalizer, Perceptron, linear

SETTINGS_FILE = "collm_numeric_critic.json"
WEIGHTS_FILE = "numeric_critic.safetensors"


class NumericCritic(Critic):
    """V(s), and Q(s, a) where asked for, by a perceptron of its own.

    Q reads the state, the actions, and a 1 that says there are actions; V reads zeros in their places. One network, as
    what the two predict differs little.

    Args:
        observation: how an agent's observations, or the joint states, become vectors.
        actions: how actions become vectors, one for each agent whose action is read; empty for V. With one, an entry
            of `View.actions` is that agent's action; with more it is a sequence of theirs.
        hidden_dims: width of each hidden layer.
        activation: after each hidden layer.
        normalizes_observations: by the running mean and deviation of what it valued without a gradient.
        seed: of the initial weights.
        device: where it computes.
    """

    reads_turns_alone = True

    def __init__(
        self,
        observation: Features,
        actions: Sequence[Features] = (),
        *,
        hidden_dims: Sequence[int] = (64, 64),
        activation: Activation = "tanh",
        normalizes_observations: bool = False,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ):
        generator = torch.Generator().manual_seed(seed)
        self.observation = observation
        self.actions = tuple(actions)
        self._num_action_inputs = sum(action.size for action in actions) + 1 if actions else 0
        size = observation.size + self._num_action_inputs
        trunk = Perceptron(size, hidden_dims, activation, generator)
        self.value = nn.Sequential(trunk, linear(trunk.width, 1, 1.0, generator))
        self.normalizer = Normalizer(observation.size) if normalizes_observations else None
        parts = {"value": self.value, "normalizer": self.normalizer}
        self._network = nn.ModuleDict({name: part for name, part in parts.items() if part is not None}).to(device)
        self._device = torch.device(device)
        self._settings = {
            "observation": asdict(observation),
            "actions": [asdict(action) for action in actions],
            "hidden_dims": list(hidden_dims),
            "activation": activation,
            "normalizes_observations": normalizes_observations,
        }

    @classmethod
    def load(cls, directory: Path, device: torch.device | str = "cpu") -> NumericCritic:
        """Read what `save` wrote."""
        settings = json.loads((directory / SETTINGS_FILE).read_text())
        actions = [Features.from_dict(each) for each in settings.pop("actions")]
        critic = cls(Features.from_dict(settings.pop("observation")), actions, device=device, **settings)
        critic.load_state_dict(load_file(directory / WEIGHTS_FILE))
        return critic

    def values(self, views: Sequence[View]) -> Tensor:
        observed: list[NDArray[np.float32]] = []
        acted: list[NDArray[np.float32]] = []
        nothing = np.zeros(self._num_action_inputs, dtype=np.float32)
        for view in views:
            vectors = [self.observation.vector(history) for history in view.histories]
            observed += [*vectors, *vectors[: len(view.actions)]]
            acted += [nothing] * len(vectors) + [self._action_vector(action) for action in view.actions]
        inputs = torch.from_numpy(np.stack(observed)).to(self._device)
        if self.normalizer is not None:
            if not torch.is_grad_enabled():
                self.normalizer.observe(inputs)
                self.normalizer.commit()
            inputs = self.normalizer(inputs)
        if self.actions:
            inputs = torch.cat([inputs, torch.from_numpy(np.stack(acted)).to(self._device)], dim=-1)
        values: Tensor = self.value(inputs)
        return values[:, 0]

    def num_tokens(self, view: View) -> int:
        return len(view.histories)

    def parameters(self) -> list[nn.Parameter]:
        return list(self._network.parameters())

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self._network.state_dict())

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._network.load_state_dict(state)

    def save(self, directory: Path) -> None:
        """Write a folder with the settings as JSON and the weights as safetensors; `load` reads it."""
        directory.mkdir(parents=True, exist_ok=True)
        save_file(self.state_dict(), directory / WEIGHTS_FILE)
        (directory / SETTINGS_FILE).write_text(json.dumps(self._settings, indent=2) + "\n")

    def _action_vector(self, action: Any) -> NDArray[np.float32]:
        of_agents = [action] if len(self.actions) == 1 else action
        if len(of_agents) != len(self.actions):
            raise ValueError(
                f"{action!r} is {len(of_agents)} actions, but the critic reads those of {len(self.actions)}"
            )
        # An agent that has left did nothing: zeros, which no choice is.
        vectors = [
            np.zeros(features.size, dtype=np.float32) if each is None else features.vector(each)
            for features, each in zip(self.actions, of_agents, strict=True)
        ]
        return np.concatenate([*vectors, np.ones(1, dtype=np.float32)])


class NumericActorHead(Critic):
    """V(s) by the actor's own value head."""

    reads_turns_alone = True

    def __init__(self, policy: NumericPolicy):
        if policy.value_head is None:
            raise ValueError("the policy has no value head; make it with has_value_head=True")
        self.policy = policy

    def values(self, views: Sequence[View]) -> Tensor:
        return self.policy.values([history for view in views for history in view.histories])

    def num_tokens(self, view: View) -> int:
        return len(view.histories)

    def parameters(self) -> list[nn.Parameter]:
        return []  # the policy's optimizer changes them

    def state_dict(self) -> dict[str, Tensor]:
        return {}  # saved with the policy

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        pass

    def save(self, directory: Path) -> None:
        pass
