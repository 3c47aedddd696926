"""Bands: full credit inside, ramps at both sides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collm.envs.writing.documents.grounding import Band

LENGTHS = Band(1.0, 2.0, 3.0, 5.0)


@pytest.mark.parametrize(
    ("value", "credit"),
    [(0.99, 0), (1.0, 0), (1.5, 0.5), (2.0, 1), (2.5, 1), (3.0, 1), (4.0, 0.5), (5.0, 0), (5.01, 0)],
)
def test_credit_by_hand(value, credit):
    assert LENGTHS.credit(value) == pytest.approx(credit)


@pytest.mark.parametrize(("value", "is_inside"), [(0.99, False), (1.0, True), (3.0, True), (5.0, True), (5.01, False)])
def test_the_outer_ends_are_inside(value, is_inside):
    assert (value in LENGTHS) == is_inside


def test_a_band_can_be_open_above():
    assert Band(1.3, 2.0).credit(1e9) == 1


def test_a_band_can_be_without_a_ramp():
    assert [Band(1, 1, 2, 2).credit(value) for value in (0.9, 1, 2, 2.1)] == [0, 1, 1, 0]


@given(st.floats(allow_nan=False))
def test_credit_lies_between_0_and_1_and_is_0_outside(value):
    assert 0 <= LENGTHS.credit(value) <= 1
    assert value in LENGTHS or LENGTHS.credit(value) == 0


def test_corners_out_of_order_are_refused():
    with pytest.raises(ValueError, match="corners must ascend"):
        Band(2.0, 1.0)
