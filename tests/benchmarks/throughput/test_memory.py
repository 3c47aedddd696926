"""The memory plan against the resident set of real trainings on the CPU, a process each."""

from __future__ import annotations

import sys

import pytest

from collm.benchmarks.throughput.memory import SIZES, measured


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("size", SIZES)
def test_the_plan_is_within_15_percent_of_what_a_training_takes(size):
    found = measured(size)
    assert found["weights"] >= 50e6
    assert found["planned_peak"] == pytest.approx(found["measured_peak"], rel=0.15)
