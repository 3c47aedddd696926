"""Gymnasium environment for one agent of a team. The other agents follow given policies."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import gymnasium
from pettingzoo import ParallelEnv

from ..core import Infos
from ..players import Partner, RandomPlayer, reference_player
from ..registration.registry import make
from ..spaces import movers_of
from .structured import ChatObservations, DictObservations
from .tokens import TokenActions, TokenObservations

Viewer: TypeAlias = "Callable[[ParallelEnv[str, Any, Any], str], ParallelEnv[str, Any, Any]]"

VIEWS: Mapping[str, Viewer] = {
    "text": lambda env, agent: env,
    "tokens": lambda env, agent: TokenActions(TokenObservations(env, agents=[agent]), agents=[agent]),
    "chat": lambda env, agent: ChatObservations(env, agents=[agent]),
    "dict": lambda env, agent: DictObservations(env, agents=[agent]),
}
"""Values of `view` in `gymnasium.make(id, view=...)`, with the function that applies each view."""


class SingleAgent(gymnasium.Env[Any, Any]):
    """Gymnasium environment for one agent of a parallel environment, with this agent's spaces.

    The episode ends when this agent's episode ends. Turns in which the agent waits are played without it: their rewards
    are added to the reward of its last action, or of its first action if it has not acted yet.

    Args:
        env: any parallel environment. A view of an environment needs `agents=[agent]`; otherwise the partners also get
            converted observations.
        agent: name of the agent. None: the first agent.
        partners: one policy for all other agents, or a mapping agent -> policy. Agents without a policy give reference
            replies if the environment has them, else random actions.
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
        self._partners = partners
        self._rng = random.Random(0)
        self._random = RandomPlayer({each: env.action_space(each) for each in env.possible_agents})
        self._default_partner = reference_player(env) or self._random
        self._observations: dict[str, Any] = {}
        self._infos: Infos = {}
        self._earned = 0.0  # reward since the agent's last action
        self._ends: tuple[bool, bool] | None = None  # termination and truncation; None: no episode is running

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        inner = int(self.np_random.integers(2**31))
        self._rng = random.Random(inner)
        for number, agent in enumerate(self.env.possible_agents):
            self._random.seed(agent, self._rng.randrange(2**31) + number)
        self._observations, self._infos = self.env.reset(seed=inner if seed is None else seed, options=options)
        self._earned, self._ends = 0.0, (False, False)
        self._wait()
        return self._observations[self.agent], dict(self._infos[self.agent])

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._ends is None:
            raise RuntimeError("no episode is running; call reset() first")
        if self.agent in self.env.agents:  # else the episode ended before the agent's first turn
            self._play({self.agent: action})
            self._wait()
        reward, (is_terminated, is_truncated) = self._earned, self._ends
        self._earned, self._ends = 0.0, None if is_terminated or is_truncated else self._ends
        return self._observations[self.agent], reward, is_terminated, is_truncated, dict(self._infos[self.agent])

    def _wait(self) -> None:
        """Play the turns in which the agent waits."""
        while self.agent in self.env.agents and not movers_of([self.agent], self._infos):
            self._play({})

    def _play(self, own: Mapping[str, Any]) -> None:
        others = [agent for agent in movers_of(self.env.agents, self._infos) if agent != self.agent]
        actions = {**own, **{other: self._action_of(other) for other in others}}
        self._observations, rewards, terminations, truncations, self._infos = self.env.step(actions)
        self._earned += float(rewards[self.agent])
        self._ends = terminations[self.agent], truncations[self.agent]

    def _action_of(self, agent: str) -> Any:
        observation = self._observations[agent]
        partner = self._partners.get(agent) if isinstance(self._partners, Mapping) else self._partners
        return self._default_partner(agent, observation) if partner is None else partner(agent, observation, self._rng)

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
    """Build an environment for `gymnasium.make(id)`.

    Args:
        env_id: a registered id.
        agent: agent to play, as in `SingleAgent`.
        partners: policies of the other agents, as in `SingleAgent`.
        view: "text", "tokens", "chat", "dict", or a function (environment, agent) -> wrapped environment.
        env_kwargs: arguments of the environment with the name of an argument of this function, such as `{"view": 3}`.
        kwargs: other arguments of the environment.
    """
    viewer = VIEWS.get(view) if isinstance(view, str) else view
    if not callable(viewer):
        raise ValueError(
            f"view must be one of {list(VIEWS)} or a function, got {view!r}; pass an environment's own argument of "
            f"this name as env_kwargs={{'view': {view!r}}}"
        )
    env = make(env_id, **{**(env_kwargs or {}), **kwargs})
    return SingleAgent(viewer(env, agent or env.possible_agents[0]), agent, partners)
