"""Metrics of episodes by hand."""

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from cases import case
from interests_worlds import Dilemma
from waiting_worlds import TurnGame

from collm.agents.core import Completion
from collm.agents.encoding import TokenRecord
from collm.agents.scripted import FunctionPolicy
from collm.algorithms.rollout.collector import Plan, RolloutCollector
from collm.algorithms.rollout.episode import Episode, Turn
from collm.algorithms.rollout.summary import episode_metrics
from collm.envs.vectors.vector import SyncVector


def turn(reward, logprobs, entropies, time, *, is_cut=False, is_extension=None):
    tokens = None if is_extension is None else TokenRecord(np.zeros(1, int), np.zeros(1, int), is_extension, "")
    numbers = np.array(logprobs, np.float32), np.array(entropies, np.float32)
    return Turn("", Completion("", *numbers, is_cut, tokens), reward, time)


def played(rewards, infos, *, earlier=0.0, is_complete=True, **track):
    """Episode of two agents with equal rewards; the second agent is scripted."""
    own = [turn(reward, time=time, **track) for time, reward in enumerate(rewards)]
    scripted = [turn(reward, [], [], time) for time, reward in enumerate(rewards)]
    ends = dict.fromkeys(("a", "b"), True)
    tracks = {"a": tuple(own), "b": tuple(scripted)}
    return Episode(0, 0, 0, tracks, (), {}, ends, tuple(infos), is_complete, earlier)


@case("return", "return_std", "num_episodes", "reward/*", "metric/*", "turns", "completion_tokens", "entropy")
@case("cut_share", "reencoded_share")
def test_means_over_episodes_by_hand():
    infos = [{"reward/hit": 1.0, "metric/size": 3.0}, {"reward/hit": 2.0, "metric/size": 8.0}]
    short = {"logprobs": [-1.0], "entropies": [0.5]}
    long = {"logprobs": [-1.0, -2.0, -1.0], "entropies": [1.0, 2.0, 1.0]}
    episodes = [
        played([1.0, 2.0], infos, is_extension=True, **short),
        played([4.0], [{"metric/size": 1.0}], earlier=2.0, is_cut=True, is_extension=False, **long),
        played([100.0] * 3, [{}] * 3, is_complete=False, is_extension=False, **short),
    ]
    assert episode_metrics(episodes) == pytest.approx(
        {
            "num_episodes": 2,
            "return": (3 + 6) / 2,
            "return_std": 1.5,
            "equal_returns": 0.0,
            "constant_sum": 0.0,
            "reward/hit": 3.0,
            "metric/size": (5.5 + 1) / 2,
            "turns": (2 + 1 + 3) / 3,
            "completion_tokens": (1 + 1 + 3 + 1 + 1 + 1) / 6,
            "entropy": (0.5 + 0.5 + 4.0 + 0.5 + 0.5 + 0.5) / 8,
            "cut_share": 1 / 6,
            "reencoded_share": 2 / 3,
        }
    )
    only_cut = episode_metrics(episodes[2:])
    assert only_cut["num_episodes"] == 0 and "return" not in only_cut
    assert "reencoded_share" not in episode_metrics([played([1.0], [{}], **short)])


@case("equal_returns")
@pytest.mark.parametrize(
    ("returns_by_group", "share"),
    [
        ([[0.0, 0.0], [1.0, 1.0]], 1.0),  # equal within each group
        ([[0.0, 0.0], [1.0, 0.0]], 0.5),
        ([[0.3, 0.1 + 0.2], [1.0, 0.0], [2.0]], 0.5),  # a group of one is left out
        ([[0.0], [0.0], [0.0]], 1.0),  # tasks played once are one group
        ([[0.0], [0.0], [1e-3]], 0.0),
        ([[1.0]], None),
    ],
)
def test_groups_of_equal_returns_are_counted_by_hand(returns_by_group, share):
    episodes = [
        replace(played([value], [{}], logprobs=[-1.0], entropies=[0.5]), group=number)
        for number, returns in enumerate(returns_by_group)
        for value in returns
    ]
    assert episode_metrics(episodes).get("equal_returns") == share
    unfinished = [replace(each, is_complete=False) for each in episodes]
    assert "equal_returns" not in episode_metrics(unfinished)


def of_two(group, *own, earlier=0.0):
    tracks = {agent: (turn(reward, [], [], 0),) for agent, reward in zip("ab", own, strict=True)}
    earlier_returns = dict.fromkeys("ab", earlier)
    return Episode(
        0, 0, group, tracks, (), {}, dict.fromkeys("ab", True), ({},), True, earlier, 2, earlier_returns=earlier_returns
    )


