"""The table of what fits where is the memory plan's, and larger devices never hold less."""

from __future__ import annotations

from pathlib import Path

import pytest

from collm.benchmarks.throughput.growth import fits

DOCS = Path(__file__).parents[4] / "docs"


@pytest.mark.parametrize("page, table", [("gpu.md", fits.table), ("scale.md", fits.shared_table)])
def test_the_page_shows_the_table_that_the_plan_makes_today(page, table):
    assert table() in (DOCS / page).read_text()


@pytest.mark.parametrize("weights", fits.WEIGHTS)
def test_a_larger_device_needs_no_more_offloading(weights):
    for model in fits.MODELS:
        small, large = (fits.cell(model, weights, "small", gpu) for gpu in fits.GPUS)
        assert large != "no" or small == "no"
        assert "--offload" not in large or "--offload" in small or small == "no"
