"""Policies that do not learn: floors, ceilings, and partners."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from .core import Completion, Policy, Request
from .sampling import uniforms


class FunctionPolicy(Policy):
    """Any function from an agent and its observation to an action."""

    def __init__(self, function: Callable[[str, Any], Any]):
        self.function = function

    def act(self, requests: Sequence[Request], *, greedy: bool = False) -> list[Completion]:
        return [Completion(self.function(request.agent, request.observation)) for request in requests]


def fixed_policy(reply: str) -> Policy:
    """Always says the same; the empty reply is the floor of many games."""
    return FunctionPolicy(lambda agent, observation: reply)


def reference_policy(env: Any) -> Policy:
    """The environment's own scripted player (`reference_reply`), playing in that very copy of it.

    Raises:
        ValueError: if the environment has none.
    """
    reply = getattr(env, "reference_reply", None)
    if reply is None:
        raise ValueError(f"{env} has no reference player; it would be a method reference_reply(agent) -> str")
    return FunctionPolicy(lambda agent, observation: reply(agent))


class RandomPolicy(Policy):
    """Draws from the action space, from each request's own random stream."""

    def __init__(self, spaces: Mapping[str, Space[Any]]):
        self.spaces = dict(spaces)

    def act(self, requests: Sequence[Request], *, greedy: bool = False) -> list[Completion]:
        actions = []
        for request in requests:
            space = self.spaces[request.agent]
            space.seed(int(uniforms(request.stream, 1)[0] * np.iinfo(np.int32).max))
            actions.append(Completion(space.sample()))
        return actions
