"""Updates of several ranks equal those of one process: gradients, metrics, episodes."""

import functools
import itertools

import numpy as np
import pytest
import ranked
from ranked import NAMES, NUM_EPISODES, QUICK, WEIGHTS, Case, critics_of

ALL = [Case(n, w, c) for n, w in itertools.product(NAMES, WEIGHTS) for c in critics_of(n)]
ALL += [Case(n, w, c, is_text=False) for n, w in itertools.product(NAMES, WEIGHTS[:2]) for c in critics_of(n)]
WORDS = (("critic_model_name_or_path", "bag_of_words"),)
FITTED = [Case(n, WEIGHTS[0], "v", settings=WORDS, num_updates=2) for n in ("iac", "maac")]
# Every algorithm with every kind of weights, and the kinds of critics in turn.
PRODUCT = [Case(n, w, critics_of(n)[i % len(critics_of(n))]) for n in NAMES for i, w in enumerate(WEIGHTS)]


@functools.cache
def by_one(case):
    """Result of one process, with replicated weights and without recomputation."""
    settings = tuple(setting for setting in case.settings if setting not in ranked.FSDP)
    return ranked.trained(case._replace(settings=settings, recomputes=False))


def check(case, ranks):
    """Check that all ranks are equal, and equal to one process up to rounding."""
    one = by_one(case)
    for other in ranks[1:]:
        np.testing.assert_equal(other.metrics, ranks[0].metrics)
        assert other.said == ranks[0].said
        assert all(np.array_equal(a, b) for a, b in zip(other.weights, ranks[0].weights, strict=True))
    assert ranks[0].gradients.keys() == one.gradients.keys() and one.gradients
    for number, expected in one.gradients.items():
        # Some gradients cancel up to rounding, which a relative tolerance does not bound.
        largest = max(np.abs(theirs).max() for theirs in expected if theirs is not None)
        limit = min(1e-6 * max(1, largest), max(1e-5 * largest, 1e-8))
        for mine, theirs in zip(ranks[0].gradients[number], expected, strict=True):
            assert (mine is None) == (theirs is None)
            if mine is not None:
                np.testing.assert_allclose(mine, theirs, rtol=0, atol=limit)
    first = len(one.said) // case.num_updates
    assert ranks[0].said[:first] == one.said[:first]
    mine, theirs = dict(ranks[0].metrics[0]), dict(one.metrics[0])
    assert mine.keys() == theirs.keys()
    # AdamW's first step is the sign of the gradient. If the gradient is almost 0, rounding decides it, and later steps
    # of a critic may differ.
    assert mine.pop("critic_grad_norm", 0) == pytest.approx(theirs.pop("critic_grad_norm", 0), rel=1e-3, abs=2e-4)
    assert mine == pytest.approx(theirs, rel=1e-3, abs=1e-4, nan_ok=True)


@pytest.mark.parametrize("number", range(len(QUICK)), ids=lambda n: "-".join(map(str, QUICK[n][:3])))
def test_two_ranks_learn_what_one_process_learns(pair, number):
    check(QUICK[number], [rank["updates"][number] for rank in pair])


def check_all(size, cases):
    found = ranked.results(ranked.all_trained, size, cases)
    for number, case in enumerate(cases):
        check(case, [rank[number] for rank in found])


@pytest.mark.slow
@pytest.mark.parametrize("size", [4, 2])
def test_ranks_learn_what_one_process_learns_whatever_the_algorithm(size):
    check_all(size, ALL + FITTED + [case._replace(waits=True) for case in PRODUCT])


@pytest.mark.slow
@pytest.mark.parametrize("size, fsdp, recomputes", [(4, True, True), (2, True, False), (2, False, True)])
def test_so_do_ranks_that_share_weights_or_recompute_activations(size, fsdp, recomputes):
    changed = {"settings": ranked.FSDP if fsdp else (), "recomputes": recomputes}
    check_all(size, [case._replace(**changed) for case in PRODUCT])


@pytest.mark.parametrize("number", [0, 1], ids=["all weights", "adapters"])
def test_critics_in_shares_value_learn_and_are_saved_as_whole_ones(number, pair):
    for rank in pair:
        differences, scale = rank["critics"][number]
        assert scale > 0.01
        assert max(differences.values()) < 1e-6 * max(1, scale)


def test_ranks_share_weights_moments_and_episodes(pair):
    assert [rank["updates"][0].num_played for rank in pair] == [NUM_EPISODES // 2 * QUICK[0].num_updates] * 2
    for number, case in enumerate(QUICK):
        kept = [rank["updates"][number].num_kept / by_one(case).num_kept for rank in pair]
        if ("fsdp", True) in case.settings:
            assert all(0.5 <= share < 0.52 for share in kept)
        else:
            assert kept == [1, 1]
