"""The memory plan against the resident set of real trainings on the CPU, a process each."""

import sys

import pytest
from resident import SIZES, measured

from collm.algorithms.rollout.side_by_side import num_cores

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


@pytest.mark.parametrize("size", SIZES)
def test_the_plan_is_within_15_percent_of_what_a_training_takes(size):
    found = measured(size)
    assert found["weights"] >= 50e6
    assert found["planned_peak"] == pytest.approx(found["measured_peak"], rel=0.15)


@pytest.mark.skipif(num_cores() < 2, reason="models learn side by side where there are cores for both")
@pytest.mark.parametrize("settings", [["own"], ["own", "critics"]])
def test_the_plan_holds_for_models_that_learn_side_by_side(settings):
    found = measured("50M", settings)
    assert "update of writer_0 and writer_1" in found["planned"]
    assert ("update of critic of writer_0 and critic of writer_1" in found["planned"]) is ("critics" in settings)
    # If other processes use the cores, the two models' peaks do not coincide.
    assert 0.85 <= found["planned_peak"] / found["measured_peak"] <= 1.3
