"""Players that do not learn: reference replies, random actions, one fixed action. Floors, ceilings and partners.

Players are partial functions and not closures: they can be pickled, and a deep copy of an environment and its player
gives a player of the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, TypeAlias

from gymnasium.spaces import Space
from pettingzoo import ParallelEnv

from .core import TextParallelEnv
from .spaces import MASK, sampled

Player: TypeAlias = Callable[[str, Any], Any]
"""(agent, observation) -> action."""

PLAYERS = ("reference", "random", "empty")
"""The names that `scripted_player` knows in every environment."""
HONEST_PLAYERS = ("silent", "talking")
"""The names of `TextParallelEnv.honest_players`, which few environments have."""


class RandomPlayer:
    """Draws each agent's actions from a copy of its action space; with an action mask, of the legal ones.

    Args:
        spaces: action spaces by agent.
        seed: the first agent's; the others' follow it.
    """

    def __init__(self, spaces: Mapping[str, Space[Any]], seed: int = 0):
        self._spaces = {agent: deepcopy(space) for agent, space in spaces.items()}
        for number, agent in enumerate(self._spaces):
            self.seed(agent, seed + number)

    def seed(self, agent: str, seed: int) -> None:
        """Start an agent's draws anew."""
        self._spaces[agent].seed(seed)

    def __call__(self, agent: str, observation: Any, mask: Any = None) -> Any:
        if mask is None and isinstance(observation, Mapping):
            mask = observation.get(MASK)
        return self._spaces[agent].sample() if mask is None else sampled(self._spaces[agent], mask)


def fixed_player(action: Any) -> Player:
    """Always does the same; the empty reply is the floor of many games."""
    return partial(_fixed, action)


def _fixed(action: Any, agent: str, observation: Any) -> Any:
    return action


def reference_player(env: ParallelEnv[str, Any, Any]) -> Player | None:
    """The environment's own player (`reference_reply`), acting in that very copy of it; None where it has none."""
    reply = getattr(env.unwrapped, "reference_reply", None)
    if reply is None or getattr(reply, "__func__", None) is TextParallelEnv.reference_reply:
        return None
    return partial(_replied, reply)


def _replied(reply: Callable[[str], Any], agent: str, observation: Any) -> Any:
    return reply(agent)


def exploits_of(env: ParallelEnv[str, Any, Any]) -> Mapping[str, Player]:
    """The environment's own players that do not do the task (`TextParallelEnv.exploits`), acting in that very copy."""
    world = env.unwrapped
    if not isinstance(world, TextParallelEnv):
        return {}
    return {name: partial(_exploiting, world, name) for name in world.exploits()}


def _exploiting(world: TextParallelEnv, name: str, agent: str, observation: Any) -> str:
    return world.exploits()[name](agent)


def honest_player(env: ParallelEnv[str, Any, Any], name: str) -> Player | None:
    """The environment's own honest player of this name, acting in that very copy; None where it has none."""
    world = env.unwrapped
    if not isinstance(world, TextParallelEnv) or name not in world.honest_players():
        return None
    return partial(_honest, world, name)


def _honest(world: TextParallelEnv, name: str, agent: str, observation: Any) -> str:
    return world.honest_players()[name](agent)


def played(env: ParallelEnv[str, Any, Any], player: Player, seed: int) -> tuple[float, list[Mapping[str, Any]]]:
    """Play one episode.

    Returns:
        Undiscounted return, averaged over the agents; and the info of each turn, of the first agent that took part.
    """
    observations, _ = env.reset(seed=seed)
    earned: dict[str, float] = {}
    told: list[Mapping[str, Any]] = []
    while env.agents:
        actions = {agent: player(agent, observations[agent]) for agent in env.agents}
        observations, rewards, _, _, infos = env.step(actions)
        told.append(infos.get(next(iter(actions)), {}))
        for agent, reward in rewards.items():
            earned[agent] = earned.get(agent, 0.0) + reward
    return sum(earned.values()) / len(earned), told


def scripted_player(env: ParallelEnv[str, Any, Any], name: str, seed: int = 0) -> Player | None:
    """A player by name, for all agents; None if the environment has no such reference, empty reply or honest player.

    Args:
        env: where it plays.
        name: one of `PLAYERS` or `HONEST_PLAYERS`, or an exploit of the environment.
        seed: draws the random actions.

    Raises:
        ValueError: if there is no such player.
    """
    if name == "reference":
        return reference_player(env)
    if name == "random":
        return RandomPlayer({agent: env.action_space(agent) for agent in env.possible_agents}, seed)
    if name == "empty":
        has_empty = all(env.action_space(agent).contains("") for agent in env.possible_agents)
        return fixed_player("") if has_empty else None
    if name in HONEST_PLAYERS:
        return honest_player(env, name)
    if name in (own := exploits_of(env)):
        return own[name]
    raise ValueError(
        f"there is no scripted player {name!r}; choose one of {', '.join([*PLAYERS, *HONEST_PLAYERS, *own])}"
    )
