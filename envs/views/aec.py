"""Functions that build environments for `pettingzoo.make`, and the conversion to PettingZoo's AEC interface."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from gymnasium.spaces import Text
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils import AgentSelector
from pettingzoo.utils.conversions import parallel_to_aec_wrapper
from pettingzoo.utils.wrappers import OrderEnforcingWrapper

from ..core import TextParallelEnv
from ..registration.registry import spec
from ..registration.turn_limit import TurnLimit
from ..spaces import movers_of
from .structured import DictObservations


def make_parallel(env_id: str, max_cycles: int | None = None, **kwargs: Any) -> ParallelEnv[str, Any, Any]:
    """Build an environment for `pettingzoo.make("parallel", id)`.

    Args:
        env_id: a registered id.
        max_cycles: maximum number of turns: the argument `max_turns` if the environment has it, else a `TurnLimit`.
        kwargs: arguments of the environment.
    """
    found = spec(env_id)
    if max_cycles is None:
        return found.make(**kwargs)
    if takes_max_turns(found.constructor()):
        return found.make(max_turns=max_cycles, **kwargs)
    return TurnLimit(found.make(**kwargs), max_cycles)


def takes_max_turns(constructor: Callable[..., Any]) -> bool:
    """Return True if a function or class has an argument `max_turns` (other than that of `TextParallelEnv`)."""
    steps: list[Any] = [constructor]
    if inspect.isclass(constructor):
        steps = [vars(each).get("__init__") for each in constructor.__mro__ if each not in (TextParallelEnv, object)]
    return any("max_turns" in inspect.signature(step).parameters for step in steps if step is not None)


def to_aec(env: ParallelEnv[str, Any, Any]) -> AECEnv[str, Any, Any]:
    """Convert an environment to an `AECEnv`, in which one agent acts at a time.

    The environment steps when all live agents that do not wait have acted. Text observations are converted to
    {"text": ...}.
    """
    # PettingZoo's AEC tools read the dtype of every observation except dicts.
    if any(isinstance(env.observation_space(agent), Text) for agent in env.possible_agents):
        env = DictObservations(env)
    return OrderEnforcingWrapper(_InTurn(env))


class _InTurn(parallel_to_aec_wrapper[str, Any, Any]):
    """PettingZoo's conversion, except that waiting agents are not selected."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(seed=seed, options=options)
        self._select_movers()

    def step(self, action: Any) -> None:
        agent, order = self.agent_selection, self._agent_selector
        is_dead = self.terminations[agent] or self.truncations[agent]
        is_last = not is_dead and order.is_last()
        earlier = {each: paid for each, paid in self._cumulative_rewards.items() if each not in order.agent_order}
        super().step(action)
        if is_last:
            for each, paid in earlier.items():  # an agent reads its reward when it acts
                self._cumulative_rewards[each] += paid
            self._select_movers()

    def _select_movers(self) -> None:
        movers = movers_of(self.env.agents, self.infos)
        if movers and len(movers) < len(self.env.agents):
            self._agent_selector = AgentSelector(movers)
            # An agent that has ended is selected first; PettingZoo then continues with `_skip_agent_selection`.
            ended = self.terminations[self.agent_selection] or self.truncations[self.agent_selection]
            setattr(self, "_skip_agent_selection" if ended else "agent_selection", self._agent_selector.reset())


def make_aec(env_id: str, max_cycles: int | None = None, **kwargs: Any) -> AECEnv[str, Any, Any]:
    """Build an environment for `pettingzoo.make("aec", id)`."""
    return to_aec(make_parallel(env_id, max_cycles, **kwargs))
