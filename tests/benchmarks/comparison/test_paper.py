"""The paper's suite: its cells, its scaled form, prompted runs, and the table beside the published numbers."""

from dataclasses import replace
from pathlib import Path

import pytest

from collm._errors import UserError
from collm._terminal import terminal
from collm.algorithms.config import TrainConfig
from collm.algorithms.runs.loggers import read_lines
from collm.benchmarks.commands.benchmark import BenchmarkArguments, chosen_suite
from collm.benchmarks.commands.report import print_table
from collm.benchmarks.comparison.runner import check_jobs
from collm.benchmarks.comparison.suite import jobs, parse_suite, read_suite
from collm.benchmarks.comparison.summaries import summarize
from collm.benchmarks.comparison.worker import work
from collm.benchmarks.report.comparison import Comparison
from collm.benchmarks.report.estimate import estimates
from collm.benchmarks.report.published import published_table
from collm.benchmarks.report.report import lead_lines

PAPER = read_suite(Path("paper"))
PROMPTED = {
    "seeds": [0],
    "budget": {"environment_steps": 8},
    "config": {"rollout_buffer_size": 4, "eval_num_samples": 3},
    "model": {"max_new_tokens": 8, "device": "cpu"},
    "environments": [{"id": "collm/MiniWriting-v2", "name": "write", "score": "return", "max_score": 2.0}],
    "algorithms": [
        {"name": name, "algorithm": "prompted", "model": {"protocol": name}, "published": {"write": [50.0, 12]}}
        for name in ("parallel", "pipeline", "discussion")
    ],
}


def test_every_task_has_every_method_and_its_budget():
    found = {(job.environment, job.algorithm) for job in jobs(PAPER)}
    assert len(found) == 8 * 12 and len(jobs(PAPER)) == 3 * len(found)
    cut = next(job for job in jobs(PAPER) if (job.environment, job.algorithm) == ("StrBuild", "single model, GRPO"))
    assert cut.experiment.env_kwargs == {"variant": "published", "data": "builtin", "single_model": True}
    assert cut.experiment.model.max_new_tokens == 1024 and cut.experiment.config.num_generations == 2
    assert cut.published == {"score": "metric/iou", "max_score": 1.0, "found": [46.1, 411, 10.3]}
    amounts = {job.algorithm: job.budget.amount for job in jobs(PAPER) if job.environment == "TLDR"}
    assert amounts["MAGRPO"] == 8_000 and amounts["CoLLM-CC"] == 20_000


def test_a_scaled_suite_has_two_updates_of_the_data_in_the_package():
    small = jobs(chosen_suite(BenchmarkArguments(suite=Path("paper"), scale=0.01)))
    assert {job.seed for job in small} == {0} and len(small) == 96
    chosen = chosen_suite(BenchmarkArguments(suite=Path("paper"), scale=0.01, seeds=(3, 4)))
    assert {job.seed for job in jobs(chosen)} == {3, 4}
    assert {job.experiment.config.num_updates for job in small} == {2}
    assert {job.experiment.config.eval_num_samples for job in small} == {2}
    assert {job.experiment.env_kwargs.get("data") for job in small} <= {None, "builtin", "generated"}
    assert all("columns" not in job.experiment.env_kwargs for job in small)
    assert {job.experiment.model.max_new_tokens for job in small} == {16}
    half = next(
        job for job in jobs(replace(PAPER, scale=0.5)) if job.algorithm == "MAGRPO" and job.environment == "TLDR"
    )
    assert half.budget.amount == 2_000 and half.experiment.config.max_environment_steps == 2_000


@pytest.fixture(scope="module")
def prompted(tmp_path_factory):
    out = tmp_path_factory.mktemp("prompted")
    found = jobs(parse_suite(PROMPTED))
    check_jobs(found)
    for job in found:
        assert work(job, out / job.directory, lambda *update: None) is None
    return out, found


def test_a_prompted_run_is_one_evaluation(prompted):
    out, found = prompted
    for job in found:
        assert isinstance(job.experiment.config, TrainConfig)
        (row,) = read_lines(out / job.directory / "evaluation.jsonl")
        assert row["update"] == 0 and 0 <= row["evaluation/sampled/return"] <= 1
        assert read_lines(out / job.directory / "metrics.jsonl") == []


