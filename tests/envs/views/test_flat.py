"""Flattened observations."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Space
from pettingzoo import ParallelEnv
from pettingzoo.test import parallel_api_test

from collm.envs import make
from collm.envs.views import ChatObservations, FlatObservations


class Board(ParallelEnv):
    """One player, who is shown two fields and whose turn it is."""

    metadata: ClassVar = {"name": "board_v0", "render_modes": []}
    render_mode = None

    def __init__(self):
        self.possible_agents, self.agents = ["player_0"], []
        self.spaces = Dict({"fields": Box(0, 9, (2, 1), np.int8), "turn": Discrete(3)})
        self.choices = Discrete(2)

    def observation_space(self, agent):
        return self.spaces

    def action_space(self, agent):
        return self.choices

    def _seen(self):
        return {"player_0": {"fields": np.array([[4], [7]], np.int8), "turn": 1}}

    def reset(self, seed=None, options=None):
        self.agents = ["player_0"]
        return self._seen(), {"player_0": {}}

    def step(self, actions):
        self.agents = []
        return self._seen(), {"player_0": 1.0}, {"player_0": True}, {"player_0": False}, {"player_0": {}}


def test_a_dict_becomes_a_row_by_hand(capsys):
    env = FlatObservations(Board())
    observations, _ = env.reset(seed=0)
    assert observations["player_0"].tolist() == [4, 7, 0, 1, 0]
    assert env.observation_space("player_0").shape == (5,)
    assert env.action_space("player_0") is env.unwrapped.action_space("player_0")
    parallel_api_test(env, num_cycles=5)


def test_what_has_no_fixed_size_is_refused():
    with pytest.raises(TypeError, match="cannot be flattened"):
        FlatObservations(make("collm/MiniBuild-v0"))
    with pytest.raises(TypeError, match="fixed size"):
        FlatObservations(ChatObservations(make("collm/MiniBuild-v0")))


def test_a_space_that_does_not_know_its_size_is_refused_like_a_text():
    class Mission(Space):
        @property
        def is_np_flattenable(self):
            raise NotImplementedError

    board = Board()
    board.spaces = Dict({"fields": Box(0, 9, (2,), np.int8), "mission": Mission()})
    with pytest.raises(TypeError, match="fixed size"):
        FlatObservations(board).observation_space("player_0")
