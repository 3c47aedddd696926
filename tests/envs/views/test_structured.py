"""Views of chats, dicts, flat arrays, phrases, masks and infos."""

from typing import ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Space
from heard import Heard, Knowing
from pettingzoo import ParallelEnv
from pettingzoo.test import parallel_api_test
from replies import begun

from collm.agents.core import Request
from collm.agents.numeric.policy import NumericPolicy
from collm.envs import OpenText, make, views


def test_chats_dicts_numeric_infos_and_play_turn_by_turn():
    env = views.ChatObservations(Heard())
    first, _ = env.reset(seed=0)
    second, *_ = env.step({"a_0": "yes", "b_0": "no"})
    assert [message["role"] for message in second["a_0"]] == ["user", "assistant", "user"]
    assert [message["content"] for message in second["a_0"]][1:] == ["yes", "so"]
    assert env.observation_space("a_0").contains(second["a_0"])
    assert first["a_0"][0] == second["a_0"][0] and first["a_0"][0] is not second["a_0"][0]
    env = views.DictObservations(Heard(max_observation_length=99), key="story")
    assert env.observation_space("a_0") == Dict({"story": OpenText(99)})
    assert env.reset(seed=0)[0]["a_0"]["story"].startswith("a_0 reads")
    env = views.NumericInfos(Heard())
    env.env.step = lambda actions: ({}, {}, {}, {}, {"a_0": {"x": 1.0, "y": "text", "z": np.ones(2), "w": [1]}})
    assert sorted(env.step({})[4]["a_0"]) == ["x", "z"]
    alone, by_turns = Heard(), views.to_aec(Heard())
    alone.reset(seed=0)
    by_turns.reset(seed=0)
    observations, rewards, *_ = alone.step({"a_0": "yes", "b_0": "no"})
    by_turns.step("yes")
    by_turns.step("no")
    assert by_turns.rewards == rewards
    assert by_turns.last()[0] == {"text": str(observations["a_0"])}


def test_a_phrase_is_chosen_by_number_and_a_tasks_own_are_its_reference_replies():
    env = views.PhraseActions(Heard(), {"a_0": ["yes", "no"], "b_0": ["so"]})
    assert (env.action_space("a_0"), env.action_space("b_0")) == (Discrete(2), Discrete(1))
    env.reset(seed=0)
    env.step({"a_0": np.array([1]), "b_0": 0})
    assert env.unwrapped.heard == {"a_0": "no", "b_0": "so"}
    with pytest.raises(ValueError, match="'b_0'"):
        views.PhraseActions(Heard(), {"a_0": ["yes"]})
    env = begun(Knowing(), seed=5)
    before = env.state()
    assert views.reference_phrases(env, 3) == {"a_0": ("a_0 at 0", "a_0 at 1"), "b_0": ("b_0 at 0", "b_0 at 1")}
    assert env.state() == before
    plain = make("collm/MiniWriting-v2")
    env = begun(views.PhraseActions(plain, views.reference_phrases(plain, 1)), seed=0)
    _, rewards, *_ = env.step(dict.fromkeys(env.agents, 0))
    assert set(rewards.values()) == {1.0}


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


def test_a_dict_becomes_a_row_by_hand_and_what_has_no_fixed_size_is_refused(capsys):
    env = views.FlatObservations(Board())
    observations, _ = env.reset(seed=0)
    assert observations["player_0"].tolist() == [4, 7, 0, 1, 0]
    assert env.observation_space("player_0").shape == (5,)
    assert env.action_space("player_0") is env.unwrapped.action_space("player_0")
    parallel_api_test(env, num_cycles=5)
    with pytest.raises(TypeError, match="cannot be flattened"):
        views.FlatObservations(make("collm/MiniBuild-v0"))
    with pytest.raises(TypeError, match="fixed size"):
        views.FlatObservations(views.ChatObservations(make("collm/MiniBuild-v0")))
    board = Board()
    board.spaces = Dict({"fields": Box(0, 9, (2,), np.int8), "mission": Mission()})
    with pytest.raises(TypeError, match="fixed size"):
        views.FlatObservations(board).observation_space("player_0")


class Mission(Space):
    @property
    def is_np_flattenable(self):
        raise NotImplementedError


PHRASES = ("build bench glass", "build bench wood", "wait")


def is_short(env, agent, phrase):
    """Longer phrases from turn to turn, so that the mask has to be asked for anew."""
    return len(phrase) <= 4 or (agent == "builder_1" and env.unwrapped.turn > 0)


def masked():
    env = views.TokenObservations(make("collm/MiniBuild-v0", max_turns=3), 32)
    return views.PhraseActions(env, PHRASES, is_legal=is_short)


def test_infos_tell_which_phrases_are_legal_now_and_masks_move_into_observations():
    env = masked()
    _, infos = env.reset(seed=0)
    assert [infos[agent]["action_mask"].tolist() for agent in env.agents] == [[0, 0, 1], [0, 0, 1]]
    *_, infos = env.step(dict.fromkeys(env.agents, 2))
    assert [infos[agent]["action_mask"].tolist() for agent in env.agents] == [[0, 0, 1], [1, 1, 1]]
    assert infos["builder_0"]["action_mask"].dtype == np.int8
    env.action_space("builder_0").sample(infos["builder_0"]["action_mask"])
    env.step(dict.fromkeys(env.agents, 2))
    *_, infos = env.step(dict.fromkeys(env.agents, 2))
    assert env.agents == [] and all("action_mask" not in info for info in infos.values())
    plain, env = masked(), views.MaskedObservations(masked())
    seen, infos = plain.reset(seed=1)
    moved, left = env.reset(seed=1)
    for agent in plain.agents:
        assert env.observation_space(agent).contains(moved[agent])
        assert np.array_equal(moved[agent]["observation"], seen[agent])
        assert np.array_equal(moved[agent]["action_mask"], infos[agent]["action_mask"])
        assert "action_mask" not in left[agent]
        policy = NumericPolicy.for_spaces(env.observation_space(agent), env.action_space(agent))
        assert policy.act([Request(agent, moved[agent], (0,))])[0].action == 2


def test_without_a_rule_everything_is_legal_and_a_rule_that_leaves_no_phrase_is_refused():
    env = views.PhraseActions(make("collm/MiniBuild-v0"), PHRASES)
    assert not any("action_mask" in info for info in env.reset(seed=0)[1].values())
    assert views.MaskedObservations(env).reset(seed=0)[0]["builder_0"]["action_mask"].tolist() == [1, 1, 1]
    with pytest.raises(TypeError, match="Discrete"):
        views.MaskedObservations(make("collm/MiniBuild-v0"))
    with pytest.raises(ValueError, match="3 phrases of 'builder_0'"):
        views.PhraseActions(make("collm/MiniBuild-v0"), PHRASES, is_legal=lambda *_: False).reset(seed=0)
