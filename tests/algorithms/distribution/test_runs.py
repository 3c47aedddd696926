"""Run folders of several ranks equal those of one process, and each can resume the other's run."""

import pytest
import ranked
import torch
from safetensors.torch import load_file

from collm.algorithms.runs.checkpoint import newest_checkpoint, newest_update
from collm.algorithms.runs.loggers import read_lines
from collm.algorithms.runs.run import run_experiment

FILES = ".collm agents checkpoints config.json critics episodes.jsonl evaluation.jsonl metrics.jsonl".split()


def measured(directory, name="metrics.jsonl"):
    rows = read_lines(directory / name)
    return [{key: row[key] for key in row if not any(part in key for part in ranked.CLOCK)} for row in rows]


@pytest.fixture(scope="module")
def by_one(tmp_path_factory):
    directory = tmp_path_factory.mktemp("one") / "run"
    run_experiment(ranked.experiment(3), directory)
    return directory


def test_two_ranks_and_one_process_go_on_with_each_other_s_runs(pair, folder, by_one):
    assert pair[0]["runs"][0] == pair[1]["runs"][0] == [FILES, FILES]
    rows = read_lines(folder / "by two" / "episodes.jsonl")
    assert [row["index"] for row in rows] == list(range(2 * 4))
    assert [row["update"] for row in measured(folder / "by one, then two")] == [1, 2, 3]
    check_like(folder / "by one, then two", by_one)
    run_experiment(ranked.experiment(3), folder / "by two", resume=True)
    check_like(folder / "by two", by_one)


def test_models_are_saved_whole_and_a_signal_to_one_rank_stops_all(pair, folder):
    run = folder / "then" / "by two"
    learner = newest_checkpoint(run).trainer["learners"]["writer_0"]["policy"]
    saved = load_file(run / "agents" / "writer_0" / "model.safetensors")
    assert saved
    assert all(torch.equal(weight, learner[f"model.{name}"]) for name, weight in saved.items())
    message, status = pair[0]["stopped"]
    assert pair[1]["stopped"] == (message, status) and status == 128 + 15
    update = int(message.split()[3].rstrip(";"))
    assert newest_update(folder / "stopped") == update == len(measured(folder / "stopped"))


@pytest.mark.slow
def test_ranks_with_whole_weights_write_what_those_write_that_share_them(folder, pair, by_one, tmp_path):
    run_experiment(ranked.experiment(2), tmp_path / "by one, then two")
    first, second = ranked.results(ranked.runs, 2, tmp_path, False)
    assert first == second and first[0] == [FILES, FILES]
    for name, (is_same, metrics) in first[1].items():
        assert is_same
        check_next(metrics, ranked.next_update(tmp_path / "then" / name)[1])
    check_like(tmp_path / "by one, then two", by_one)


def check_next(found, expected):
    """Check that metrics of one update are equal up to rounding; `logprob_error` consists of rounding."""
    errors = [numbers["logprob_error"] for numbers in (found, expected)]
    assert max(errors) < 1e-5
    known = {"logprob_error": errors[0]}
    assert found == pytest.approx(expected | known, rel=1e-4, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize("name", ["by two", "by one, then two"])
def test_a_checkpoint_of_any_number_of_ranks_is_the_same_and_the_next_update_up_to_rounding(name, pair, folder):
    """Saved by two ranks with sharded weights, or by one process; loaded by both."""
    by_one = ranked.next_update(folder / "then" / name)
    by_two = pair[0]["runs"][1][name]
    assert by_one[0] and by_two[0]
    check_next(by_two[1], by_one[1])


def check_like(directory, expected):
    """Compare the records; a prolonged run has an additional evaluation at its first end."""
    for mine, theirs in zip(measured(directory), measured(expected), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-3, abs=1e-4)
    first, last = (measured(each, "evaluation.jsonl") for each in (directory, expected))
    assert [row["update"] for row in first] == [0, 2, 3]
    for mine, theirs in ((first[0], last[0]), (first[2], last[1])):
        assert mine == pytest.approx(theirs, rel=1e-3, abs=1e-4)
