"""The state of a privileged critic."""

import copy
import pickle

import pytest
from pettingzoo.test.state_test import state_test
from replies import begun, references

from collm.envs import check_env, make
from collm.envs.games.mini_build import MiniBuild
from collm.envs.views import PrivilegedState, to_aec, with_truth

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pettingzoo")  # it warns of whatever is no array

IDS = ["collm/MiniBuild-v0", "collm/MiniCode-v1", "collm/BridgeBuild-v2", "collm/ResourceGathering-v2"]
every_id = pytest.mark.parametrize("id", IDS)


def episode(env, seed=0):
    observations, _ = env.reset(seed=seed)
    found = [(observations, env.state(), env.unwrapped.truth())]
    while env.agents:
        observations = env.step(references(env))[0]
        found.append((observations, env.state(), env.unwrapped.truth()))
    return found


def test_the_state_by_hand():
    env = begun(PrivilegedState(MiniBuild(max_turns=1, feedback="none")), seed=0)
    (one, wood), (other, stone) = env.unwrapped.goal
    env.step({"builder_0": f"{one} {wood}", "builder_1": f"{other} {'wool' if stone != 'wool' else 'iron'}"})
    goal = f"goal {one} {wood} {other} {stone}"
    first, second = env.unwrapped._site.built  # the moves are applied in a random order
    verdict = {one: "ok", other: "wrong"}
    assert str(env.state()).splitlines() == [
        f"[builder_0 reads] builder 0 {goal}",
        f"[builder_1 reads] builder 1 {goal}",
        "[critic reads] goal 0 of 2",
        f"[builder_0 writes] {one} {wood}",
        f"[builder_1 writes] {other} {'wool' if stone != 'wool' else 'iron'}",
        "[builder_0, builder_1 reads] next",
        f"[critic reads] builder 0 ok builder 1 wrong {first[0]} {verdict[first[0]]} {second[0]} {verdict[second[0]]} "
        "goal 1 of 2",
    ]


@every_id
def test_the_view_keeps_the_contract_and_only_its_state_has_the_truth_which_only_grows(capsys, id):
    env, before = PrivilegedState(make(id)), ()
    for (observed, state, truth), (observed_with, privileged, _) in zip(episode(make(id)), episode(env), strict=True):
        assert observed_with == observed
        assert truth and privileged.messages[-1].content == f"[critic reads] {truth}"
        assert "critic reads" not in "".join(observed.values()) + state
        assert tuple(m for m in privileged.messages if "[critic reads]" not in m.content) == state.messages
        assert env.state_space.contains(privileged)
        assert privileged.messages[: len(before)] == before != privileged.messages
        before = privileged.messages
    check_env(PrivilegedState(make(id)), skip=["hostile_replies"])
    state_test(to_aec(PrivilegedState(make(id))), PrivilegedState(make(id)), num_cycles=3)


def test_hidden_words_are_in_the_state_alone_and_a_branch_goes_its_own_way():
    env = PrivilegedState(MiniBuild(max_turns=4, feedback="none"))
    told = episode(env)
    for observed, *_ in told:
        assert not {"ok", "wrong", "taken"} & set(" ".join(observed.values()).split())
    assert "builder 0 ok builder 1 ok" in told[-1][1] and "goal 8 of 8" in told[-1][1]
    env = PrivilegedState(MiniBuild(max_turns=12, feedback="both", max_observation_length=900))
    states = [state for _, state, _ in episode(env)]
    assert all(env.state_space.contains(state) for state in states)
    assert "goal 24 of 24" in states[-1].messages[-1].content
    with pytest.raises(ValueError, match=r"mini_writing_v2 hides nothing.*critic_input='joint'"):
        with_truth(make("collm/MiniWriting-v2"))
    with pytest.raises(ValueError, match=r"no state\(\)"):
        with_truth(make("gymnasium/CartPole-v1"))
    env = begun(PrivilegedState(MiniBuild(max_turns=3)), seed=1)
    branches = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    env.step(dict.fromkeys(env.agents, "nothing"))
    for branch in branches:
        assert env.state() != branch.state()
        branch.step(dict.fromkeys(branch.agents, "nothing"))
        assert env.state() == branch.state()
