"""A Gymnasium environment as a team of one: what trains on teams trains on it."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.spaces import Dict, flatten, flatten_space

from ...spaces.flattening import is_flattenable
from .gymnasium_team import GymnasiumTeam, in_space, made

AGENT = "agent_0"


class GymAsParallel(GymnasiumTeam):
    """A Gymnasium environment with one agent, `agent_0`; spaces, rewards and ends are its own.

    Observation space: the environment's. Action space: the environment's; actions are brought to its type, and those
    outside a `Box` to its nearest point, as a Gaussian policy knows no bounds.

    Args:
        env: an environment, or the id of one ("CartPole-v1").
        kwargs: arguments of `gymnasium.make`, for an id.
    """

    def __init__(self, env: str | gymnasium.Env[Any, Any], **kwargs: Any):
        env = made(env, kwargs)
        self._take(env, {AGENT: env.observation_space}, {AGENT: env.action_space})

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self.agents = [AGENT]
        return {AGENT: observation}, {AGENT: dict(info)}

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        if not self.agents:
            raise RuntimeError("no episode is running; call reset() first")
        action = in_space(self.action_spaces[AGENT], actions[AGENT])
        observation, reward, is_terminated, is_truncated, info = self.env.step(action)
        if is_terminated or is_truncated:
            self.agents = []
        return (
            {AGENT: observation},
            {AGENT: float(reward)},
            {AGENT: bool(is_terminated)},
            {AGENT: bool(is_truncated)},
            {AGENT: dict(info)},
        )


class Part(gymnasium.ObservationWrapper[Any, Any, Any]):
    """A Gymnasium environment of which one entry of the dict observations is seen.

    Args:
        env: an environment whose observation space is a `Dict`.
        key: the entry.

    Raises:
        TypeError: if there is no such entry.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], key: str):
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, Dict) or key not in space.spaces:
            raise TypeError(f"observed={key!r} needs observations with an entry of this name, but the space is {space}")
        self.key = key
        self.observation_space = space[key]

    def observation(self, observation: Any) -> Any:
        return observation[self.key]


class Flat(gymnasium.ObservationWrapper[Any, Any, Any]):
    """A Gymnasium environment whose observations are flattened into one vector.

    The vectors are those of `gymnasium.wrappers.FlattenObservation`, which cannot be pickled.

    Args:
        env: an environment whose observations have a fixed size.

    Raises:
        TypeError: if they have none.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]):
        super().__init__(env)
        if not is_flattenable(env.observation_space):
            raise TypeError(
                f"flatten=True needs observations of a fixed size, but the space is {env.observation_space}"
            )
        self.observation_space = flatten_space(env.observation_space)

    def observation(self, observation: Any) -> Any:
        return flatten(self.env.observation_space, observation)
