"""What an update's phases are timed by is what the trainer calls."""

from collm.benchmarks.throughput.update import measure


def test_no_phase_goes_unseen():
    rows = {row.algorithm: row for row in measure("collm/MiniWriting-v2", repeats=1, max_new_tokens=2)}
    for row in rows.values():
        assert min(row.collect, row.forward, row.backward, row.optimizer) > 0
    assert rows["maac"].critic > 0 and rows["maac"].value > 0 and rows["magrpo"].critic == 0
