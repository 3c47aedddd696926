"""The GPU plan runs end to end with tiny shapes, keeps every result, goes on where it was, and counts by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from taped import Taped

from collm.agents.language import model as language_model
from collm.benchmarks.commands import throughput
from collm.benchmarks.errors import UserError
from collm.benchmarks.throughput import timing
from collm.benchmarks.throughput.gpu import decoding, laws, plan
from collm.benchmarks.throughput.gpu.decoding import roofline
from collm.benchmarks.throughput.gpu.machine import Limits
from collm.benchmarks.throughput.gpu.results import Part, Results, Setting
from collm.benchmarks.throughput.gpu.shapes import LARGE, MIDDLE, SMALL, TINY, random_model, random_prompts
from collm.benchmarks.throughput.timing import Spread

CPU = torch.device("cpu")


TRY = Setting(CPU, is_tiny=True, num_rounds=1)


@pytest.fixture(autouse=True)
def short_looks(monkeypatch):
    """At the load of the machine, which plays no part here."""
    monkeypatch.setattr(timing, "SAMPLE_S", 0.01)


def part_of(**calls):
    return Part("some", "Some", lambda _: calls)


@pytest.mark.parametrize(("shape", "billions"), [(SMALL, 0.596), (MIDDLE, 1.721), (LARGE, 4.022)])
def test_shapes_have_the_weights_of_the_published_models(shape, billions):
    """As the models' cards and `num_parameters` of the published checkpoints say."""
    assert round(shape.num_weights() / 1e9, 3) == billions
    with torch.device("meta"):
        made = random_model(shape, torch.device("meta"))
    assert sum(weight.numel() for weight in made.parameters()) == shape.num_weights()


def test_the_cache_of_a_position_is_what_the_published_models_need():
    assert (MIDDLE.cache_bytes(), LARGE.cache_bytes()) == (114_688, 147_456)


def test_the_roofline_is_the_slower_of_reading_and_computing():
    read = 2 * TINY.num_weights() + 3 * 10 * TINY.cache_bytes()
    assert roofline(TINY, 3, 10, Limits(1e3, 1e30)) == pytest.approx(read / 1e3)
    assert roofline(TINY, 3, 10, Limits(1e30, 1e3)) == pytest.approx(2 * 3 * TINY.num_weights() / 1e3)


def test_what_is_measured_is_kept_at_once_and_not_measured_again(tmp_path):
    calls = []

    def second():
        kept = json.loads((tmp_path / "some.json").read_text())
        assert kept["first"]["rate"] == {"minimum": 1, "median": 2, "maximum": 3}
        raise KeyError("broken")

    def first():
        calls.append("first")
        return {"rate": Spread(1, 2, 3), "holds": True}

    part = part_of(first=first, second=second)
    said = []
    assert plan.run(Results(tmp_path, TRY), [part], 1, said.append) == (1, ["some: second"])
    assert plan.run(Results(tmp_path, TRY), [part], 1, said.append) == (1, ["some: second"])
    assert calls == ["first"]
    assert "KeyError: 'broken'" in said[-1]
    assert "in second" in json.loads((tmp_path / "some.json").read_text())["second"]["traceback"]


def test_after_the_time_nothing_begins(tmp_path):
    part = part_of(first=lambda: {"x": 1})
    assert plan.run(Results(tmp_path, TRY), [part], 0, print) == (1, [])
    assert plan.run(Results(tmp_path, TRY), [part], 1, print) == (0, [])


def test_too_little_memory_is_a_finding(tmp_path):
    def greedy():
        raise torch.OutOfMemoryError("Tried to allocate 3 TiB")

    results = Results(tmp_path, TRY)
    assert plan.run(results, [part_of(greedy=greedy)], 1, print) == (0, [])
    assert results.rows(part_of())["greedy"]["outcome"] == "out of memory"


def test_the_page_has_the_header_every_table_and_the_load(tmp_path):
    part = part_of(first=lambda: {"rate": Spread(1, 2, 3), "holds": False}, second=lambda: {"other": 1234.5})
    results = Results(tmp_path, TRY)
    plan.run(results, [part], 1, print)
    page = results.write_tables([part]).read_text()
    assert "* device: CPU" in page
    assert f"* torch: {torch.__version__}" in page
    assert "| first | 2 (1-3) | **no** |  |" in page
    assert "| second |  |  | 1,234 |" in page
    assert "achine" in page.splitlines()[-1] or "not known" in page.splitlines()[-1]


def test_results_of_another_size_are_not_mixed(tmp_path):
    Results(tmp_path, TRY)
    with pytest.raises(UserError, match="another --out"):
        Results(tmp_path, Setting(CPU, is_tiny=False))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_full_shapes_are_refused(tmp_path):
    with pytest.raises(UserError, match="--tiny"):
        throughput.run(["gpu", "--out", str(tmp_path)])


def test_an_unknown_part_is_refused(tmp_path):
    with pytest.raises(UserError, match="no part 'speed'"):
        throughput.run(["gpu", "--out", str(tmp_path), "--tiny", "--parts", "laws,speed"])


def test_the_command_runs_a_part_with_tiny_shapes(tmp_path, capsys):
    throughput.run(["gpu", "--tiny", "--repeats", "1", "--parts", "offload", "--out", str(tmp_path)])
    assert "0 measurements are left" in capsys.readouterr().out
    assert {file.name for file in tmp_path.iterdir()} == {".collm", "README.md", "machine.json", "offload.json"}


@pytest.mark.slow
@pytest.mark.parametrize("part", plan.PARTS, ids=lambda part: part.name)
def test_every_part_runs_end_to_end_with_tiny_shapes(part, tmp_path):
    results = Results(tmp_path, TRY)
    assert plan.run(results, [part], 10, print) == (0, [])
    broken = [what for what, row in results.rows(part).items() if row.get("holds") is False]
    assert broken == []
    for row in results.rows(part).values():  # a phase that nothing is seen of would be a phase that is not watched
        timed = [name for name, value in row.items() if name.endswith(", s") and isinstance(value, dict)]
        assert [name for name in timed if row[name]["maximum"] <= 0] == []
        assert part.name != "memory" or {"critic, planned, GiB", "policies, planned, GiB"} <= set(row)


@pytest.mark.slow
def test_what_only_a_gpu_records_is_measured_rightly_with_tapes(monkeypatch):
    """The measurements of CUDA graphs, which a CPU skips."""
    made = []
    monkeypatch.setattr(language_model, "CudaGraphs", lambda device: made.append(Taped()) or made[-1])
    differences = laws._graphs_are_eager(TRY)
    assert np.abs(differences).max() <= laws.MAX_DIFFERENCE and len(differences) == 3 * 9 * 6
    assert made[0].num_replays > 0 and made[0].num_releases > 0
    model = random_model(TINY, CPU)
    decode = decoding._own(model, f"own{decoding.GRAPHS}", False)
    assert "recording, s" in decoding._recording(decode, random_prompts(TINY, 2, 12), 5, TRY)
    assert made[1].num_replays > made[1].num_captured > 0


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["laws", "bf16"])
def test_the_laws_hold_on_a_gpu(name, tmp_path):
    part = next(part for part in plan.PARTS if part.name == name)
    results = Results(tmp_path, Setting(torch.device("cuda"), is_tiny=True, num_rounds=1))
    assert plan.run(results, [part], 10, print) == (0, [])
    assert [what for what, row in results.rows(part).items() if row["holds"] is not True] == []
