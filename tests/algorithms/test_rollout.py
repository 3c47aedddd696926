"""Episodes are the same however many copies play them, wherever they play, and whoever is done first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from slow_fakes import Dawdling, Waiting

from collm.agents.core import Completion, Policy
from collm.algorithms import rollout
from collm.algorithms.rollout import Plan, RolloutCollector, grouped_plans
from collm.envs import ProcessVector, SyncVector


class Naming(Policy):
    """Says which random stream it answers with, and what it read."""

    def __init__(self):
        self.sizes = []

    def act(self, requests, *, greedy=False):
        self.sizes.append(len(requests))
        return [Completion(f"{request.stream} {len(request.observation)} {greedy}") for request in requests]


def _played(vector, policy, plans):
    collector = RolloutCollector(vector, dict.fromkeys(vector.possible_agents, policy), reads_state=True)
    return [replace(episode, tracks=_plain(episode)) for episode in collector.collect(plans)]


def _plain(episode):
    """Turns as tuples: completions hold arrays, which do not compare."""
    return {
        agent: tuple((turn.observation, turn.completion.action, turn.reward, turn.time) for turn in track)
        for agent, track in episode.tracks.items()
    }


PLANS = grouped_plans(range(6), 2)


@pytest.fixture(scope="module")
def alone():
    """Twelve episodes played one after the other."""
    with SyncVector(Dawdling, 1, seconds=0) as vector:
        return _played(vector, Naming(), PLANS)


def test_episodes_come_in_the_order_of_their_plans(alone):
    expected = [(index, index // 2, index // 2) for index in range(12)]
    assert [(episode.index, episode.seed, episode.group) for episode in alone] == expected
    assert len({episode.num_turns for episode in alone}) > 1


def test_episodes_do_not_depend_on_the_number_of_copies(alone):
    with SyncVector(Dawdling, 5, seconds=0) as vector:
        assert _played(vector, Naming(), PLANS) == alone


@pytest.mark.parametrize("num_workers", [1, 4])
def test_episodes_do_not_depend_on_who_is_done_first(alone, num_workers):
    with ProcessVector(Dawdling, 5, num_workers=num_workers) as vector:
        assert _played(vector, Naming(), PLANS) == alone


def test_copies_in_this_process_are_decided_for_together():
    policy = Naming()
    with SyncVector(Waiting, 4) as vector:
        RolloutCollector(vector, {"player_0": policy}).collect([Plan(seed) for seed in range(10)])
    assert policy.sizes == [4, 4, 2]


def test_copies_are_decided_for_while_others_step(tmp_path):
    file = tmp_path / "file"

    class Opening(Policy):
        """Lets the first episode wait for a file that it makes when it is asked in the third."""

        def act(self, requests, *, greedy=False):
            seeds = [request.stream[0] for request in requests]
            if 2 in seeds:
                file.touch()
            return [Completion(f"wait for {file}" if seed == 0 else "") for seed in seeds]

    with ProcessVector(Waiting, 2, num_workers=2) as vector:
        episodes = RolloutCollector(vector, {"player_0": Opening()}).collect([Plan(seed) for seed in range(3)])
    assert [(episode.seed, episode.team_return) for episode in episodes] == [(0, 1), (1, 1), (2, 1)]


def test_a_call_that_was_broken_off_leaves_nothing_behind(alone):
    class Failing(Naming):
        def act(self, requests, *, greedy=False):
            if any(request.stream[-1] == 1 for request in requests):
                raise OSError("out of order")
            return super().act(requests, greedy=greedy)

    for make in (SyncVector, ProcessVector):
        with make(Dawdling, 5) as vector:
            with pytest.raises(OSError, match="out of order"):
                _played(vector, Failing(), PLANS)
            assert _played(vector, Naming(), PLANS) == alone


def test_with_patience_all_are_decided_for_together(monkeypatch):
    monkeypatch.setattr(rollout, "PATIENCE", 1e6)
    monkeypatch.setattr(rollout, "GRACE", 1e6)
    policy = Naming()
    with ProcessVector(Dawdling, 4, num_workers=4) as vector:
        _played(vector, policy, PLANS[:1])
        policy.sizes.clear()
        _played(vector, policy, PLANS[:4])
    assert policy.sizes[1] == 8
    assert len(policy.sizes) <= 5
