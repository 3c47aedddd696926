"""Environment faults name agent, episode and turn; a limited number of episodes may be skipped."""

import pytest
from faulty_worlds import AGENTS, TURN, Losing, Numbers, Texts

from collm.agents.scripted import fixed_policy
from collm.algorithms.rollout.collector import Plan, RolloutCollector
from collm.envs import EnvironmentFault, EnvSpec, ProcessVector, SyncVector

NO_NUMBERS = {"none": "None", "text": "'good'", "digits": "'1'", "complex": "1j", "list": "[1.0]"}
NOT_FINITE = ("nan", "inf", "-inf")
PARTS = ("reward", "observation", "termination", "truncation")
EITHER = {
    **{f"lacks a {part}": ("b_0", f"step returned no entry for 'b_0' in {part}s") for part in PARTS},
    **{f"reward {word}": ("b_0", f"the reward of 'b_0' is {word}, but must be a finite") for word in NOT_FINITE},
    "termination none": ("b_0", "terminations of 'b_0' is None, but must be a bool"),
    "truncation text": ("b_0", "truncations of 'b_0' is 'no', but must be a bool"),
    "a stranger": ("z_0", "'z_0' is not in possible_agents=['a_0', 'b_0']"),
    "infos none": (None, "infos must be a dict, got None"),
    "info text": (None, "infos of 'b_0' must be a dict, got 'fine'"),
    "metric text": ("b_0", "the value of 'metric/words' in infos of 'b_0' is 'many', but must be a number"),
    "rewards list": (None, "rewards must be a dict, got [0.5, 0.5]"),
    "four values": (None, "step must return (observations, rewards, terminations, truncations, infos), got a tuple of"),
    "no value": (None, "step must return (observations, rewards, terminations, truncations, infos), got None"),
    "observation none": ("b_0", "the observation of 'b_0' is None, but must be "),
}
TEXTS = {
    **{f"reward {kind}": (None, f"'b_0' the reward {word}, which is not a") for kind, word in NO_NUMBERS.items()},
    "reward array": (None, "step raised TypeError: only"),
    "reward lacks an agent": (None, "play() gave no reward to 'b_0'"),
    "observation number": ("b_0", "the observation of 'b_0' is 3, but must be text"),
    "step raises": (None, "step raised ZeroDivisionError: a fault of the author (faulty_worlds.py, line "),
    "step exits": (None, "step raised SystemExit: 3 (faulty_worlds.py, line "),
    "play returns a number": (None, "play() must return an Outcome, got float: 1.0"),
    "play returns nothing": (None, "play() must return an Outcome, got NoneType: None"),
    "feedback is a number": (None, "texts for 'b_0' must be a string or a sequence of messages, got int: 3"),
    "feedback to a stranger": (None, "play() gave feedback to 'z_0', which is not one of ['a_0', 'b_0']"),
    "state raises": (None, "state raised RuntimeError: no state"),
    "state is a number": (None, "the state is 5, but must be text"),
}
NUMBERS = {
    **{f"reward {kind}": ("b_0", f"the reward of 'b_0' is {word}, but") for kind, word in NO_NUMBERS.items()},
    "reward array": ("b_0", "the reward of 'b_0' is array([1., 1.]), but must be a finite number"),
    "observation text": ("b_0", "the observation of 'b_0' is 'hello', but must be numbers of shape (3,)"),
    "observation number": ("b_0", "the observation of 'b_0' has the shape (), but its space has (3,)"),
    "observation nan": ("b_0", "the observation of 'b_0' has numbers that are not finite: array([ 0., nan, 0.]"),
    "observation inf": ("b_0", "the observation of 'b_0' has numbers that are not finite: array([ 0., inf, 0.]"),
    "observation of four": ("b_0", "the observation of 'b_0' has the shape (4,), but its space has (3,)"),
    "observation of another shape": ("b_0", "the observation of 'b_0' has the shape (3, 1), but its space has (3,)"),
    "observation ragged": ("b_0", "the observation of 'b_0' is [[1.0], [1.0, 2.0]], but must be numbers of shape (3,)"),
}
RESETS = {
    (Texts, "reset raises"): "reset raised KeyError: 'no post' (faulty_worlds.py, line ",
    (Texts, "deal lacks an agent"): "deal() must return one prompt for each of ['a_0', 'b_0']; wrong or missing: {'b_",
    (Texts, "deal returns text"): "deal() must return a dict agent -> prompt, got str: 'hello'",
    (Texts, "deal returns a number"): "texts for 'a_0' must be a string or a sequence of messages, got int: 7",
    (Numbers, "reset returns observations alone"): "reset must return (observations, infos), got {'a_0': array(",
    (Numbers, "reset returns no agent"): "reset returned no observation, but an episode needs at least one agent",
}
SOUND = ["sound", "reward 1e30", "reward int", "reward float32", "reward bool"]
TABLE = [
    *((world, kind, expected) for kind, expected in EITHER.items() for world in (Texts, Numbers)),
    *((Texts, kind, expected) for kind, expected in TEXTS.items()),
    *((Numbers, kind, expected) for kind, expected in NUMBERS.items()),
]


