from collm.agents.core import Request
from collm.agents.scripted import RandomPolicy, fixed_policy, reference_policy
from collm.algorithms.rollout.collector import Plan, RolloutCollector
from collm.envs import OpenText, SyncVector


def played(policy_of):
    vector = SyncVector("collm/MiniBuild-v0", 1)
    collector = RolloutCollector(vector, dict.fromkeys(vector.possible_agents, policy_of(vector.envs[0])))
    return collector.collect([Plan(seed) for seed in range(3)])


def test_the_reference_player_reaches_the_maximum_and_a_fixed_reply_is_always_the_same():
    assert [episode.team_return for episode in played(reference_policy)] == [1.0] * 3
    episodes = played(lambda env: fixed_policy(""))
    assert {turn.completion.action for e in episodes for track in e.tracks.values() for turn in track} == {""}
    assert all(episode.team_return == 0 for episode in episodes)


def test_random_actions_are_in_the_space_and_depend_on_the_stream_only():
    policy = RandomPolicy({"a_0": OpenText(30)})
    requests = [Request("a_0", "", (0, i, 0, 0)) for i in range(20)]
    first = [answer.action for answer in policy.act(requests)]
    again = [answer.action for answer in policy.act(requests[::-1])][::-1]
    assert first == again
    assert len(set(first)) > 1
    assert all(reply in OpenText(30) for reply in first)