def test_the_table_has_scores_costs_and_published_numbers(prompted):
    out, found = prompted
    runs = [summarize(out / job.directory, []) for job in found]
    table = published_table(Comparison(runs))
    assert [row[:2] for row in table.rows] == [["write", job.algorithm] for job in found]
    for run, row in zip(runs, table.rows, strict=True):
        assert float(row[2]) == pytest.approx(100 * run.score() / 2.0, abs=0.05)
        assert row[3] == "50" and row[5] == "12" and row[7] == "-"
        assert float(row[4]) == pytest.approx(run.tokens_per_reply, abs=0.5) and float(row[6]) >= 0
    tokens = {run.algorithm: run.tokens_per_reply for run in runs}
    assert tokens["discussion"] > tokens["parallel"]  # both replies count
    assert not any("never changed" in line for line in lead_lines(Comparison(runs), out, 0))
    assert published_table(Comparison([replace(run, published={}) for run in runs])).rows == []


def test_a_protocol_cannot_be_trained():
    entry = {"algorithm": "marloo", "config": {"num_generations": 4}, "model": {"protocol": "pipeline"}}
    with pytest.raises(UserError, match="protocol='pipeline'"):
        check_jobs(jobs(parse_suite({**PROMPTED, "algorithms": [entry]})))


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ({"model": {"nonsense": 1}}, "nonsense"),
        ({"model_in": {"nowhere": {}}}, "nowhere"),
        ({"budget_in": {"nowhere": {"environment_steps": 1}}}, "nowhere"),
        ({"published": {"nowhere": [1]}}, "nowhere"),
    ],
)
def test_wrong_entries_are_refused(entry, named):
    with pytest.raises(UserError, match=named):
        parse_suite({**PROMPTED, "algorithms": [{"algorithm": "prompted", "name": "p", **entry}]})


def test_estimates_need_neither_the_model_nor_the_data_and_plan_local_models():
    chosen = [job for job in jobs(PAPER) if job.environment == "TLDR" and job.seed == 0]
    rows = {row[1]: row for row in estimates(chosen).rows}
    assert rows["MAGRPO"][2:] == ["Qwen3-1.7B", "2,000", "256", f"{8_000 * 2 * 256 / 1e6:.1f}", "over 51 GiB"]
    assert rows["parallel"][3] == "0" and rows["CoLLM-DC"][6] == "over 101 GiB"
    table = {**PROMPTED, "algorithms": [{"algorithm": "magrpo", "config": {"num_generations": 4}}]}
    ((*_, memory),) = estimates(jobs(parse_suite(table))).rows
    assert memory.endswith(" GiB") and not memory.startswith("over")


def test_estimates_count_the_turns_and_the_agents(capsys):
    build = {"id": "collm/MiniBuild-v0", "name": "build", "kwargs": {"max_turns": 4}}
    table = {"seeds": [0], "budget": {"environment_steps": 320_000_000}, "model": {"max_new_tokens": 8}}
    entries = {"config": {"rollout_buffer_size": 8}, "environments": [build], "algorithms": [{"name": "magrpo"}]}
    found = estimates(jobs(parse_suite({**table, **entries})))
    ((*_, updates, _, millions, _),) = found.rows
    assert (updates, millions) == ("10,000,000", "5120.0")  # 8 episodes of 4 turns per update; 2 agents
    print_table(found, terminal(width=60))
    assert "10,000,000 │" in capsys.readouterr().out


@pytest.mark.parametrize(("weights", "method", "memory"), [("adapters", "MAGRPO", 3), ("shared", "CoLLM-CC", 51)])
def test_the_least_memory_counts_a_shared_model_once(weights, method, memory):
    """1.7e9 weights: 2 bytes of a frozen base model, 16 of one that learns, such as a centralized critic."""
    changed = replace(PAPER, model={**PAPER.model, "weights": weights})
    chosen = [job for job in jobs(changed) if (job.environment, job.algorithm) == ("TLDR", method)]
    ((*_, found),) = estimates(chosen).rows
    assert found == f"over {memory} GiB"
