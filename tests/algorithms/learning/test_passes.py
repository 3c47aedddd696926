"""How many tokens a forward pass of learning may have."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from probes import Dealer

from collm.agents.batching import default_max_tokens, micro_batches
from collm.algorithms import IACConfig
from collm.algorithms.distribution.group import member
from collm.algorithms.learning.passes import dealt, tokens_per_pass

CPU = torch.device("cpu")


@pytest.mark.parametrize("asked", [None, 1, 255, 4096])
def test_a_pass_has_as_many_tokens_as_the_settings_say_or_as_suit_the_device(asked):
    assert tokens_per_pass(IACConfig(max_batch_tokens=asked), CPU) == (asked or default_max_tokens(CPU))


@pytest.mark.parametrize("asked", [None, 2048, 2049, 4096])
def test_with_deterministic_a_pass_has_2048_tokens_whatever_memory_there_is(asked):
    assert tokens_per_pass(IACConfig(max_batch_tokens=asked, deterministic=True), CPU) == 2048


def test_with_deterministic_less_memory_than_a_pass_needs_is_refused():
    with pytest.raises(ValueError, match="max_batch_tokens is 2047; raise it to 2048"):
        tokens_per_pass(IACConfig(max_batch_tokens=2047, deterministic=True), CPU)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=20), st.integers(1, 5), st.integers(1, 60))
def test_every_item_counts_on_one_rank_and_all_ranks_make_equally_many_passes(sizes, num_ranks, limit):
    own = []
    for rank in range(num_ranks):
        with member(Dealer(rank, num_ranks)):
            own.append(dealt(lambda most: list(micro_batches(sizes, range(len(sizes)), most)), sum(sizes), limit))
    counted = [item for passes in own for each in passes if each.weight for item in each.items]
    assert sorted(counted) == list(range(len(sizes)))
    assert len({len(passes) for passes in own}) == 1


def test_one_pass_is_cut_where_there_are_two_ranks_and_not_where_there_is_one():
    def cut(limit):
        return list(micro_batches([4, 4, 4, 4], range(4), limit))

    assert dealt(cut, 16, 100) == [([0, 1, 2, 3], 1.0)]
    with member(Dealer(1, 2)):
        assert dealt(cut, 16, 100) == [([2, 3], 1.0)]
    with member(Dealer(4, 5)):
        assert dealt(cut, 16, 100) == [([0], 0.0)]  # there are fewer items than ranks


def test_where_there_are_fewer_passes_than_ranks_tokens_are_shared_out_evenly_and_rounded_up():
    asked = []

    def cut(limit):
        asked.append(limit)
        return [[0]]

    with member(Dealer(0, 2)):
        dealt(cut, 5, 100)
    assert asked == [100, 3]


@pytest.mark.parametrize(("num_passes", "own"), [(2, [([0], 1.0)]), (4, [([0], 1.0), ([2], 1.0)])])
def test_as_many_passes_as_ranks_or_more_stay_as_they_were_cut(num_passes, own):
    asked = []

    def cut(limit):
        asked.append(limit)
        return [[item] for item in range(num_passes)]

    with member(Dealer(0, 2)):
        assert dealt(cut, 5, 100) == own
    assert asked == [100]
