"""Wrapper that measures each agent's part in the return by a replay without the agent's replies."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from gymnasium.spaces import Text
from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from ..core import ResetResult, TextParallelEnv


class Shares(BaseParallelWrapper[str, Any, Any]):
    """Adds difference rewards and shares of the team's return to the infos of an episode's last turn.

        difference/<agent>    D_i = G - G_without_i
        metric/share/<agent>         max(0, D_i) / sum over j of max(0, D_j)

    G is the undiscounted return of the episode, averaged over the agents. G_without_i is the return of a replay in
    which every reply of agent i is empty (or `TextParallelEnv.absence`) and the other agents repeat their replies. If a
    replay is longer than the episode, it continues with empty replies. Rewards of agents that had left the episode are
    not counted.

    Shares are between 0 and 1 and sum to 1. If two agents each get no reward without the other, both shares are 0.5. If
    no difference is positive, no shares are added: the return is 0, or no single agent was necessary for it.

    Each episode is replayed once per agent, in a copy of the environment. Replays need no model.

    Args:
        env: an environment with text actions. Copies by `copy.deepcopy` must be independent (see `check_env`).
    """

    def __init__(self, env: ParallelEnv[str, Any, Any]):
        if not all(isinstance(env.action_space(agent), Text) for agent in env.possible_agents):
            raise TypeError(f"Shares needs text actions, but {env} has other actions; leave Shares out")
        super().__init__(env)
        self._start: ParallelEnv[str, Any, Any] | None = None
        self._replies: list[Mapping[str, str]] = []
        self._earned = 0.0

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        observations, infos = self.env.reset(seed=seed, options=options)
        self._start, self._replies, self._earned = deepcopy(self.env), [], 0.0
        return observations, infos

    def step(self, actions: dict[str, str]) -> tuple[Any, ...]:
        live = list(self.env.agents)
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        self._replies.append({agent: actions.get(agent, "") for agent in live})
        self._earned += sum(rewards.values())
        if self._start is not None and not self.env.agents:
            agents = self._start.agents
            lost = {agent: self._earned - self._earned_without(agent) for agent in agents}
            total = sum(max(0.0, loss) for loss in lost.values())
            added = {f"difference/{agent}": loss / len(agents) for agent, loss in lost.items()}
            if total > 1e-9:  # smaller totals are rounding errors
                added |= {f"metric/share/{agent}": max(0.0, loss) / total for agent, loss in lost.items()}
            infos = {agent: info | added for agent, info in infos.items()}
            self._start = None  # frees the memory of the copy
        return observations, rewards, terminations, truncations, infos

    def _earned_without(self, missing: str) -> float:
        """Return the sum of all rewards in a replay without the replies of the agent `missing`."""
        env = deepcopy(self._start)
        assert env is not None
        world = env.unwrapped
        earned = 0.0
        turn = 0
        while env.agents:
            is_longer = turn >= len(self._replies)
            given = {} if is_longer else self._replies[turn]
            absent = world.absence(missing) if isinstance(world, TextParallelEnv) and missing in given else ""
            replies = {agent: absent if agent == missing else given.get(agent, "") for agent in env.agents}
            rewards = env.step(replies)[1]
            earned += sum(reward for agent, reward in rewards.items() if is_longer or agent in given)
            turn += 1
        return earned
