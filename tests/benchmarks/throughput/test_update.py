from collm.benchmarks.throughput.update import measure


def test_all_phases_are_timed():
    rows = measure("collm/MiniWriting-v2", repeats=1, max_new_tokens=2)
    for row in rows.values():
        assert min(row[phase] for phase in ("collect", "forward", "backward", "optimizer")) > 0
    assert rows["maac"]["critic"] > 0 and rows["maac"]["value"] > 0 and rows["magrpo"]["critic"] == 0
