"""One agent of a team as a Gymnasium environment; its partners are played by given policies."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import gymnasium
from pettingzoo import ParallelEnv

from ..players import RandomPlayer, reference_player
from ..registration.registry import make
from .structured import ChatObservations, DictObservations
from .tokens import TokenActions, TokenObservations

Partner: TypeAlias = Callable[[str, Any, random.Random], Any]
"""(agent, observation, generator) -> action. All its randomness comes from the generator."""


class Partners:
    """The actions of given partners, or where none is given, of stand-ins.

    A stand-in gives the reference reply where the environment knows one, else a random action of its space.

    Args:
        env: the environment they play in.
        given: one partner for all, one for each, or None: stand-ins.
    """

    def __init__(self, env: ParallelEnv[str, Any, Any], given: Partner | Mapping[str, Partner] | None):
        self._given = given
        self._rng = random.Random(0)
        self._agents = tuple(env.possible_agents)
        self._random = RandomPlayer({agent: env.action_space(agent) for agent in self._agents})
        self._stand_in = reference_player(env) or self._random

    def seed(self, seed: int) -> None:
        """Start an episode's randomness."""
        self._rng = random.Random(seed)
        for number, agent in enumerate(self._agents):
            self._random.seed(agent, self._rng.randrange(2**31) + number)

    def action(self, agent: str, observation: Any) -> Any:
        """What a partner does."""
        partner = self._given.get(agent) if isinstance(self._given, Mapping) else self._given
        return self._stand_in(agent, observation) if partner is None else partner(agent, observation, self._rng)


Viewer: TypeAlias = "Callable[[ParallelEnv[str, Any, Any], str], ParallelEnv[str, Any, Any]]"

VIEWS: Mapping[str, Viewer] = {
    "text": lambda env, agent: env,
    "tokens": lambda env, agent: TokenActions(TokenObservations(env, agents=[agent]), agents=[agent]),
    "chat": lambda env, agent: ChatObservations(env, agents=[agent]),
    "dict": lambda env, agent: DictObservations(env, agents=[agent]),
}
"""What `gymnasium.make(id, view=...)` knows by name."""


class SingleAgent(gymnasium.Env[Any, Any]):
    """A parallel environment as one of its agents lives it. Spaces: that agent's.

    The episode ends when the agent's does. Its partners act on what they observe; with the same seed and actions the
    episode is the same.

    Args:
        env: any parallel environment; views on it should be for this agent only, as the partners act in the others'
            spaces.
        agent: who it is; None: the first.
        partners: one policy for all others, or one for each; None: reference replies where the environment knows
            them, else random actions.

    Raises:
        ValueError: if there is no such agent.
    """

    def __init__(
        self,
        env: ParallelEnv[str, Any, Any],
        agent: str | None = None,
        partners: Partner | Mapping[str, Partner] | None = None,
    ):
        self.agent = env.possible_agents[0] if agent is None else agent
        if self.agent not in env.possible_agents:
            raise ValueError(f"there is no agent {agent!r}; the agents are {list(env.possible_agents)}")
        self.env = env
        self.observation_space = env.observation_space(self.agent)
        self.action_space = env.action_space(self.agent)
        self.metadata = {"render_fps": 1, **env.metadata}
        self.render_mode = getattr(env, "render_mode", None)
        self._partners = Partners(env, partners)
        self._observations: dict[str, Any] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        inner = int(self.np_random.integers(2**31))
        self._partners.seed(inner)
        self._observations, infos = self.env.reset(seed=inner if seed is None else seed, options=options)
        return self._observations[self.agent], dict(infos[self.agent])

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.agent not in self.env.agents:
            raise RuntimeError("no episode is running; call reset() first")
        actions = {
            other: self._partners.action(other, self._observations[other])
            for other in self.env.agents
            if other != self.agent
        }
        self._observations, rewards, terminations, truncations, infos = self.env.step({self.agent: action, **actions})
        return (
            self._observations[self.agent],
            float(rewards[self.agent]),
            terminations[self.agent],
            truncations[self.agent],
            dict(infos[self.agent]),
        )

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()


def make_single_agent(
    env_id: str,
    agent: str | None = None,
    partners: Partner | Mapping[str, Partner] | None = None,
    view: str | Viewer = "text",
    env_kwargs: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> SingleAgent:
    """What `gymnasium.make(id)` calls for an environment of ours.

    Args:
        env_id: a registered id.
        agent: see `SingleAgent`.
        partners: see `SingleAgent`.
        view: "text", "tokens", "chat", "dict", or a function of the environment and the agent that returns a view.
        env_kwargs: arguments of the environment whose names are taken here: `{"view": 3}`.
        kwargs: further arguments of the environment.

    Raises:
        ValueError: if there is no such view.
    """
    if (isinstance(view, str) and view not in VIEWS) or (not isinstance(view, str) and not callable(view)):
        raise ValueError(
            f"view must be one of {list(VIEWS)} or a function, got {view!r}; "
            f"an environment's own argument of this name goes into env_kwargs={{'view': {view!r}}}"
        )
    env = make(env_id, **{**(env_kwargs or {}), **kwargs})
    viewer = VIEWS[view] if isinstance(view, str) else view
    return SingleAgent(viewer(env, agent or env.possible_agents[0]), agent, partners)
