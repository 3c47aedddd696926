"""Credit fidelity: exact advantages by hand, and the command."""

import json

import numpy as np
import pytest

from collm.algorithms.rollout.collector import RolloutCollector, grouped_plans
from collm.algorithms.rollout.intervals import bootstrap_interval, widening
from collm.benchmarks.cli import main
from collm.benchmarks.comparison.credit import GAMES, ExactAdvantages, Fidelity, ReplyTable, measure, write
from collm.envs import make
from collm.envs.games.talk.tiny_hanabi import ACTIONS, payoffs
from collm.envs.vectors.vector import SyncVector


def played(name, num_episodes):
    game = GAMES[name]
    vector = SyncVector(lambda: make(game.id, **game.kwargs), 4)
    policies = {agent: ReplyTable(game.replies, seat) for seat, agent in enumerate(vector.possible_agents)}
    episodes = RolloutCollector(vector, policies).collect(grouped_plans(range(num_episodes), 1))
    return policies, episodes, ExactAdvantages(make(game.id, **game.kwargs).unwrapped, policies)


def test_exact_advantages_in_tiny_hanabi_by_hand():
    policies, episodes, exact = played("TinyHanabi", 8)
    for episode in episodes:
        (first,), (second,) = episode.tracks.values()
        env = make("collm/TinyHanabi-v0", game="E").unwrapped
        env.reset(seed=episode.seed)
        pays = payoffs("E")[env._cards[0]][env._cards[1]]
        chances = list(policies["builder_0"].probabilities(first.observation).values())
        values = []
        for number, action in enumerate(ACTIONS):
            env.reset(seed=episode.seed)
            seen = env.step({"builder_0": action})[0]["builder_1"]
            later = policies["builder_1"].probabilities(seen).values()
            values.append(sum(chance * pay / 10 for chance, pay in zip(later, pays[number], strict=True)))
        chosen = ACTIONS.index(first.completion.action)
        mean = sum(chance * value for chance, value in zip(chances, values, strict=True))
        rewards = [pay / 10 for pay in pays[chosen]]
        later = policies["builder_1"].probabilities(second.observation).values()
        above = rewards[ACTIONS.index(second.completion.action)] - values[chosen]
        assert sum(later) == pytest.approx(1)
        found = exact.of_episode(episode)
        assert found == {"builder_0": pytest.approx([values[chosen] - mean]), "builder_1": pytest.approx([above])}


def test_exact_advantages_have_mean_0_over_an_agent_s_replies():
    policies, episodes, exact = played("MiniShift", 3)
    for episode in episodes:
        before = {agent: turns[0].observation for agent, turns in episode.tracks.items()}
        joint = {agent: turns[0].completion.action for agent, turns in episode.tracks.items()}
        env = make(GAMES["MiniShift"].id, **GAMES["MiniShift"].kwargs).unwrapped
        env.reset(seed=episode.seed)
        for agent, seen in before.items():
            chances = policies[agent].probabilities(seen)
            values = {reply: exact.value(env, (episode.seed,), {**joint, agent: reply}) for reply in chances}
            mean = sum(chance * values[reply] for reply, chance in chances.items())
            assert exact.of_episode(episode)[agent][0] == pytest.approx(values[joint[agent]] - mean)


def test_an_unbiased_baseline_has_a_higher_correlation_than_the_maximum_of_the_group():
    found = {name: [measure(name, "TinyHanabi", seed, 4) for seed in range(3)] for name in ("maremax", "marloo")}
    correlations = {name: [each.correlation for each in every] for name, every in found.items()}
    assert 0 < sum(correlations["maremax"]) < sum(correlations["marloo"]) - 0.05 < 3
    assert all(each.environment_steps == each.tokens == 2 * 96 for each in found["marloo"])


def test_intervals_over_three_seeds_are_wider_than_their_range(tmp_path):
    scores = (0.497, 0.519, 0.707)
    results = [Fidelity("rae", "TinyHanabi", seed, score, 2.0, 2.0) for seed, score in enumerate(scores)]
    table = write([*results, Fidelity("coma", "TinyHanabi", 0, 0.5, 2.0, 2.0)], tmp_path)
    expected = bootstrap_interval(scores, is_widened=True)
    assert expected.low == pytest.approx(np.mean(scores) - widening(3, 1, 0.95) * (np.mean(scores) - 0.497))
    assert f"| `rae` | {expected} |" in table and "| `coma` | 0.500 |" in table
    assert expected.low < 0.4 and expected.high > 0.8


@pytest.mark.slow
def test_the_command_writes_a_table_and_a_figure(tmp_path, capsys):
    call = "benchmark credit --algorithms magrpo coma --games TinyHanabi --seeds 0 1 --num-updates 4 --out"
    assert main([*call.split(), str(tmp_path)]) == 0
    assert "| `coma` | 0." in capsys.readouterr().out
    assert len(json.loads((tmp_path / "credit.json").read_text())) == 4
    assert (tmp_path / "credit.png").stat().st_size > 5000
    call = "benchmark credit --algorithms rae --games TinyHanabi --seeds 0 --num-updates 4 --out"
    assert main([*call.split(), str(tmp_path)]) == 0
    assert len(json.loads((tmp_path / "credit.json").read_text())) == 5  # earlier results are kept
