"""Texts as numbers and back."""

import numpy as np
import pytest
from gymnasium.spaces import Box, MultiDiscrete
from heard import Heard
from hypothesis import given
from hypothesis import strategies as st

from collm.envs.views import ByteCodec, GymAsParallel, TokenActions, TokenObservations, WordCodec


def heard():
    return Heard(prompt="abé")


@given(st.text(max_size=30), st.lists(st.integers(0, 255), max_size=20))
def test_texts_survive_bytes_and_any_bytes_are_a_text(text, ids):
    codec = ByteCodec()
    assert codec.decode(codec.encode(text)) == text
    assert isinstance(codec.decode(ids), str)


def test_observations_are_the_newest_bytes_scaled_bytes_or_a_bag_of_words():
    env = TokenObservations(heard(), 8, "multi_discrete")
    assert env.observation_space("a_0") == MultiDiscrete([257] * 8)
    observations, _ = env.reset(seed=0)
    assert observations["a_0"].tolist() == [0, 0, 0, *(byte + 1 for byte in "abé\n".encode())]
    short = TokenObservations(heard(), 2, "multi_discrete")
    assert short.reset(seed=0)[0]["a_0"].tolist() == [0xA9 + 1, 11]
    ids, floats = TokenObservations(heard(), 8, "multi_discrete"), TokenObservations(heard(), 8)
    assert floats.observation_space("a_0") == Box(0.0, 1.0, (8,), np.float32)
    expected = (ids.reset(seed=0)[0]["a_0"] / 256).astype(np.float32)
    assert np.array_equal(floats.reset(seed=0)[0]["a_0"], expected)
    env = TokenObservations(heard(), 2, "bag", WordCodec(["abé", "say", "no"]))
    assert env.observation_space("a_0") == Box(0.0, 1.0, (3,), np.float32)
    assert env.seen("a_0", "say no abé abé no").tolist() == [1.0, 0.0, 1.0]
    assert env.seen("a_0", "no abé").tolist() == env.seen("a_0", "abé no").tolist()
    assert env.seen("a_0", "").tolist() == [0.0, 0.0, 0.0]
    codec = WordCodec(["red", "green"])
    assert codec.encode("green or red") == [1, 0]
    assert codec.decode([1, 0, 1]) == "green red green"
    for words in ([], ["a", "a"], ["a b"], [""]):
        with pytest.raises(ValueError, match="WordCodec"):
            WordCodec(words)


def test_actions_are_read_up_to_the_stop_id_and_a_view_may_be_one_agents_alone():
    env = TokenActions(heard(), 4, WordCodec(["red", "green"]))
    assert env.action_space("a_0") == MultiDiscrete([3] * 4)
    env.reset(seed=0)
    env.step({"a_0": np.array([1, 0, env.stop_id, 1]), "b_0": [env.stop_id] * 4})
    assert env.unwrapped.heard == {"a_0": "green red", "b_0": ""}
    assert TokenActions(heard(), 2).acted("a_0", [ord("o"), ord("k")]) == "ok"
    env = TokenActions(TokenObservations(heard(), 8, agents=["a_0"]), 2, agents=["a_0"])
    observations, _ = env.reset(seed=0)
    assert (type(observations["a_0"]), observations["b_0"]) == (np.ndarray, "abé\n")
    env.step({"a_0": [env.stop_id] * 2, "b_0": "text"})
    assert env.unwrapped.heard == {"a_0": "", "b_0": "text"}


def test_impossible_settings_are_refused():
    for view, kwargs, message in [
        (TokenObservations, {"length": 0}, r"length.*got 0"),
        (TokenActions, {"length": 0}, r"length.*got 0"),
        (TokenObservations, {"length": 8, "kind": "floats"}, "'floats'"),
        (TokenActions, {"agents": ["c_0"]}, "c_0"),
    ]:
        with pytest.raises(ValueError, match=message):
            view(heard(), **kwargs)
        with pytest.raises(TypeError, match="needs texts"):
            view(GymAsParallel("CartPole-v1"))
