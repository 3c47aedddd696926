"""PettingZoo's turn-based environments as parallel environments: waiting agents have one legal action."""

from typing import ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from pettingzoo import AECEnv

from collm.envs import UnknownEnvironmentError, check_env, make
from collm.envs.views import TurnBased

TWO = Discrete(2)


class Nim(AECEnv):
    """Five matches. Each agent takes one or two, and the agent that takes the last one wins."""

    metadata: ClassVar = {"name": "nim_v0", "render_modes": [], "is_parallelizable": False}
    render_mode = None

    def __init__(self, tells_masks: bool = True, is_parallelizable: bool = False, actions: Space = TWO):
        self.metadata = {**self.metadata, "is_parallelizable": is_parallelizable}
        self.possible_agents = ["player_0", "player_1"]
        self.tells_masks = tells_masks
        seen = Box(0, 5, (1,), np.float32)
        masked = Dict(observation=seen, action_mask=Box(0, 1, (2,), np.int8))
        self.observation_spaces = dict.fromkeys(self.possible_agents, masked if tells_masks else seen)
        self.action_spaces = dict.fromkeys(self.possible_agents, actions)

    def observation_space(self, agent):
        return self.observation_spaces[agent]

    def action_space(self, agent):
        return self.action_spaces[agent]

    def observe(self, agent):
        seen = np.array([self.matches], np.float32)
        if not self.tells_masks:
            return seen
        mask = [1, int(self.matches > 1)] if agent == self.agent_selection and self.matches else [0, 0]
        return {"observation": seen, "action_mask": np.array(mask, np.int8)}

    def reset(self, seed=None, options=None):
        self.matches, self.agents = 5, list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}
        self.agent_selection = "player_0"

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        assert action + 1 <= self.matches, "an illegal move"
        self.matches -= action + 1
        other = self.possible_agents[1 - self.possible_agents.index(agent)]
        if not self.matches:
            self.rewards = {agent: 1.0, other: -1.0}
            self.terminations = dict.fromkeys(self.agents, True)
        self.agent_selection = other


def test_only_the_action_of_who_is_in_turn_counts():
    assert "same_seed" in check_env(lambda: TurnBased(Nim()))
    env = TurnBased(Nim())
    seen, _ = env.reset(seed=0)
    assert seen["player_0"]["action_mask"].tolist() == [1, 1] and seen["player_1"]["action_mask"].tolist() == [1, 0]
    seen, *_ = env.step({"player_0": 1, "player_1": 1})
    assert seen["player_1"]["observation"] == 3
    assert seen["player_0"]["action_mask"].tolist() == [1, 0] and seen["player_1"]["action_mask"].tolist() == [1, 1]
    env.step({"player_0": 0, "player_1": 1})
    seen, rewards, terminations, _, _ = env.step({"player_0": 0, "player_1": 0})
    assert rewards == {"player_0": 1.0, "player_1": -1.0} and all(terminations.values()) and env.agents == []
    assert all(each["action_mask"].tolist() == [1, 0] for each in seen.values())  # nobody is in turn


def test_without_masks_of_its_own_the_info_tells_who_waits_with_the_first_option_of_every_choice():
    env = TurnBased(Nim(tells_masks=False))
    _, infos = env.reset(seed=0)
    assert "action_mask" not in infos["player_0"] and infos["player_1"]["action_mask"].tolist() == [1, 0]
    *_, infos = env.step({"player_0": 0, "player_1": 1})
    assert "action_mask" not in infos["player_1"] and infos["player_0"]["action_mask"].tolist() == [1, 0]
    _, infos = TurnBased(Nim(tells_masks=False, actions=MultiDiscrete([2, 3]))).reset(seed=0)
    assert infos["player_1"]["action_mask"].tolist() == [1, 0, 1, 0, 0]
    _, infos = TurnBased(Nim(tells_masks=False, actions=Box(0, 1, (1,), np.float32))).reset(seed=0)
    assert infos == {"player_0": {}, "player_1": {"waits": True}}  # only discrete actions have masks


def test_seeds_fit_into_31_bits_and_no_seed_of_an_evaluation_is_one_of_training():
    class Seeded(Nim):
        def reset(self, seed=None, options=None):
            super().reset(seed, options)
            self.seed = seed

    env = TurnBased(Seeded())

    def inner(seed):
        env.reset(seed=seed)
        return env.unwrapped.seed

    assert inner(None) is None and inner(7) == 7
    training = [inner(seed) for seed in (0, 1, 2**30 - 1, 2**30, 2**31 - 1)]
    evaluation = [inner(seed) for seed in (2**31, 2**31 + 1, 2**31 + 999, 3 * 2**30, 2**32 - 1)]
    assert 0 <= min(training) and max(training) < 2**30 <= min(evaluation) and max(evaluation) < 2**31
    assert evaluation[:3] == [2**30, 2**30 + 1, 2**30 + 999]


@pytest.mark.filterwarnings("ignore:The old environment creation API")
def test_an_entry_point_or_a_module_of_pettingzoo_s_form_is_an_environment():
    assert isinstance(make(f"{__name__}:Nim"), TurnBased)
    assert not isinstance(make(f"{__name__}:Nim", is_parallelizable=True), TurnBased)
    pytest.importorskip("pygame")
    env = make("pettingzoo.classic.tictactoe_v3")
    assert isinstance(env, TurnBased) and env.possible_agents == ["player_1", "player_2"]
    with pytest.raises(UnknownEnvironmentError, match="no parallel_env or env"):
        make("os.path")
    with pytest.raises(UnknownEnvironmentError, match="cannot be imported"):
        make("pettingzoo.classic.no_such_game_v0")
