"""Scripted players: reference replies, random actions, a fixed action, and players that the environment defines."""

# Players are partial functions, because closures cannot be pickled. With partial functions, `copy.deepcopy` of an
# environment together with its player also returns a player that acts in the copied environment.

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, TypeAlias

from gymnasium.spaces import Space
from pettingzoo import ParallelEnv

from .core import TextParallelEnv
from .spaces import MASK, movers_of, sampled

Player: TypeAlias = Callable[[str, Any], Any]  # function (agent, observation) -> action
Partner: TypeAlias = Callable[[str, Any, random.Random], Any]
"""Policy of another agent: function (agent, observation, generator of random numbers) -> action."""
PLAYERS = ("reference", "random", "empty")  # names that `scripted_player` accepts for every environment
HONEST_PLAYERS = ("silent", "talking")  # possible names in `TextParallelEnv.honest_players`
HELD_OUT = "-held-out"  # end of the names in `TextParallelEnv.partners` that are for tests only


class RandomPlayer:
    """Player that samples actions. If the observation has an action mask, it samples only legal actions.

    Args:
        spaces: action space of each agent. The spaces are copied.
        seed: seed of the first agent's space. The other spaces get seed + 1, seed + 2, ...
    """

    def __init__(self, spaces: Mapping[str, Space[Any]], seed: int = 0):
        self._spaces = {agent: deepcopy(space) for agent, space in spaces.items()}
        for number, agent in enumerate(self._spaces):
            self.seed(agent, seed + number)

    def seed(self, agent: str, seed: int) -> None:
        self._spaces[agent].seed(seed)

    def __call__(self, agent: str, observation: Any, mask: Any = None) -> Any:
        if mask is None and isinstance(observation, Mapping):
            mask = observation.get(MASK)
        return self._spaces[agent].sample() if mask is None else sampled(self._spaces[agent], mask)


def fixed_player(action: Any) -> Player:
    """Return a player that always takes the same action."""
    return partial(_fixed, action)


def _fixed(action: Any, agent: str, observation: Any) -> Any:
    return action


def reference_player(env: ParallelEnv[str, Any, Any]) -> Player | None:
    """Return a player that gives the reference replies of `env`, or None if `env` defines no reference replies."""
    reply = getattr(env.unwrapped, "reference_reply", None)
    if reply is None or getattr(reply, "__func__", None) is TextParallelEnv.reference_reply:
        return None
    return partial(_replied, reply)


def _replied(reply: Callable[[str], Any], agent: str, observation: Any) -> Any:
    return reply(agent)


def exploits_of(env: ParallelEnv[str, Any, Any]) -> Mapping[str, Player]:
    """Return the players that `TextParallelEnv.exploits` defines, as a dict: name -> player."""
    return _defined_by(env, "exploits")


def partners_of(env: ParallelEnv[str, Any, Any]) -> Mapping[str, Player]:
    """Return the players that `TextParallelEnv.partners` defines, as a dict: name -> player."""
    return _defined_by(env, "partners")


def _defined_by(env: ParallelEnv[str, Any, Any], method: str) -> Mapping[str, Player]:
    world = env.unwrapped
    if not isinstance(world, TextParallelEnv):
        return {}
    return {name: partial(_replied_by, world, method, name) for name in getattr(world, method)()}


def honest_player(env: ParallelEnv[str, Any, Any], name: str) -> Player | None:
    """Return the player `name` of `TextParallelEnv.honest_players`, or None if there is no player of this name."""
    world = env.unwrapped
    if not isinstance(world, TextParallelEnv) or name not in world.honest_players():
        return None
    return partial(_replied_by, world, "honest_players", name)


def _replied_by(world: TextParallelEnv, method: str, name: str, agent: str, observation: Any) -> Any:
    return getattr(world, method)()[name](agent)


def played(env: ParallelEnv[str, Any, Any], player: Player, seed: int) -> tuple[float, list[Mapping[str, Any]]]:
    """Play one episode. Returns (undiscounted return averaged over the agents, first live agent's info per turn)."""
    earned, told = played_by_agents(env, player, seed)
    return sum(earned.values()) / len(earned), told


def played_by_agents(
    env: ParallelEnv[str, Any, Any], player: Player, seed: int
) -> tuple[dict[str, float], list[Mapping[str, Any]]]:
    """Play one episode. Returns (undiscounted return of each agent, first live agent's info per turn)."""
    observations, infos = env.reset(seed=seed)
    earned: dict[str, float] = {}
    told: list[Mapping[str, Any]] = []
    while env.agents:
        first, movers = env.agents[0], movers_of(env.agents, infos)
        observations, rewards, _, _, infos = env.step({agent: player(agent, observations[agent]) for agent in movers})
        told.append(infos.get(first, {}))
        for agent, reward in rewards.items():
            earned[agent] = earned.get(agent, 0.0) + reward
    return earned, told


def scripted_player(env: ParallelEnv[str, Any, Any], name: str, seed: int = 0) -> Player | None:
    """Return a scripted player, or None if the environment does not define this player.

    Args:
        env: environment in which the player acts.
        name: a name in `PLAYERS`, `HONEST_PLAYERS`, `env.exploits()` or `env.partners()`.
        seed: seed of the player "random".
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
    if name in (own := {**exploits_of(env), **partners_of(env)}):
        return own[name]
    names = ", ".join([*PLAYERS, *HONEST_PLAYERS, *own])
    raise ValueError(f"there is no scripted player {name!r}; choose one of {names}")
