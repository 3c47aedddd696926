"""Numbers of passes, summed by hand, and what is refused of them."""

from __future__ import annotations

import math

import pytest
import torch

from collm.agents.core import Divergence
from collm.algorithms.learning.metrics import Tally, check_finite


def test_a_tally_sums_by_name_with_weights_and_keeps_the_largest_of_what_is_compared():
    tally = Tally()
    tally.add("loss", torch.tensor(3.0))
    tally.add("loss", torch.tensor(-1.0, requires_grad=True), 0.5)
    tally.compare("error", torch.tensor(-4.0))
    tally.compare("error", torch.tensor(-8.0))
    tally.add("other", torch.tensor(7.0), 2.0)
    assert tally.read() == ({"loss": 2.5, "other": 14.0}, {"error": -4.0})
    assert Tally().read() == ({}, {})


def test_a_tally_adds_up_in_64_bits():
    tally = Tally()
    for number in (2.0**24, 1.0, 1.0):
        tally.add("tokens", torch.tensor(number))
    assert tally.read().sums == {"tokens": 2.0**24 + 2}


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_the_first_number_that_is_not_finite_is_named(number):
    check_finite({"a": 1.0, "b": 0.0}, [])
    with pytest.raises(Divergence, match=r"policy_loss is (nan|inf|-inf)"):
        check_finite({"a": 1.0, "policy_loss": number, "c": number}, [])
