"""Conversion of PettingZoo's AEC environments, in which one agent acts at a time, to parallel environments."""

from __future__ import annotations

from typing import Any

from pettingzoo import AECEnv
from pettingzoo.utils import BaseParallelWrapper
from pettingzoo.utils.conversions import turn_based_aec_to_parallel_wrapper

from ...core import ResetResult, StepResult
from ...spaces import MASK, WAITS, has_mask, only_first, options_of


def seed_in_31_bits(seed: int) -> int:
    """Return a seed below 2^31, because the generators of some games, such as Hanabi, accept no larger seeds.

    Training uses seeds below 2^31, which become seeds below 2^30. Evaluations use seeds from 2^31, which become seeds
    from 2^30. So no seed of an evaluation becomes a seed of training.
    """
    return seed % 2**30 + (2**30 if seed >= 2**31 else 0)


class TurnBased(BaseParallelWrapper[str, Any, Any]):
    """Converts an AEC environment with PettingZoo's `turn_based_aec_to_parallel`, and masks actions of waiting agents.

    Agents whose actions have no masks, such as texts, wait (`infos[agent]["waits"]`). In each turn, only the action of
    the agent `agent_selection` has an effect. For discrete actions, the masks of the other agents allow only the first
    option, so their actions have probability 1, entropy 0 and gradient 0. The mask is in the observation if the
    observation space has masks, else in the info.
    """

    def __init__(self, env: AECEnv[str, Any, Any]):
        super().__init__(turn_based_aec_to_parallel_wrapper(env))
        self.agents: list[str] = []
        self.metadata = {**env.metadata, "is_parallelizable": True}
        self.render_mode = getattr(env, "render_mode", None)
        self.state_space = getattr(env, "state_space", None)  # None for most environments
        self._waiting = {agent: only_first(options_of(env.action_space(agent))) for agent in self.possible_agents}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        observations, infos = self.env.reset(seed=None if seed is None else seed_in_31_bits(seed), options=options)
        self.agents = list(self.env.agents)
        return self._masked(observations, infos)

    def step(self, actions: dict[str, Any]) -> StepResult:
        if not self.agents:
            raise RuntimeError("no episode is running; call reset() first")
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        self.agents = list(self.env.agents)
        observations, infos = self._masked(observations, infos)
        return observations, rewards, terminations, truncations, infos

    def _masked(self, observations: dict[str, Any], infos: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        acting = self.aec_env.agent_selection if self.aec_env.agents else None
        seen = dict(observations)
        # PettingZoo's entry "active_agent" is a string, which policies cannot convert to an array.
        told = {
            agent: {name: it for name, it in info.items() if name != "active_agent"} for agent, info in infos.items()
        }
        for agent, mask in self._waiting.items():
            if agent == acting or agent not in seen:
                continue
            if not len(mask):
                told[agent] = {**told.get(agent, {}), WAITS: True}
            elif not has_mask(self.observation_space(agent)):
                told[agent] = {**told.get(agent, {}), MASK: mask.copy()}
            else:
                seen[agent] = {**seen[agent], MASK: mask.copy()}
        return seen, told
