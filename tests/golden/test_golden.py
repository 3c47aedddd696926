"""Trainings end in the bits of the golden record, in one piece and resumed; `traps.md` says what each cell guards."""

from __future__ import annotations

import pytest
from golden import record
from golden.cells import CELLS, NUM_RANKS, QUICK
from golden.play import play, play_all
from ranked import results

SINGLE = [name for name, cell in CELLS.items() if cell.num_ranks == 1]
ON_RANKS = [name for name, cell in CELLS.items() if cell.num_ranks == NUM_RANKS]


@pytest.fixture(scope="module")
def recorded():
    return record.load()


def check(found, recorded):
    """Compare entries with the record, exactly if the arithmetic is the recorded one."""
    lines, others = [], set()
    for name, entry in found.items():
        expected = recorded["cells"][name]
        other = record.differing_arithmetic(expected.get("arithmetic", recorded["arithmetic"]))
        factor = 10.0 if "bfloat16" in name else 1.0
        differing = record.differences(entry, expected, is_exact=not other, factor=factor)
        lines += [f"{name}: {line}" for line in differing]
        others.update(other)
    assert lines == []
    if others:
        pytest.skip(
            f"metrics agree to {record.TOLERANCES}, hashes need the recorded arithmetic: {'; '.join(sorted(others))}"
        )


@pytest.mark.parametrize("name", QUICK)
def test_a_training_ends_in_the_recorded_bits(name, recorded, tmp_path):
    check({name: play(CELLS[name], tmp_path)}, recorded)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SINGLE if name not in QUICK])
def test_another_training_of_one_process_ends_in_the_recorded_bits(name, recorded, tmp_path):
    check({name: play(CELLS[name], tmp_path)}, recorded)


@pytest.mark.slow
def test_trainings_of_two_ranks_end_in_the_recorded_bits(recorded, tmp_path):
    check(results(play_all, NUM_RANKS, ON_RANKS, tmp_path)[0], recorded)


def test_the_record_has_every_cell_and_no_other(recorded):
    assert sorted(recorded["cells"]) == sorted(CELLS)
    assert record.PATH.stat().st_size < 300_000


def test_a_difference_is_read_from_the_names_and_numbers(recorded):
    entry = recorded["cells"]["iac-own-default"]
    first, second, third = entry["shown"]["grad_norm"]
    assert first is None, "only critics learn"
    other = {**entry, "policies": "0", "shown": {**entry["shown"], "grad_norm": [None, second * 1.03, third * 1.01]}}
    lines = record.differences(other, entry, is_exact=True)
    assert [line.partition(":")[0] for line in lines] == ["policies", *(f"grad_norm of update {n}" for n in (2, 3))]
    (line,) = record.differences(other, entry, is_exact=False)
    assert line.startswith("grad_norm of update 2")
    (line,) = record.differences(
        {**entry, "shown": {**entry["shown"], "grad_norm": [first, None, third]}}, entry, is_exact=False
    )
    assert line.startswith("grad_norm of update 2") and line.endswith("became None")


def test_another_arithmetic_is_named(recorded):
    here = record.arithmetic()
    assert record.differing_arithmetic(here) == []
    (line,) = record.differing_arithmetic({**here, "torch": "0.1"})
    assert line.startswith("torch '0.1'")
