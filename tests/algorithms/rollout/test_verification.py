"""A collector that says it has played what it has not is found out, whatever it says; an honest one never is."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from probes import AGENTS, NumberProbe, TextProbe, word_policy

from collm.agents.numeric.policy import NumericPolicy
from collm.algorithms.rollout.collector import RolloutCollector
from collm.algorithms.rollout.plays import grouped_plans
from collm.algorithms.rollout.requests import RolloutRequest
from collm.algorithms.rollout.verification import Verifier
from collm.envs.vectors.vector import SyncVector


def collector(is_text, seed=0):
    world = TextProbe if is_text else NumberProbe
    env = world("delayed")
    if is_text:
        team = {agent: word_policy(seed + i, max_new_tokens=2) for i, agent in enumerate(AGENTS)}
    else:
        spaces = env.observation_space(AGENTS[0]), env.action_space(AGENTS[0])
        team = {agent: NumericPolicy.for_spaces(*spaces, seed=seed + i) for i, agent in enumerate(AGENTS)}
    return RolloutCollector(SyncVector(lambda: world("delayed"), 2), team, reads_state=True)


def weights_of(each):
    return {
        agent: {name: value.clone() for name, value in policy.state_dict().items()}
        for agent, policy in each.policies.items()
    }


ORDER = RolloutRequest(update=7, version=5, plans=tuple(grouped_plans([11, 12], 2)), first=28)


def played(is_text=True):
    """An order, the weights that are to play it, and what came of it."""
    honest = collector(is_text)
    honest.version = ORDER.version
    return weights_of(honest), honest.play(ORDER.share(), len(ORDER.plans))


def with_turn(result, change):
    """With another last turn of the first agent in the second episode."""
    episode = result.done[1]
    track = episode.tracks[AGENTS[0]]
    changed = {**episode.tracks, AGENTS[0]: (*track[:-1], change(track[-1]))}
    return result._replace(done=[result.done[0], replace(episode, tracks=changed), *result.done[2:]])


def with_completion(result, **changes):
    return with_turn(result, lambda turn: replace(turn, completion=replace(turn.completion, **changes)))


def with_episode(result, **changes):
    return result._replace(done=[replace(result.done[0], **changes), *result.done[1:]])


@pytest.mark.parametrize("is_text", [True, False])
def test_what_was_played_as_ordered_is_fine(is_text):
    weights, result = played(is_text)
    verifier = Verifier(collector(is_text, seed=30), 1.0)  # other weights, until it is given the order's
    assert verifier(ORDER, weights, ORDER.share(), result) is None
    lost = result._replace(done=[each for each in result.done if each.group == 0], lost={1})
    assert verifier(ORDER, weights, ORDER.share(), lost) is None


TOLD = {
    "a better reward": (lambda r: with_turn(r, lambda turn: replace(turn, reward=5.0)), r"pays .* not 5"),
    "a return of earlier turns": (lambda r: with_episode(r, earlier_return=1.0), "other earlier_return"),
    "an infos that flatters": (lambda r: with_episode(r, infos=({"metric/hit": 1.0},) * 3), "other infos"),
    "an end that was none": (
        lambda r: with_episode(r, is_terminated=dict.fromkeys(AGENTS, False)),
        "other is_terminated",
    ),
    "other log-probabilities": (
        lambda r: with_turn(
            r, lambda t: replace(t, completion=replace(t.completion, logprobs=t.completion.logprobs - 0.2))
        ),
        "wrong by 0.2 nats",
    ),
    "no numbers": (
        lambda r: with_turn(
            r, lambda t: replace(t, completion=replace(t.completion, logprobs=t.completion.logprobs * np.nan))
        ),
        "wrong by nan nats",
    ),
    "an action that was not played": (lambda r: with_completion(r, action="purple"), "other states"),
    "tokens that do not say its action": (
        lambda r: with_turn(
            r,
            lambda t: replace(
                t,
                completion=replace(
                    t.completion,
                    tokens=replace(t.completion.tokens, completion_ids=(t.completion.tokens.completion_ids + 1) % 5),
                ),
            ),
        ),
        "other tokens of speaker_0 in turn 3",
    ),
    "weights of another version": (lambda r: with_completion(r, version=3), "by version 5 .*|by version 3"),
    "another seed": (lambda r: with_episode(r, seed=99), "was not ordered"),
    "an episode that nobody asked for": (lambda r: with_episode(r, index=5), "was not ordered"),
    "one episode less": (lambda r: r._replace(done=r.done[1:]), "episode 28 is missing"),
    "an episode that is cut short": (
        lambda r: with_episode(r, tracks={agent: track[:1] for agent, track in r.done[0].tracks.items()}),
        "ends before",
    ),
}


@pytest.mark.parametrize("lie", TOLD)
def test_a_lie_is_found_out_and_named(lie):
    tell, expected = TOLD[lie]
    weights, result = played()
    problem = Verifier(collector(True), 1.0)(ORDER, weights, ORDER.share(), tell(result))
    assert problem is not None
    assert re.search(expected, problem), problem


def test_episodes_of_other_weights_than_ordered_are_found_out():
    _, result = played()
    other = weights_of(collector(True, seed=30))
    assert "log-probabilities" in Verifier(collector(True), 1.0)(ORDER, other, ORDER.share(), result)


def test_only_a_share_is_looked_at():
    weights, result = played()
    lied = with_turn(result, lambda turn: replace(turn, reward=5.0))
    assert Verifier(collector(True), 0.0)(ORDER, weights, ORDER.share(), lied) is None
