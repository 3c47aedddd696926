"""The sandbox's cost beside that of other ways to run code."""

from __future__ import annotations

import pytest

from collm.benchmarks.throughput import sandbox


def test_each_way_to_run_code_runs_it_and_is_compared_with_the_sandbox():
    rows = {row.name: row for row in sandbox.measure(num_runs=1, num_rounds=1)}
    assert set(rows) == set(sandbox._CONTENDERS)
    assert rows["sandbox"].times_the_sandbox == 1
    for row in rows.values():
        assert row.times_the_sandbox == pytest.approx(row.cpu_ms / rows["sandbox"].cpu_ms)
