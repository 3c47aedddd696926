"""Scripted partners in place of agents."""

from copy import deepcopy

import pytest
from replies import begun, steps_of

from collm.envs import make

ID = "collm/MiniBuild-v0"


def episode(env, seed=3):
    rewards = [earned for _, earned, *_ in steps_of(env, seed=seed)]
    return rewards, str(env.state())


def test_a_reference_or_empty_partner_plays_as_the_reference_or_an_empty_reply_does():
    alone, joint = episode(make(ID, partners={"builder_1": "reference"}))
    together, same = episode(make(ID))
    assert joint == same
    assert [set(each) for each in alone] == [{"builder_0"}] * len(alone)
    assert [each["builder_0"] for each in alone] == [each["builder_0"] for each in together]
    env = make(ID, partners={"builder_0": "empty"})
    plain = make(ID)
    env.reset(seed=5), plain.reset(seed=5)
    while env.agents:
        reply = env.unwrapped.reference_reply("builder_1")
        rewards, expected = env.step({"builder_1": reply})[1], plain.step({"builder_0": "", "builder_1": reply})[1]
        assert rewards["builder_1"] == expected["builder_1"]
    assert not plain.agents


def test_a_random_partner_is_a_function_of_the_seed_and_a_copy_asks_its_own_world():
    env = make(ID, partners={"builder_1": "random"})
    assert episode(env, 3) == episode(env, 3) == episode(make(ID, partners={"builder_1": "random"}), 3)
    assert episode(env, 3)[1] != episode(env, 4)[1]
    env = begun(make(ID, partners={"builder_1": "reference"}), seed=3)
    env.step({"builder_0": ""})
    twin = deepcopy(env)
    env.step({"builder_0": env.unwrapped.reference_reply("builder_0")})
    silent = [twin.step({"builder_0": ""}) for _ in range(2)]
    assert str(twin.state()) != str(env.state()) and len(silent) == 2


@pytest.mark.parametrize(
    ("id", "partners", "message"),
    [
        (ID, {"builder_7": "random"}, "'builder_7'"),
        (ID, {"builder_1": "clever"}, "'clever'"),
        (ID, {"builder_0": "empty", "builder_1": "empty"}, "all agents"),
        (ID, {}, "got {}"),
        ("mpe2.simple_spread_v3:parallel_env", {"agent_1": "reference"}, "no reference player"),
    ],
)
def test_impossible_partners_are_refused(id, partners, message):
    with pytest.raises(ValueError, match=message):
        make(id, partners=partners)
