"""Rewards by functions of your own, in place of the environment's or beside it."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from ..core import TextParallelEnv, Transcript

OWN = "own"
"""Name of the environment's own reward among the functions."""


@dataclass(frozen=True)
class JudgedTurn:
    """What a reward function sees of a turn that was just played."""

    task: Any
    """What the episode is about, as the environment holds it: a row of its data, a goal, a map."""
    replies: Mapping[str, str]
    """What each agent wrote in the turn."""
    transcripts: Mapping[str, Transcript]
    """History of each agent, with its reply and what it read after it."""
    joint: Transcript
    """Joint history of all agents."""
    world: TextParallelEnv
    """The environment itself, to be read only."""
    reward: Mapping[str, float]
    """Its own reward of the turn, by agent."""
    numbers: Mapping[str, float]
    """Its own reward terms and metrics of the turn, as in `infos`."""
    turn: int
    """Number of the turn, from 1."""
    is_last: bool
    """Whether the episode is over."""


RewardFunction: TypeAlias = Callable[[JudgedTurn], "float | Mapping[str, float]"]
"""A turn -> the team's reward, or one for each agent that moved."""


class RewardFunctions(BaseParallelWrapper[str, Any, Any]):
    """The reward is a weighted sum of functions: reward = sum over f of weight_f f(turn).

    `infos` tell each function's part as `reward/<name>`, weighted, so that the parts add up to the reward; the
    environment's own terms are then `metric/own/<term>`. Functions see the same turn and do not change the episode.
    `make(id, reward_funcs=[...])` does the same.

    Args:
        env: a text environment, or a wrapper of one.
        reward_funcs: functions, named as they are in Python; or functions by name. In place of a function, "own" is the
            environment's own reward, and "package.module:function" is imported, so that a run can be resumed.
        reward_weights: one weight per function; None: 1 each.

    Raises:
        TypeError: if `env` is no text environment, or a function is none.
        ValueError: if there is no function, two have one name, or there are not as many weights.
    """

    def __init__(
        self,
        env: ParallelEnv[str, Any, Any],
        reward_funcs: Sequence[RewardFunction | str] | Mapping[str, RewardFunction | str],
        reward_weights: Sequence[float] | None = None,
    ):
        if not isinstance(env.unwrapped, TextParallelEnv):
            raise TypeError(f"reward_funcs judge texts, but {env} is no text environment")
        super().__init__(env)
        self.reward_functions = _named(reward_funcs)
        weights = [1.0] * len(self.reward_functions) if reward_weights is None else list(reward_weights)
        if len(weights) != len(self.reward_functions):
            raise ValueError(
                f"reward_weights must have one weight for each of {list(self.reward_functions)}, got {weights}"
            )
        self.reward_weights = dict(zip(self.reward_functions, map(float, weights), strict=True))

    def step(self, actions: dict[str, str]) -> tuple[Any, ...]:
        world = self.env.unwrapped
        assert isinstance(world, TextParallelEnv)
        observations, own, terminations, truncations, infos = self.env.step(actions)
        numbers: Mapping[str, float] = next(iter(infos.values()), {})
        judged = JudgedTurn(
            task=world.task,
            replies=dict(actions),
            transcripts=observations,
            joint=world.state(),
            world=world,
            reward=own,
            numbers=numbers,
            turn=world.turn,
            is_last=not self.env.agents,
        )
        parts = {
            name: own if function is None else _by_agent(name, function(judged), own)
            for name, function in self.reward_functions.items()
        }
        rewards = dict.fromkeys(own, 0.0)
        told = {agent: _told(info) for agent, info in infos.items()}
        for name, part in parts.items():
            for agent in own:
                paid = self.reward_weights[name] * part[agent]
                rewards[agent] += paid
                told[agent][f"reward/{name}"] = paid
        return observations, rewards, terminations, truncations, told


def _named(given: Sequence[RewardFunction | str] | Mapping[str, RewardFunction | str]) -> dict[str, Any]:
    """Functions by name; None stands for the environment's own reward."""
    if isinstance(given, str) or not isinstance(given, (Sequence, Mapping)) or not given:
        raise ValueError(f"reward_funcs must be a list of functions, or functions by name, at least one; got {given!r}")
    pairs = list(given.items()) if isinstance(given, Mapping) else [(_name(each), each) for each in given]
    found = {name: _function(each) for name, each in pairs}
    if len(found) < len(pairs) or "<lambda>" in found:
        raise ValueError(
            f"reward functions need names of their own, got {[name for name, _ in pairs]}; give them by name: "
            "reward_funcs={'brevity': function}"
        )
    return found


def _name(given: RewardFunction | str) -> str:
    return given.rpartition(":")[2] if isinstance(given, str) else getattr(given, "__name__", type(given).__name__)


def _function(given: RewardFunction | str) -> RewardFunction | None:
    if not isinstance(given, str):
        if not callable(given):
            raise TypeError(f"a reward function takes a JudgedTurn and returns a number, got {given!r}")
        return given
    if given == OWN:
        return None
    module, _, name = given.partition(":")
    try:
        function: RewardFunction = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"the reward function {given!r} cannot be loaded ({error}); write 'package.module:function', or 'own' for "
            "the environment's own reward"
        ) from error
    return function


def _by_agent(name: str, value: Any, agents: Mapping[str, float]) -> Mapping[str, float]:
    given = value if isinstance(value, Mapping) else dict.fromkeys(agents, value)
    if set(given) != set(agents):
        raise ValueError(f"reward function {name!r} must pay each of {list(agents)}, got {dict(given)}")
    try:
        paid = {agent: float(part) for agent, part in given.items()}
    except (TypeError, ValueError) as error:
        raise ValueError(f"reward function {name!r} must return a number, or one by agent, got {value!r}") from error
    if not all(map(math.isfinite, paid.values())):
        raise ValueError(f"reward function {name!r} must return finite numbers, got {value!r}")
    return paid


def _told(info: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"metric/own/{name.removeprefix('reward/')}" if name.startswith("reward/") else name: value
        for name, value in info.items()
    }
