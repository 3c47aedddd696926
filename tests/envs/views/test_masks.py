"""Masks of phrases, in infos and in observations."""

import numpy as np
import pytest

from collm.agents.core import Request
from collm.agents.numeric.policy import NumericPolicy
from collm.envs import make
from collm.envs.views import MaskedObservations, PhraseActions, TokenObservations

PHRASES = ("build bench glass", "build bench wood", "wait")


def is_short(env, agent, phrase):
    """Longer phrases from turn to turn, so that the mask has to be asked for anew."""
    return len(phrase) <= 4 or (agent == "builder_1" and env.unwrapped.turn > 0)


def masked():
    env = TokenObservations(make("collm/MiniBuild-v0", max_turns=3), 32)
    return PhraseActions(env, PHRASES, is_legal=is_short)


def test_infos_tell_which_phrases_are_legal_now():
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


def test_a_rule_that_leaves_no_phrase_is_refused():
    env = PhraseActions(make("collm/MiniBuild-v0"), PHRASES, is_legal=lambda *_: False)
    with pytest.raises(ValueError, match="3 phrases of 'builder_0'"):
        env.reset(seed=0)


def test_masks_move_into_observations():
    plain, env = masked(), MaskedObservations(masked())
    seen, infos = plain.reset(seed=1)
    moved, left = env.reset(seed=1)
    for agent in plain.agents:
        assert env.observation_space(agent).contains(moved[agent])
        assert np.array_equal(moved[agent]["observation"], seen[agent])
        assert np.array_equal(moved[agent]["action_mask"], infos[agent]["action_mask"])
        assert "action_mask" not in left[agent]
        policy = NumericPolicy.for_spaces(env.observation_space(agent), env.action_space(agent))
        assert policy.act([Request(agent, moved[agent], (0,))])[0].action == 2


def test_without_a_rule_everything_is_legal():
    env = PhraseActions(make("collm/MiniBuild-v0"), PHRASES)
    assert not any("action_mask" in info for info in env.reset(seed=0)[1].values())
    assert MaskedObservations(env).reset(seed=0)[0]["builder_0"]["action_mask"].tolist() == [1, 1, 1]
    with pytest.raises(TypeError, match="Discrete"):
        MaskedObservations(make("collm/MiniBuild-v0"))
