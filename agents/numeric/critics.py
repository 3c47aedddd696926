"""Critics for vector observations: a separate network, or a value head on the actor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..batching import sent
from ..core import Critic, CriticInput, HeadCritic
from .config import Activation, Images
from .features import Features
from .networks import Normalizer, NumericNetwork, linear, trunk_for
from .policy import NumericPolicy


class NumericCritic(NumericNetwork, Critic):
    """Critic: a network for V(s) and optionally Q(s, a).

    The input for Q(s, a) contains the state, the actions and a 1. The input for V(s) contains zeros instead of the
    actions and the 1.

    Args:
        observation: features of the observations or joint states.
        actions: features of the actions per agent. Empty: only V. With one agent, each item of `CriticInput.actions` is
            an action. With several agents, each item is a sequence of actions.
        num_agents: number of agents with an own value; `values` are then [N, num_agents]. None: [N].
        seed: seed of the initial weights. Other arguments: see `NetworkConfig`.
    """

    reads_turns_alone = True
    settings_file = "collm_numeric_critic.json"
    weights_file = "numeric_critic.safetensors"

    def __init__(
        self,
        observation: Features,
        actions: Sequence[Features] = (),
        *,
        hidden_dims: Sequence[int] = (64, 64),
        activation: Activation = "tanh",
        images: Images = "flat",
        normalizes_observations: bool = False,
        num_agents: int | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ):
        generator = torch.Generator().manual_seed(seed)
        self.observation = observation
        self.actions = tuple(actions)
        self._num_action_inputs = sum(action.size for action in actions) + 1 if actions else 0
        trunk = trunk_for(observation, self._num_action_inputs, hidden_dims, activation, images, generator)
        self.value = nn.Sequential(trunk, linear(trunk.width, num_agents or 1, 1.0, generator))
        self.normalizer = Normalizer(observation.size) if normalizes_observations else None
        settings = {
            "observation": asdict(observation),
            "actions": [asdict(action) for action in actions],
            "hidden_dims": list(hidden_dims),
            "activation": activation,
            "images": images,
            "normalizes_observations": normalizes_observations,
            "num_agents": num_agents,
        }
        super().__init__({"value": self.value, "normalizer": self.normalizer}, settings, device)

    @classmethod
    def load(cls, directory: Path, device: torch.device | str = "cpu") -> NumericCritic:
        settings = cls.saved_settings(directory)
        actions = [Features.from_dict(each) for each in settings.pop("actions")]
        critic = cls(Features.from_dict(settings.pop("observation")), actions, device=device, **settings)
        critic.load_weights(directory)
        return critic

    def values(self, inputs: Sequence[CriticInput]) -> Tensor:
        observed: list[NDArray[np.float32]] = []
        acted: list[NDArray[np.float32]] = []
        nothing = np.zeros(self._num_action_inputs, dtype=np.float32)
        for item in inputs:
            vectors = [self.observation.vector(history) for history in item.histories]
            observed += [*vectors, *vectors[: len(item.actions)]]
            acted += [nothing] * len(vectors) + [self._action_vector(action) for action in item.actions]
        batch = sent(np.stack(observed), self._device)
        if self.normalizer is not None:
            batch = self.normalizer(batch)
        if self.actions:
            batch = torch.cat([batch, sent(np.stack(acted), self._device)], dim=-1)
        values: Tensor = self.value(batch)
        return values[:, 0] if self._settings["num_agents"] is None else values

    def observe(self, inputs: Sequence[CriticInput]) -> None:
        if self.normalizer is not None:
            vectors = [self.observation.vector(history) for item in inputs for history in item.histories]
            self.normalizer.observe(sent(np.stack(vectors), self._device))
            self.normalizer.commit()

    def num_tokens(self, item: CriticInput) -> int:
        return len(item.histories)

    def _action_vector(self, action: Any) -> NDArray[np.float32]:
        of_agents = [action] if len(self.actions) == 1 else action
        if len(of_agents) != len(self.actions):
            raise ValueError(f"{len(of_agents)} actions {action!r} for {len(self.actions)} agents; give one per agent")
        # For agents that have left the episode, the features are zeros, which no one-hot vector equals.
        vectors = [
            np.zeros(features.size, dtype=np.float32) if each is None else features.vector(each)
            for features, each in zip(self.actions, of_agents, strict=True)
        ]
        return np.concatenate([*vectors, np.ones(1, dtype=np.float32)])


class NumericActorHead(HeadCritic[NumericPolicy]):
    """Critic that computes V(s) with the value head of the actor."""

    reads_turns_alone = True

    def values(self, inputs: Sequence[CriticInput]) -> Tensor:
        return self.policy.values([history for item in inputs for history in item.histories])

    def num_tokens(self, item: CriticInput) -> int:
        return len(item.histories)
