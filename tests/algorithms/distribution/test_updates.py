"""Updates by several ranks are those of one process: gradients, metrics, episodes; one spawned pair for all of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import ranked
from ranked import NAMES, NUM_EPISODES, QUICK, WEIGHTS, Case

from collm.algorithms import algorithm_spec
from collm.algorithms.config import ActorCriticConfig, IACConfig


def critics_of(name):
    config = algorithm_spec(name).config
    if not issubclass(config, ActorCriticConfig):
        return ("none",)
    return ("v", "q", "head") if issubclass(config, IACConfig) else ("v", "q")


ALL = [Case(n, w, c) for n, w in itertools.product(NAMES, WEIGHTS) for c in critics_of(n)]
ALL += [Case(n, w, c, is_text=False) for n, w in itertools.product(NAMES, WEIGHTS[:2]) for c in critics_of(n)]


def check(case, one, ranks):
    """All ranks are equal, and are like one process."""
    for other in ranks[1:]:
        np.testing.assert_equal(other.metrics, ranks[0].metrics)
        assert other.said == ranks[0].said
        assert all(np.array_equal(a, b) for a, b in zip(other.weights, ranks[0].weights, strict=True))
    assert ranks[0].gradients.keys() == one.gradients.keys() and one.gradients
    for number, expected in one.gradients.items():
        for mine, theirs in zip(ranks[0].gradients[number], expected, strict=True):
            assert (mine is None) == (theirs is None)
            if mine is not None:
                np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-6 * max(1, np.abs(theirs).max()))
    first = len(one.said) // case.num_updates
    assert ranks[0].said[:first] == one.said[:first]
    assert ranks[0].metrics[0].keys() == one.metrics[0].keys()
    # AdamW's first step is the gradient's sign, also where rounding decides it: later updates may go apart.
    assert ranks[0].metrics[0] == pytest.approx(one.metrics[0], rel=1e-3, abs=1e-4, nan_ok=True)


@pytest.mark.parametrize("number", range(len(QUICK)), ids=lambda n: "-".join(map(str, QUICK[n][:3])))
def test_two_ranks_learn_what_one_process_learns(pair, number):
    case = QUICK[number]
    check(case, ranked.trained(case), [rank["updates"][number] for rank in pair])


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_ranks_learn_what_one_process_learns_whatever_the_algorithm(size):
    found = ranked.results(ranked.all_trained, size, ALL)
    for number, case in enumerate(ALL):
        check(case, ranked.trained(case), [rank[number] for rank in found])


def test_each_rank_plays_its_share_of_the_episodes(pair):
    assert [rank["updates"][0].num_played for rank in pair] == [NUM_EPISODES // 2 * QUICK[0].num_updates] * 2
