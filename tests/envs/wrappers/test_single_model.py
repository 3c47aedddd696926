"""The single-model baseline."""

import pytest
from replies import begun, references, steps_of

from collm.envs import make
from collm.envs.players import scripted_player
from collm.envs.wrappers import SingleModel
from collm.envs.wrappers.single_model import MARKER

TEXTS = ["collm/MiniShift-v0", "collm/MiniBuild-v0", "collm/StrBuild-v2", "collm/HouseBuild-v2", "collm/TLDR-v2"]


def played(env, replies, seed=4):
    steps = list(steps_of(env, replies, seed=seed))
    total = sum(sum(rewards.values()) for _, rewards, *_ in steps) / len(env.possible_agents)
    return total, next(iter(steps[-1][4].values()))


@pytest.mark.parametrize("id", TEXTS)
def test_the_references_in_one_reply_earn_what_the_team_earns(id):
    assert played(make(id, single_model=True), references) == played(make(id), references)


def test_it_reads_what_each_member_reads_and_what_all_read_once():
    team, one = make("collm/MiniBuild-v0", max_turns=2), make("collm/MiniBuild-v0", max_turns=2, single_model=True)
    opening, (single,) = team.reset(seed=3)[0], one.reset(seed=3)[0].values()
    for agent, observation in opening.items():
        assert f"{agent} reads] {observation.messages[0].content}" in single or f"{agent}, " in single
    reply = references(one)
    told = team.step(references(team))[0]
    (single,) = one.step(reply)[0].values()
    assert single.messages[-2].content == next(iter(reply.values())), "its own reply stands before what it is told"
    for agent, observation in told.items():
        assert f"{agent} reads] {observation.messages[-1].content}" in single.messages[-1].content or "," in single
    team, one = (make("collm/MiniShift-v0", reward="terminal", single_model=single) for single in (False, True))
    first = played(team, lambda env: {**references(env), "builder_1": ""})
    assert played(one, lambda env: {"writer_0": references(env)["writer_0"].split(MARKER)[0]}) == first
    whole = played(team, references)
    assert played(one, lambda env: {"writer_0": f"{references(env)['writer_0']}{MARKER}more"}) == whole


def test_its_reference_is_a_scripted_player_and_impossible_environments_are_refused():
    env = begun(make("collm/MiniShift-v0", single_model=True), seed=1)
    assert scripted_player(env, "reference")("writer_0", None) == env.reference_reply("writer_0")
    with pytest.raises(ValueError, match="at least two agents"):
        SingleModel(make("collm/MiniShift-v0", partners={"builder_1": "empty"}))
    with pytest.raises(ValueError, match="text environment"):
        SingleModel(make("gymnasium/CartPole-v1"))