@case("return/*", "welfare/*")
def test_means_of_agents_by_hand():
    """Earlier segments count, and segments of unfinished episodes do not."""
    episodes = [of_two(0, 3.0, 1.0), of_two(0, 0.0, 0.0, earlier=1.0), replace(of_two(0, 9.0, 9.0), is_complete=False)]
    found = {
        kind: {name: value for name, value in episode_metrics(episodes, interests=kind).items() if "/" in name}
        for kind in ("common", "mixed", "opposed")
    }
    own = {"return/a": 2.0, "return/b": 1.0}
    measures = {"welfare/sum": 3.0, "welfare/minimum": 1.0, "welfare/nash_product": 2.0, "welfare/gini": 2 / 12}
    assert found["common"] == {} and found["opposed"] == own and found["mixed"] == pytest.approx(own | measures)


def test_segments_have_the_returns_of_each_agent():
    """`turns_per_update` ends segments in an episode; the returns of its last segment are of the whole episode."""
    team = {"player_0": FunctionPolicy(lambda agent, seen: "keep"), "player_1": FunctionPolicy(lambda *_: "share")}
    collector = RolloutCollector(SyncVector(lambda: Dilemma(max_turns=3), 1), team)
    segments = [each for _ in range(3) for each in collector.collect_turns(2, count())]
    assert [each.own_returns["player_0"] for each in segments] == [10.0, 15.0, 5.0, 15.0]
    assert [each.is_complete for each in segments] == [False, True, False, True]
    assert [each.own_returns["player_1"] for each in segments] == [0.0] * 4
    assert episode_metrics(segments, interests="mixed")["return/player_0"] == 15.0
    assert collector.vector.interests == "mixed"


@case("constant_sum", "equal_returns")
@pytest.mark.parametrize(
    ("episodes", "constant_sum", "equal_team", "equal_own"),
    [
        ([of_two(0, 1.0, -1.0), of_two(0, -1.0, 1.0)], 1.0, 1.0, 0.0),  # matching pennies
        ([of_two(0, 3.0, 1.0), of_two(0, 1.0, 3.0), of_two(1, 2.0, 2.0), of_two(1, 2.0, 2.0)], 0.5, 1.0, 0.5),
        ([of_two(0, 1.0, -1.0), of_two(0, 1.0, -1.0)], 0.0, 1.0, 1.0),
        ([of_two(0, 1.0, 1.0), of_two(0, 2.0, 2.0)], 0.0, 0.0, 0.0),
        ([of_two(0, 0.3, 0.3), of_two(0, 0.1 + 0.2, 0.3)], 0.0, 1.0, 1.0),  # equal up to rounding
        # Equal returns, one of which is partly from an earlier segment.
        ([of_two(0, 1.0, 1.0), of_two(0, 0.25, 0.25, earlier=0.75)], 0.0, 1.0, 1.0),
        # The agents' returns differ only in an earlier segment.
        ([replace(of_two(0, 0.0, 0.0), earlier_returns={"a": x, "b": -x}) for x in (1.0, -1.0)], 1.0, 1.0, 0.0),
    ],
)
def test_equal_team_returns_with_unequal_own_ones_are_a_constant_sum_by_hand(
    episodes, constant_sum, equal_team, equal_own
):
    for credited, equal in (("team", equal_team), ("own", equal_own)):
        metrics = episode_metrics(episodes, credited)
        assert (metrics["constant_sum"], metrics["equal_returns"]) == (constant_sum, equal)


def test_returns_of_agents_count_rewards_while_they_wait():
    """In `TurnGame`, player 0 acts in turns 0 and 2, and each player earns 1 if it acts, and 2 if it waits."""

    class Mixed(TurnGame):
        interests = "mixed"

    collector = RolloutCollector(
        SyncVector(Mixed, 1), dict.fromkeys(("player_0", "player_1"), FunctionPolicy(lambda *_: "a"))
    )
    (episode,) = collector.collect([Plan(0)])
    assert episode.own_returns == {"player_0": 1.0 + 2.0 + 1.0, "player_1": 2.0 + 1.0 + 1.0}
    segments = RolloutCollector(collector.vector, collector.policies).collect_turns(2, count())
    assert [each.own_returns["player_0"] for each in segments] == [3.0]