def collector(world, kind, vector=None, **settings):
    policy = fixed_policy("hello" if world is Texts else 1)
    vector = vector or SyncVector(EnvSpec(f"test/{world.__name__}-v0", world), 2, kind=kind)
    return RolloutCollector(vector, dict.fromkeys(AGENTS, policy), reads_state=world is Texts, **settings)


@pytest.mark.parametrize(("world", "kind", "expected"), TABLE, ids=lambda each: getattr(each, "__name__", str(each)))
def test_a_fault_is_named_with_its_agent_episode_and_turn(world, kind, expected):
    agent, words = expected
    made = collector(world, kind)
    made.next_index = 40
    with pytest.raises(EnvironmentFault) as caught:
        made.collect([Plan(7), Plan(8)])
    fault = caught.value
    assert words in str(fault)
    assert "\n" not in str(fault)
    named = f", agent {agent}" if agent else ""
    assert str(fault).startswith(f"test/{world.__name__}-v0, episode 40, seed 7{named}, turn {TURN}: ")
    assert (fault.agent, fault.episode, fault.seed, fault.turn) == (agent, 40, 7, TURN)
    reply = "hello" if world is Texts else 1
    assert fault.course.actions == [dict.fromkeys(AGENTS, reply)] * TURN


@pytest.mark.parametrize(("world", "kind"), RESETS)
def test_a_fault_of_a_reset_is_named(world, kind):
    with pytest.raises(EnvironmentFault) as caught:
        collector(world, kind).collect([Plan(7)])
    assert RESETS[world, kind] in str(caught.value)
    assert str(caught.value).startswith(f"test/{world.__name__}-v0, episode 0, seed 7")
    assert caught.value.turn == 0


def test_a_fault_in_a_segment_and_an_agent_that_joins_again_are_named():
    made = collector(Texts, "step raises")
    made.next_index = 40
    with pytest.raises(EnvironmentFault, match="episode 40, seed 3, turn 2: step raised ZeroDivisionError"):
        made.collect_turns(9, iter(range(3, 99)))
    with pytest.raises(EnvironmentFault, match="agent b_0, turn 4: 'b_0' has left the episode and joins it again"):
        collector(Numbers, "joins again").collect([Plan(7)])


@pytest.mark.parametrize("world", [Texts, Numbers])
@pytest.mark.parametrize("kind", SOUND)
def test_what_is_no_fault_is_played(world, kind):
    episodes = collector(world, kind).collect([Plan(7), Plan(8)])
    assert [[len(track) for track in each.tracks.values()] for each in episodes] == [[4, 3], [4, 3]]
    assert all(type(turn.reward) is float for each in episodes for track in each.tracks.values() for turn in track)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["step raises", "step exits", "reward nan"])
def test_a_fault_in_a_worker_process_reads_the_same(kind):
    vector = ProcessVector(EnvSpec("test/Texts-v0", Texts), 1, kind=kind)
    messages = []
    for made in (collector(Texts, kind, vector), collector(Texts, kind)):
        with pytest.raises(EnvironmentFault) as caught:
            made.collect([Plan(7)])
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


class Unlucky(Texts):
    """One task of ten ends its process."""

    def deal(self, task):
        if task == "bad":
            self.kind = "dies"
        return super().deal(None)


def test_an_episode_that_fails_twice_is_left_out_with_its_group():
    with ProcessVector(Unlucky, 2, num_workers=2) as vector:
        made = collector(Texts, "", vector)
        plans = [Plan(seed, group=seed // 2, task="bad" if seed == 3 else "good") for seed in range(6)]
        episodes = made.collect(plans)
        assert [episode.seed for episode in episodes] == [0, 1, 4, 5]
        assert [fault.seed for fault in made.skipped] == [3]
        assert "episode 3, seed 3, turn 2" in str(made.skipped[0])


@pytest.mark.parametrize(("num_plans", "num_skipped"), [(4, 1), (15, 1), (20, 2), (39, 3)])
def test_one_episode_may_be_given_up_or_a_tenth_of_them_and_no_more(num_plans, num_skipped):
    plans = [Plan(seed, group=seed) for seed in range(num_plans)]
    bad = {1 + 2 * number for number in range(num_skipped)}
    made = collector(Texts, "", Losing(bad))
    assert [each.seed for each in made.collect(plans)] == sorted(set(range(num_plans)) - bad)
    assert sorted(fault.seed for fault in made.skipped) == sorted(bad)
    assert all(fault.episode == fault.seed for fault in made.skipped)
    with pytest.raises(EnvironmentFault, match=r"episode (\d+), seed \1.*: gave up"):
        collector(Texts, "", Losing(bad | {0})).collect(plans)
    assert [each.index for each in made.collect([Plan(40), Plan(41)])] == [num_plans, num_plans + 1]
    assert made.skipped == []


def test_a_group_that_lost_a_rollout_is_left_out_and_where_none_is_left_the_fault_is_raised():
    plans = [Plan(seed, group=seed // 2) for seed in range(6)]
    assert [each.seed for each in collector(Texts, "", Losing({3})).collect(plans)] == [0, 1, 4, 5]
    with pytest.raises(EnvironmentFault, match=r"episode 1, seed 7.*: gave up"):
        collector(Texts, "", Losing({7})).collect([Plan(6), Plan(7), Plan(8)])
    assert collector(Texts, "", Losing({7})).collect([]) == []
