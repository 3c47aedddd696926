"""Views of chats, dicts, phrases and infos."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Dict, Discrete
from heard import Heard, Knowing

from collm.envs import OpenText, make
from collm.envs.views import ChatObservations, DictObservations, NumericInfos, PhraseActions, reference_phrases, to_aec


def test_chat_is_fresh_messages_with_roles():
    env = ChatObservations(Heard())
    first, _ = env.reset(seed=0)
    second, *_ = env.step({"a_0": "yes", "b_0": "no"})
    assert [message["role"] for message in second["a_0"]] == ["user", "assistant", "user"]
    assert [message["content"] for message in second["a_0"]][1:] == ["yes", "so"]
    assert env.observation_space("a_0").contains(second["a_0"])
    assert first["a_0"][0] == second["a_0"][0] and first["a_0"][0] is not second["a_0"][0]


def test_a_dict_has_one_entry():
    env = DictObservations(Heard(max_observation_length=99), key="story")
    assert env.observation_space("a_0") == Dict({"story": OpenText(99)})
    assert env.reset(seed=0)[0]["a_0"]["story"].startswith("a_0 reads")


def test_a_phrase_is_chosen_by_number():
    env = PhraseActions(Heard(), {"a_0": ["yes", "no"], "b_0": ["so"]})
    assert (env.action_space("a_0"), env.action_space("b_0")) == (Discrete(2), Discrete(1))
    env.reset(seed=0)
    env.step({"a_0": np.array([1]), "b_0": 0})
    assert env.unwrapped.heard == {"a_0": "no", "b_0": "so"}


def test_an_agent_without_phrases_is_refused():
    with pytest.raises(ValueError, match="'b_0'"):
        PhraseActions(Heard(), {"a_0": ["yes"]})


def test_a_tasks_own_phrases_are_its_reference_replies():
    env = Knowing()
    env.reset(seed=5)
    before = env.state()
    assert reference_phrases(env, 3) == {"a_0": ("a_0 at 0", "a_0 at 1"), "b_0": ("b_0 at 0", "b_0 at 1")}
    assert env.state() == before


def test_choosing_among_a_tasks_own_phrases_can_win():
    plain = make("collm/MiniWriting-v2")
    env = PhraseActions(plain, reference_phrases(plain, 1))
    env.reset(seed=0)
    _, rewards, *_ = env.step(dict.fromkeys(env.agents, 0))
    assert set(rewards.values()) == {1.0}


def test_only_numbers_are_told():
    env = NumericInfos(Heard())
    env.env.step = lambda actions: ({}, {}, {}, {}, {"a_0": {"x": 1.0, "y": "text", "z": np.ones(2), "w": [1]}})
    assert sorted(env.step({})[4]["a_0"]) == ["x", "z"]


def test_turn_by_turn_the_team_gets_the_same():
    alone, by_turns = Heard(), to_aec(Heard())
    alone.reset(seed=0)
    by_turns.reset(seed=0)
    observations, rewards, *_ = alone.step({"a_0": "yes", "b_0": "no"})
    by_turns.step("yes")
    by_turns.step("no")
    assert by_turns.rewards == rewards
    assert by_turns.last()[0] == {"text": str(observations["a_0"])}
