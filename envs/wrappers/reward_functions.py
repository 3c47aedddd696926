"""Wrapper that replaces an environment's reward by reward functions of the user."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from ..._functions import load_function
from ..core import TextParallelEnv, Transcript

OWN = "own"
"""Name of the environment's own reward in `reward_funcs`."""


@dataclass(frozen=True)
class JudgedTurn:
    """One turn of an episode: the argument of reward functions."""

    task: Any
    """Task of the episode (`TextParallelEnv.task`)."""
    replies: Mapping[str, str]
    """Reply of each agent."""
    transcripts: Mapping[str, Transcript]
    """History of each agent after the turn."""
    joint: Transcript
    """Joint history of all agents."""
    world: TextParallelEnv
    """The environment. Reward functions must not change it."""
    reward: Mapping[str, float]
    """The environment's own reward of each agent."""
    numbers: Mapping[str, float]
    """The environment's own reward terms and metrics, as in `infos`."""
    turn: int
    """Number of the turn, from 1."""
    is_last: bool
    """True if the episode is over."""


RewardFunction: TypeAlias = Callable[[JudgedTurn], "float | Mapping[str, float]"]
"""Function: `JudgedTurn` -> team reward, or a mapping: live agent -> reward."""


class RewardFunctions(BaseParallelWrapper[str, Any, Any]):
    """Replaces the reward by a weighted sum of reward functions.

        reward = sum over f of weight_f f(turn)

    `infos` contain each weighted term as `reward/<name>`. The environment's own terms are renamed `metric/own/<term>`.
    `make(id, reward_funcs=[...])` adds this wrapper.

    Args:
        env: a text environment, or a wrapper of one.
        reward_funcs: list of functions, or mapping name -> function. Instead of a function: "own" (the environment's
            own reward), or an import path "package.module:function", which is needed to resume a run.
        reward_weights: one weight per function. None: all weights are 1.

    Raises:
        ValueError: if `env` is not a text environment, there are no functions, a function is not callable, two
            functions have the same name, or the number of weights is wrong.
    """

    def __init__(
        self,
        env: ParallelEnv[str, Any, Any],
        reward_funcs: Sequence[RewardFunction | str] | Mapping[str, RewardFunction | str],
        reward_weights: Sequence[float] | None = None,
    ):
        if not isinstance(env.unwrapped, TextParallelEnv):
            raise ValueError(f"reward_funcs need a text environment, got {env}; remove reward_funcs")
        super().__init__(env)
        self.reward_functions = _named(reward_funcs)
        names = list(self.reward_functions)
        weights = [1.0] * len(names) if reward_weights is None else reward_weights
        is_list = isinstance(weights, Sequence) and all(isinstance(each, int | float) for each in weights)
        if not is_list or len(weights) != len(names):
            raise ValueError(f"reward_weights must have one number for each of {names}, got {weights}")
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
        told: dict[str, dict[str, Any]] = {agent: {} for agent in infos}
        for agent, info in infos.items():
            for name, value in info.items():
                is_term = name.startswith("reward/")
                told[agent][f"metric/own/{name.removeprefix('reward/')}" if is_term else name] = value
        for name, part in parts.items():
            for agent in own:
                paid = self.reward_weights[name] * part[agent]
                rewards[agent] += paid
                told[agent][f"reward/{name}"] = paid
        return observations, rewards, terminations, truncations, told


def _named(given: Sequence[RewardFunction | str] | Mapping[str, RewardFunction | str]) -> dict[str, Any]:
    """Return a dict: name -> function, or None for the environment's own reward."""
    if isinstance(given, str) or not isinstance(given, (Sequence, Mapping)) or not given:
        raise ValueError(f"reward_funcs must be a nonempty list of functions or dict name -> function, got {given!r}")
    pairs = list(given.items()) if isinstance(given, Mapping) else [(_name(each), each) for each in given]
    found = {name: _function(each) for name, each in pairs}
    if len(found) < len(pairs) or "<lambda>" in found:
        names = [name for name, _ in pairs]
        raise ValueError(f"reward functions need different names, got {names}; write reward_funcs={{'name': function}}")
    return found


def _name(given: RewardFunction | str) -> str:
    return given.rpartition(":")[2] if isinstance(given, str) else getattr(given, "__name__", type(given).__name__)


def _function(given: RewardFunction | str) -> RewardFunction | None:
    if given == OWN:
        return None
    if isinstance(given, str):
        return load_function(given)
    if not callable(given):
        raise ValueError(f"a reward function must be callable with a JudgedTurn, got {given!r}")
    return given


def _by_agent(name: str, value: Any, agents: Mapping[str, float]) -> Mapping[str, float]:
    given = value if isinstance(value, Mapping) else dict.fromkeys(agents, value)
    if set(given) != set(agents):
        raise ValueError(f"reward function {name!r} must return a reward for each of {list(agents)}, got {dict(given)}")
    try:
        paid = {agent: float(part) for agent, part in given.items()}
    except (TypeError, ValueError) as error:
        raise ValueError(f"reward function {name!r} must return one number, or one per agent, got {value!r}") from error
    if not all(map(math.isfinite, paid.values())):
        raise ValueError(f"reward function {name!r} must return finite numbers, got {value!r}")
    return paid
