"""Inputs of critics, infos of joint turns, plans and segments, by hand."""

import numpy as np

from collm.agents.core import Completion
from collm.algorithms.rollout.episode import Episode, Turn
from collm.algorithms.rollout.plays import Plan, grouped_plans
from collm.envs.core import Message, written
from collm.envs.wrappers.recording import mean_info

STATES = ("both begin", "after one", "after two")


def turn(observation, action, time, reward=1.0):
    return Turn(observation, Completion(action), reward, time)


def played(actions, *, ends=(True, True), states=STATES):
    """Episode of two agents; the second one leaves after the first turn."""
    first, second, third = actions
    tracks = {"a": (turn("a0", first, 0), turn("a1", second, 1, 2.0)), "b": (turn("b0", third, 0),)}
    finals = {"a": "a2", "b": "b1"}
    return Episode(0, 7, 0, tracks, states, finals, dict(zip("ab", ends, strict=True)), ({}, {}))


def test_critics_read_the_last_history_where_that_bootstraps():
    texts = played(["x", "y", "z"], ends=(False, True)).own_input("a", reads_actions=True)
    assert texts.histories == ("a0", "a1", "a2") and [each.action for each in texts.completions] == ["x", "y"]
    assert texts.actions == ((Message("assistant", "x", "a"),), (Message("assistant", "y", "a"),))
    assert played([0, 1, 2]).own_input("a", reads_actions=True).actions == (0, 1)
    for ends, num_histories in (((True, True), 2), ((False, True), 3), ((True, False), 2), ((False, False), 3)):
        episode = played(["x", "y", "z"], ends=ends)
        assert episode.live_agents == (("a",) if num_histories == 3 else ())
        assert episode.joint_input(["a", "b"]).histories == STATES[:num_histories]
        assert episode.joint_input(["a", "b"]).actions == ()


def test_joint_actions_are_in_the_order_of_the_agents_with_gaps_for_who_has_left():
    texts = played(["x", "y", "z"]).joint_input(["b", "a"], reads_actions=True)
    assert texts.actions == ((written("b", "z"), written("a", "x")), (written("a", "y"),))
    vectors = played([np.array([1.0]), np.array([2.0]), np.array([3.0])]).joint_input(["b", "a"], reads_actions=True)
    assert vectors.actions == ((np.array([3.0]), np.array([1.0])), (None, np.array([2.0])))
    alone = Episode(0, 0, 0, {"a": (turn("a0", 5, 0),)}, STATES, {}, {"a": True}, ({},))
    assert alone.joint_input(["a"], reads_actions=True).actions == (5,)  # one agent: no tuple


def test_plans_and_infos_by_hand():
    assert Plan(3).options() is None and Plan(3).group == 0
    assert Plan(3, task=0).options() == {"task": 0}
    assert grouped_plans([7, 8], 2) == [Plan(7, 0), Plan(7, 0), Plan(8, 1), Plan(8, 1)]
    infos = {
        "a": {"reward/hit": 1, "metric/size": 4.0, "note": "x", "rewards": 9.0},
        "b": {"reward/hit": 2, "metrics/size": 7.0},
        "c": {},
    }
    assert mean_info(infos) == {"reward/hit": 1.5, "metric/size": 4.0}
    assert mean_info({}) == {}
