"""Who did the work: each agent's share of the return, by playing the episode again without its replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from gymnasium.spaces import Text
from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from ..core import TextParallelEnv

_ROUNDING = 1e-9  # of returns that are the same sums in another order


class Shares(BaseParallelWrapper[str, Any, Any]):
    """The infos of an episode's last turn tell `metric/share/<agent>`: what is lost without the agent, of all that is.

        loss_i = max(0, G - G_without_i)        share_i = loss_i / sum over j of loss_j

    G is the episode's undiscounted team return (the mean over the agents). G_without_i is that of the same episode with
    every reply of agent i replaced by an empty one (or what the environment has in its place, `absence`) and those of
    the others as they were; where it lasts longer than the recorded one, all are silent from there on. Who had left in
    the recorded episode is paid no more in the other either, though it may play on there. An environment's copy plays
    exactly as itself, so both are exact.

    Shares lie in 0..1 and sum to 1: 1 and 0 where one agent does all, a half each where neither earns without the
    other. An agent without whom the team would have earned more counts as 0. Where nobody is missed, because nothing
    was earned or each alone would have sufficed, there are no shares.

    An episode is played once more per agent, without new replies of models. In environments that run programs those
    run again; most stop at once, as a part is missing.

    Args:
        env: an environment whose agents write, and that copies as `check_env` demands.

    Raises:
        TypeError: if its agents do not write: there is no empty action then.
    """

    def __init__(self, env: ParallelEnv[str, Any, Any]):
        if not all(isinstance(env.action_space(agent), Text) for agent in env.possible_agents):
            raise TypeError(f"Shares empties replies, but the agents of {env} act otherwise than by text")
        super().__init__(env)
        self._start: ParallelEnv[str, Any, Any] | None = None
        self._replies: list[Mapping[str, str]] = []
        self._earned = 0.0

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        observations, infos = self.env.reset(seed=seed, options=options)
        self._start, self._replies, self._earned = deepcopy(self.env), [], 0.0
        return observations, infos

    def step(self, actions: dict[str, str]) -> tuple[Any, ...]:
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        self._replies.append(dict(actions))
        self._earned += sum(rewards.values())
        if self._start is not None and not self.env.agents:
            found = shares(self._start, self._replies, self._earned)
            told = {f"metric/share/{agent}": share for agent, share in found.items()}
            infos = {agent: info | told for agent, info in infos.items()}
            self._start = None  # the episode is over; the copy is not needed any more
        return observations, rewards, terminations, truncations, infos


def shares(start: ParallelEnv[str, Any, Any], replies: Sequence[Mapping[str, str]], earned: float) -> dict[str, float]:
    """The shares of the agents, as of `Shares`; empty where nobody is missed.

    Args:
        start: the environment after its reset; it is copied, not played.
        replies: the replies of each turn, by agent.
        earned: the sum of all agents' rewards in the episode.
    """
    losses = {agent: max(0.0, earned - _earned_without(agent, start, replies)) for agent in start.agents}
    total = sum(losses.values())
    return {agent: loss / total for agent, loss in losses.items()} if total > _ROUNDING else {}


def _earned_without(missing: str, start: ParallelEnv[str, Any, Any], replies: Sequence[Mapping[str, str]]) -> float:
    env = deepcopy(start)
    world = env.unwrapped
    earned = 0.0
    turn = 0
    while env.agents:
        given = replies[turn] if turn < len(replies) else {}
        nothing = world.absence(missing) if isinstance(world, TextParallelEnv) and missing in given else ""
        said = {agent: nothing if agent == missing else given.get(agent, "") for agent in env.agents}
        rewards = env.step(said)[1]
        earned += sum(reward for agent, reward in rewards.items() if turn >= len(replies) or agent in given)
        turn += 1
    return earned
