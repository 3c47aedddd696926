import pytest
from recorded import made_summary

from collm.benchmarks.report.comparison import Comparison
from collm.benchmarks.report.tables import at_an_end, collapses, search


def run(name, returns, end, *, algorithm="maac", seed=0, **config):
    held_out = {f"evaluation/{how}/return": end for how in ("sampled", "greedy")}
    curves = {"update": list(range(1, len(returns) + 1)), "return": returns}
    settings = {"algorithm": algorithm, "env_kwargs": {"max_turns": 12}, "config": {"seed": seed, **config}}
    return made_summary(name, "cross", seed, curves, [dict.fromkeys(held_out, 0.0), held_out], **settings)


def test_the_best_trial_and_its_open_ends():
    runs = [
        run(name, [0.0, score + 0.1 * seed], 0.5, seed=seed, agent_learning_rate=rate, trace=trace, discount=1.0)
        for name, score, rate, trace in (("a", 0.2, 1e-4, 0.0), ("b", 0.4, 2e-4, 0.5), ("c", 0.6, 4e-4, 1.0))
        for seed in (0, 1)
    ]
    runs.append(run("d", [0.0, 0.3], 0.5, algorithm="magrpo", num_generations=8))
    first, second = search(Comparison(runs)).rows
    assert first[:3] == ["maac, cross", "3", "c"]
    assert first[3].interval.value == pytest.approx(0.65)
    assert first[3].interval.high == 1.0  # the environment pays 1 at most
    assert first[4:] == ["agent_learning_rate 0.0004, trace 1.0", "agent_learning_rate greatest"]
    assert second == ["magrpo, cross", "1", "d", "0.300 (one run)", "-", "none"]
    varied = {"width": [None, 128], "steps": [2, 4, 8], "estimator": ["td", "gae"]}
    assert at_an_end({"width": None, "steps": 4, "estimator": "td"}, varied) == []
    assert at_an_end({"width": 128, "steps": 2, "estimator": "gae"}, varied) == ["width greatest", "steps least"]


def test_a_run_collapsed_if_it_ends_below_half_of_its_best_fifth():
    """The best two of ten updates have a mean of 0.8."""
    returns = [0.1, 0.2, 0.9, 0.7, 0.4, 0.0, 0.0, 0.0, 0.0, 0.0]
    lost, held = run("a", returns, 0.39), run("a", returns, 0.41, seed=1)
    assert lost.has_collapsed and not held.has_collapsed
    assert not run("a", [0.9, 0.9], 0.0).has_collapsed  # too short to have a fifth
    table = collapses(Comparison([lost, held, run("b", returns, 0.8)]))
    assert table.rows == [["a", "1 of 2", "50%"], ["b", "0 of 1", "0%"]]
    assert not collapses(Comparison([held])).rows
