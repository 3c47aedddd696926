"""Policies without training: baselines and scripted partners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from ..envs.players import Player, RandomPlayer, fixed_player, reference_player
from .core import Completion, Policy, Request
from .decoding.sampling import uniforms


class FunctionPolicy(Policy):
    """Policy that calls a function with the agent's name and observation."""

    def __init__(self, function: Player):
        self.function = function

    def act(self, requests: Sequence[Request], *, greedy: bool = False) -> list[Completion]:
        return [Completion(self.function(request.agent, request.observation)) for request in requests]


def fixed_policy(reply: str) -> Policy:
    """Return a policy that always gives the same reply."""
    return FunctionPolicy(fixed_player(reply))


def reference_policy(env: Any) -> Policy:
    """Return the scripted policy of an environment instance (its method `reference_reply`).

    Raises:
        ValueError: if the environment has no reference player.
    """
    player = reference_player(env)
    if player is None:
        raise ValueError(f"{env} has no reference player; define a method reference_reply(agent) -> str")
    return FunctionPolicy(player)


class RandomPolicy(Policy):
    """Policy that samples from the action space, with random numbers from the stream of each request."""

    def __init__(self, spaces: Mapping[str, Space[Any]]):
        self._player = RandomPlayer(spaces)

    def act(self, requests: Sequence[Request], *, greedy: bool = False) -> list[Completion]:
        actions = []
        for request in requests:
            self._player.seed(request.agent, int(uniforms(request.stream, 1)[0] * np.iinfo(np.int32).max))
            actions.append(Completion(self._player(request.agent, request.observation, request.action_mask)))
        return actions
