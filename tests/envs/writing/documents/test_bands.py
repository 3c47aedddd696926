"""Trapezoid functions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collm.envs.writing.documents.grounding import Band

LENGTHS = Band(1.0, 2.0, 3.0, 5.0)


@pytest.mark.parametrize(
    ("value", "credit", "is_inside"),
    [
        *((0.99, 0, False), (1.0, 0, True), (1.5, 0.5, True), (2.0, 1, True), (2.5, 1, True), (3.0, 1, True)),
        *((4.0, 0.5, True), (5.0, 0, True), (5.01, 0, False)),
    ],
)
def test_credit_by_hand(value, credit, is_inside):
    assert LENGTHS.credit(value) == pytest.approx(credit)
    assert (value in LENGTHS) == is_inside


def test_a_band_may_be_open_above_or_without_ramps_and_its_corners_ascend():
    assert Band(1.3, 2.0).credit(1e9) == 1
    assert [Band(1, 1, 2, 2).credit(value) for value in (0.9, 1, 2, 2.1)] == [0, 1, 1, 0]
    with pytest.raises(ValueError, match="ascending"):
        Band(2.0, 1.0)


@given(st.floats(allow_nan=False))
def test_credit_lies_between_0_and_1_and_is_0_outside(value):
    assert 0 <= LENGTHS.credit(value) <= 1
    assert value in LENGTHS or LENGTHS.credit(value) == 0
