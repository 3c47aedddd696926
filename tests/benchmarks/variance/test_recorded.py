"""Recorded episodes: played again, cut into parts of training, and compared with a table of the team's progress."""

from __future__ import annotations

import numpy as np
import pytest

from collm.benchmarks.variance.recorded import Part, averaged, explained, others_mean, played_again
from collm.envs import make


def test_the_table_leaves_the_episode_itself_out():
    progress = np.array([[0.0], [0.0], [0.5], [0.5], [1.0]])
    to_go = np.array([[1.0], [3.0], [5.0], [7.0], [4.0]])
    assert others_mean(progress, to_go)[:, 0].tolist() == [3, 1, 7, 5, 4], (
        "the last is alone, and gets all others' mean"
    )


def test_progress_that_says_nothing_explains_nothing_and_progress_that_says_all_everything():
    rng = np.random.default_rng(0)
    far = rng.integers(0, 4, size=(4000, 2)) / 4
    noise = rng.normal(size=(4000, 2))
    shares = explained(
        others_mean(far, np.stack([far[:, 0], noise[:, 1]], axis=1))[None], np.stack([far[:, 0], noise[:, 1]], axis=1)
    )
    assert shares[0] == pytest.approx(1) and shares[1] == pytest.approx(0, abs=0.01)


def test_values_of_agents_are_averaged_after_the_explained_variance():
    to_go = np.array([[0.0], [2.0], [4.0]])
    assert explained(np.stack([to_go, np.zeros_like(to_go)]), to_go) == [0.5]


def test_the_actions_of_a_record_are_played_again():
    env, seen = make("collm/MiniShift-v0", max_turns=3), [0.0]
    observations, _ = env.reset(seed=11)
    states, own = [env.state()], [observations["builder_1"]]
    turns = {agent: [] for agent in env.possible_agents}
    for turn in range(3):
        replies = {
            agent: env.unwrapped.reference_reply(agent) if turn != 1 or agent == "builder_0" else ""
            for agent in env.agents
        }
        for agent, reply in replies.items():
            turns[agent].append({"wrote": reply})
        observations, _, _, _, infos = env.step(replies)
        seen.append(next(iter(infos.values()))["metric/quality"])
        states.append(env.state())
        own.append(observations["builder_1"])
    row = {"seed": 11, "agents": {agent: {"turns": own} for agent, own in turns.items()}}
    played = played_again(make("collm/MiniShift-v0", max_turns=3), row)
    assert played.progress == seen[:-1]
    assert seen[1:] == pytest.approx([2 / 6, 3 / 6, 5 / 6])
    assert list(played.joint.histories) == states[:-1] and list(played.own[1].histories) == own[:-1]


def test_runs_weigh_as_the_variance_of_their_returns():
    runs = [[Part((1, 20), 0.5, variance, [share, share], [0.5, 0.5])] for variance, share in ((3.0, 0.4), (1.0, 0.0))]
    assert averaged(runs) == [Part((1, 20), 0.5, 4.0, pytest.approx([0.3, 0.3]), [0.5, 0.5])]
