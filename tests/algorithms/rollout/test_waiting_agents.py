"""The collector asks no policy of a waiting agent, and counts the rewards that the agent gets meanwhile."""

from dataclasses import replace

import numpy as np
import pytest
from waiting_worlds import PLAYERS, TurnGame

from collm.agents.core import Completion, Policy
from collm.algorithms.rollout.collector import Plan, RolloutCollector
from collm.envs.vectors.processes import ProcessVector
from collm.envs.vectors.vector import SyncVector


class Counted(Policy):
    def __init__(self):
        self.asked = []

    def act(self, requests, *, greedy=False):
        self.asked += [request.agent for request in requests]
        numbers = np.full(2, -0.5, np.float32), np.ones(2, np.float32)
        return [Completion(f"{request.agent} at {request.stream[-1]}", *numbers) for request in requests]


def collector(env=TurnGame, **settings):
    return RolloutCollector(SyncVector(env, 2), dict.fromkeys(PLAYERS, Counted()), **settings)


def times(episode):
    return {agent: [turn.time for turn in track] for agent, track in episode.tracks.items()}


def test_waiting_agents_get_no_request_and_no_turn():
    played = collector(reads_state=True)
    (episode,) = played.collect([Plan(0)])
    assert times(episode) == {"player_0": [0, 2], "player_1": [1, 2]}
    assert played.policies["player_0"].asked == ["player_0", "player_1", "player_0", "player_1"]
    assert episode.waiting == {"player_0": {1: 2.0}, "player_1": {0: 2.0}}
    assert episode.team_rewards == [1.5, 1.5, 1.0] and episode.own_return("player_0") == 4.0
    assert [len(actions) for actions in episode.joint_input(PLAYERS, reads_actions=True).actions] == [1, 1, 2]
    assert [turn.completion.action for turn in episode.tracks["player_1"]] == ["player_1 at 1", "player_1 at 2"]


def test_an_agent_that_waits_at_the_end_of_a_cut_episode_is_live():
    played = collector(reads_state=True)
    played.max_turns = 1
    (episode,) = played.collect([Plan(0)])
    assert times(episode) == {"player_0": [0]} and episode.live_agents == PLAYERS
    assert len(episode.joint_input(PLAYERS).histories) == 2
    assert episode.own_input("player_0").histories[-1] == episode.finals["player_0"]


def test_an_agent_may_wait_for_a_whole_episode():
    (episode,) = collector(lambda: TurnGame((("player_0",),))).collect([Plan(0)])
    assert times(episode) == {"player_0": [0, 1]} and episode.own_return("player_1") == 4.0
    assert episode.live_agents == () and episode.team_return == 3.0


def test_the_threshold_of_an_early_end_counts_waiting_agents():
    (episode,) = collector(early_termination_threshold=1.4).collect([Plan(0)])
    assert episode.num_turns == 1 and all(episode.is_terminated.values())


def test_segments_carry_waiting_agents_on():
    played = collector(reads_state=True)
    first, _ = played.collect_turns(1, iter(range(100)))
    assert times(first) == {"player_0": [0]} and first.waiting == {"player_1": {0: 2.0}}
    assert first.live_agents == PLAYERS and not first.is_complete
    resumed = collector(reads_state=True)
    resumed.load_state_dict(played.state_dict())
    for each in (played, resumed):
        second, _ = each.collect_turns(1, iter(range(10, 100)))
        assert times(second) == {"player_1": [0]} and second.waiting == {"player_0": {0: 2.0}}
        last, *_ = each.collect_turns(1, iter(range(20, 100)))
        assert times(last) == {"player_0": [0], "player_1": [0]} and not last.waiting
        assert last.is_complete and last.earlier_return + last.team_return == pytest.approx(4.0)


def test_processes_play_the_same_episodes():
    with ProcessVector(TurnGame, 2, num_workers=1) as vector:
        far = RolloutCollector(vector, dict.fromkeys(PLAYERS, Counted())).collect([Plan(0), Plan(1)])
    near = collector().collect([Plan(0), Plan(1)])
    for one, other in zip(far, near, strict=True):
        assert times(one) == times(other) and one.waiting == other.waiting and one.finals == other.finals


def test_a_version_is_the_oldest_of_the_first_turns():
    (episode,) = collector().collect([Plan(0)])
    newer = tuple(replace(turn, completion=replace(turn.completion, version=3)) for turn in episode.tracks["player_0"])
    assert replace(episode, tracks={**episode.tracks, "player_0": newer}).version == 0
