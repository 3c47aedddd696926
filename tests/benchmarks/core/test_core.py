"""The core suite: results name their seeds; scores go from random play, 0, to the reference, 1."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from collm.agents.config import ModelConfig
from collm.algorithms.rollout.collector import RolloutCollector
from collm.algorithms.runs.evaluation import FIRST_EVALUATION_SEED
from collm.benchmarks.cli import main
from collm.benchmarks.core import command as play
from collm.benchmarks.core.command import anchors, evaluate_suite, score, suite_score
from collm.benchmarks.core.result import SuiteResult, core_ids, seeds_of
from collm.benchmarks.errors import UserError
from tools.anchors import written_anchors

ID = "collm/MiniBuild-v0"
TOO_LONG = "collm/BridgeBuild-v2"  # its prompts have 900 tokens of the embedded model, which has 2,048 positions
LONG = 1_300  # new tokens
RESULTS = Path(__file__).parents[3] / "benchmarks" / "results" / "core"


def environments(file):
    """What a file of a result has of each environment; its seeds are those of the suite."""
    found = json.loads(file.read_text())["environments"]
    assert {id: each["seeds_sha256"] for id, each in found.items()} == {id: seeds_of(id).sha256 for id in found}
    return found


def returns_of(value, *, of=core_ids):
    """The same score everywhere, in returns."""
    found = {}
    for id in of():
        anchor = anchors()[id]
        found[id] = {"sampled": [anchor.floor + value * (anchor.reference - anchor.floor)] * len(seeds_of(id).seeds)}
    return found


def test_the_suite_has_fourteen_environments_in_which_random_play_scores_0_and_the_reference_1():
    assert len(core_ids()) == 14 and ID in core_ids()
    assert {len(seeds_of(id).seeds) for id in core_ids()} == {50}
    floor, reference = (environments(RESULTS / f"{name}.json") for name in ("random", "reference"))
    for id in core_ids():
        assert score(id, floor[id]["returns"]["sampled"]).value == pytest.approx(0, abs=1e-12)
        assert score(id, reference[id]["returns"]["sampled"]).value == pytest.approx(1)
    committed = json.loads(play.ANCHORS_FILE.read_text())
    assert committed == written_anchors(floor, reference)


@pytest.mark.parametrize("name", ["random", "reference"])
def test_the_committed_results_are_what_the_players_reach_now(name):
    kept = environments(RESULTS / f"{name}.json")
    played = play.player_result(name, (ID, "collm/ResourceGathering-v2"), lambda *_: None)
    for id, ways in played.returns.items():
        assert ways["sampled"] == pytest.approx(kept[id]["returns"]["sampled"])


@pytest.mark.slow
def test_the_committed_result_of_the_embedded_model_is_what_it_reaches_now(tmp_path):
    """Greedily, where a reply depends on no generator."""
    kept = environments(RESULTS / "tiny.json")
    played = play.model_result(ModelConfig(model="tiny", device="cpu"), [ID], ["greedy"], tmp_path, lambda *_: None)
    assert played.returns[ID]["greedy"] == pytest.approx(kept[ID]["returns"]["greedy"])


def test_scores_and_their_mean_by_hand():
    anchor = anchors()["collm/HouseBuild-v2"]
    middle = (anchor.floor + anchor.reference) / 2
    found = score("collm/HouseBuild-v2", [middle] * 50)
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))
    played = {id: ways["sampled"] for id, ways in returns_of(0.25).items()}
    assert suite_score(played).value == pytest.approx(0.25)
    assert suite_score(played).high - suite_score(played).low < 1e-9, "scores that do not vary within a task"
    anchor = anchors()[ID]
    span = anchor.reference - anchor.floor
    played[ID] = [anchor.floor + span * (number % 2) for number in range(50)]
    found = suite_score(played)
    assert found.value == pytest.approx((13 * 0.25 + 0.5) / 14)
    # One task's mean of 50 coins, by the normal approximation, counts a fourteenth.
    width = 2 * 1.96 * np.sqrt(0.25 / 50) / 14
    assert found.high - found.low == pytest.approx(width, rel=0.1)


def test_the_mean_says_how_many_environments_count():
    whole = SuiteResult("whole", returns_of(0.5))
    part = SuiteResult("part", returns_of(0.5, of=lambda: (ID,)), {TOO_LONG: "its prompts | are long"})
    header, cells = play.rows([whole, part])
    assert header == ["environment", "whole, sampled", "part, sampled"]
    assert [row[0] for row in cells] == [*core_ids(), "mean"]
    assert cells[-1][1:] == ["0.500 [0.500, 0.500]", "0.500 [0.500, 0.500] (1 of 14)"]
    assert [row[2] for row in cells if row[0] == TOO_LONG] == ["unplayed"]
    assert sum(row[2] == "-" for row in cells) == 12
    text = play.markdown([whole, part])
    assert text.count("\n| ") == 17
    assert text.endswith(f"\n- part did not play {TOO_LONG}: its prompts | are long\n")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda it: it.pop(ID), f"both contain {ID}"),
        (lambda it: it.update({ID: {"seeds_sha256": "0", "unplayed": "why"}}), f"both contain {ID}"),
        (lambda it: it[ID].update(seeds_sha256="0" * 64), f"{ID}.*different seeds"),
        (lambda it: it[ID].update(returns={"sampled": [0.0] * 50}), f"{ID}: reference has mean return 0"),
    ],
)
def test_results_of_players_that_define_no_score_are_refused(change, problem):
    floor, reference = (SuiteResult("a", returns_of(value)).to_json()["environments"] for value in (0, 1))
    assert written_anchors(floor, reference).keys() == set(core_ids())
    change(reference)
    with pytest.raises(UserError, match=problem):
        written_anchors(floor, reference)


def test_the_command_plays_writes_and_shows(tmp_path, capsys):
    out = tmp_path / "out"
    assert main(f"evaluate --suite core --model random empty --env {ID} --out {out}".split()) == 0
    assert "mean return" in capsys.readouterr().out
    assert environments(out / "random.json")[ID]["returns"]["sampled"] == pytest.approx([0.0] * 50, abs=0.2)
    assert "| environment | random, sampled | empty, sampled |" in (out / "table.md").read_text()


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("--suite core", "--model"),
        ("--suite core --model random --episodes 3", "--episodes"),
        ("--suite core --model random --split train", "--split"),
        ("--suite core --model random --env CartPole-v1", "CartPole-v1 is not in the core suite"),
    ],
)
def test_what_the_suite_fixes_cannot_be_chosen(call, problem, capsys):
    assert main(["evaluate", *call.split()]) == 2
    assert problem in capsys.readouterr().err


def test_a_model_plays_the_held_out_seeds_and_one_refused_environment_stops_no_other(tmp_path, monkeypatch):
    seen = []
    collect = RolloutCollector.collect

    def noted(self, plans, **how):
        seen.append([plan.seed for plan in plans])
        return collect(self, plans, **how)

    monkeypatch.setattr(RolloutCollector, "collect", noted)
    console = Console(file=io.StringIO(), width=200)
    options = {"models": ["tiny"], "ids": (TOO_LONG, ID), "ways": ("greedy",)}
    with pytest.raises(SystemExit) as ended:
        evaluate_suite(console, tmp_path, **options, model=ModelConfig(max_new_tokens=LONG))
    assert ended.value.code == 1
    assert seen == [list(seeds_of(ID).seeds)] and min(seen[0]) > FIRST_EVALUATION_SEED
    made = environments(tmp_path / "tiny.json")
    assert made.keys() == {ID, TOO_LONG} and made[ID]["returns"].keys() == {"greedy"}
    assert "2048 tokens" in made[TOO_LONG]["unplayed"]
    for text in (console.file.getvalue(), (tmp_path / "table.md").read_text()):
        assert "(1 of 14)" in text and "2048" in text


def test_a_team_that_can_play_nothing_is_refused_and_leaves_no_file(tmp_path, capsys):
    out = tmp_path / "out"
    call = ["--suite", "core", "--model", "tiny", "--env", TOO_LONG, "--max-new-tokens", str(LONG), "--out", str(out)]
    assert main(["evaluate", *call]) == 2
    assert "tiny cannot play any environment: the first prompt of" in capsys.readouterr().err
    assert not out.exists()


def test_what_was_played_is_on_disk_before_the_next_environment_begins(tmp_path, monkeypatch):
    def breaks(*args, **kwargs):
        assert environments(tmp_path / "tiny.json")[ID]["returns"]["greedy"] == [0.5] * 50
        raise RuntimeError("the machine is out of memory")

    monkeypatch.setattr(play, "untrained", lambda *args: breaks() if (tmp_path / "tiny.json").exists() else None)
    monkeypatch.setattr(play, "_returns", lambda run, ways: {"greedy": [0.5] * 50})
    with pytest.raises(RuntimeError, match="out of memory"):
        evaluate_suite(Console(file=io.StringIO()), tmp_path, models=["tiny"], ids=(ID, TOO_LONG), ways=("greedy",))
