"""The core suite: submissions name their seeds; scores go from random play, 0, to the reference, 1."""

import copy
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
from collm.benchmarks.core.submission import Submission, core_ids, parsed_submission, read_submission, seeds_of
from collm.benchmarks.errors import UserError
from tools.anchors import written_anchors

ID = "collm/MiniBuild-v0"
TOO_LONG = "collm/BridgeBuild-v2"  # its prompts have 900 tokens of the embedded model, which has 2,048 positions
LONG = 1_300  # new tokens
RESULTS = Path(__file__).parents[3] / "benchmarks" / "results" / "core"


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
    floor, reference = (read_submission(RESULTS / f"{name}.json") for name in ("random", "reference"))
    for id in core_ids():
        assert score(id, floor.returns[id]["sampled"]).value == pytest.approx(0, abs=1e-12)
        assert score(id, reference.returns[id]["sampled"]).value == pytest.approx(1)
    committed = json.loads(play.ANCHORS_FILE.read_text())
    assert committed == written_anchors(floor, reference)


@pytest.mark.parametrize("name", ["random", "reference"])
def test_the_committed_results_are_what_the_players_reach_now(name):
    kept = read_submission(RESULTS / f"{name}.json")
    played = play.player_submission(name, (ID, "collm/ResourceGathering-v2"), lambda *_: None)
    for id, ways in played.returns.items():
        assert ways["sampled"] == pytest.approx(kept.returns[id]["sampled"])


@pytest.mark.slow
def test_the_committed_result_of_the_embedded_model_is_what_it_reaches_now(tmp_path):
    """Greedily, where a reply depends on no generator."""
    kept = read_submission(RESULTS / "tiny.json")
    played = play.model_submission(ModelConfig(model="tiny", device="cpu"), [ID], ["greedy"], tmp_path, lambda *_: None)
    assert played.returns[ID]["greedy"] == pytest.approx(kept.returns[ID]["greedy"])


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


def test_the_mean_says_how_many_environments_count_and_submissions_are_read_again(tmp_path):
    whole = Submission("whole", ["a"], returns_of(0.5))
    part = Submission("part", ["b"], returns_of(0.5, of=lambda: (ID,)), {TOO_LONG: "its prompts | are long"})
    header, cells = play.rows([whole, part])
    assert header == ["environment", "whole, sampled", "part, sampled"]
    assert [row[0] for row in cells] == [*core_ids(), "mean"]
    assert cells[-1][1:] == ["0.500 [0.500, 0.500]", "0.500 [0.500, 0.500] (1 of 14)"]
    assert [row[2] for row in cells if row[0] == TOO_LONG] == ["unplayed"]
    assert sum(row[2] == "-" for row in cells) == 12
    text = play.markdown([whole, part])
    assert text.count("\n| ") == 17
    assert text.endswith(f"\n- part did not play {TOO_LONG}: its prompts | are long\n")
    made = Submission("a / b", ["a", "b"], returns_of(0.5, of=lambda: (ID,)), {TOO_LONG: "why"}, "1.2.3")
    made.write(tmp_path / "x.json")
    assert read_submission(tmp_path / "x.json") == made


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda it: it.update(version=2), '"version": 1'),
        (lambda it: it.update(more=1), "got .*more"),
        (lambda it: it.update(team=""), "team and collm"),
        (lambda it: it.update(environments={}), "at least one"),
        (lambda it: it["environments"].update({"collm/Other-v0": {}}), "collm/Other-v0 is not in the core suite"),
        (lambda it: it["environments"][ID].update(seeds_sha256="0" * 64), f"{ID} was played on other seeds"),
        (lambda it: it["environments"][ID].update(unplayed="why"), 'either "returns" or "unplayed"'),
        (lambda it: it["environments"].update({ID: {"seeds_sha256": seeds_of(ID).sha256, "unplayed": ""}}), "unplayed"),
        (lambda it: it["environments"][ID]["returns"]["sampled"].pop(), "must be 50 numbers"),
        (lambda it: it["environments"][ID]["returns"].update(best=[0.0] * 50), "greedy"),
        (lambda it: it["environments"][ID]["returns"].update(greedy=[float("nan")] * 50), "finite"),
        (lambda it: it["environments"][ID]["returns"].update(greedy=[True] * 50), "finite numbers"),
        (lambda it: it["environments"][ID]["returns"].update(greedy=[2.0] * 50), "0 to 1, got 2"),
    ],
)
def test_a_submission_that_says_something_else_is_refused(change, problem):
    found = copy.deepcopy(Submission("a", ["a"], returns_of(0.5)).to_json())
    change(found)
    with pytest.raises(UserError, match=problem):
        parsed_submission(found)


def test_the_command_plays_writes_and_shows(tmp_path, capsys):
    theirs = tmp_path / "theirs.json"
    Submission("theirs", ["x"], returns_of(0.5)).write(theirs)
    out = tmp_path / "out"
    call = f"evaluate --suite core --model random --env {ID} --submissions {theirs} --out {out}"
    assert main(call.split()) == 0
    assert "mean return" in capsys.readouterr().out
    assert read_submission(out / "random.json").returns[ID]["sampled"] == pytest.approx([0.0] * 50, abs=0.2)
    assert "| 0.500 [0.500, 0.500] |" in (out / "table.md").read_text()


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("--suite core", "--model"),
        ("--suite core --model random --episodes 3", "--episodes"),
        ("--suite core --model random --split train", "--split"),
        ("--suite core --model random --env CartPole-v1", "CartPole-v1 is not in the core suite"),
        (f"--model tiny --env {ID} --submissions x.json", "--suite core"),
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
    made = read_submission(tmp_path / "tiny.json")
    assert made.returns.keys() == {ID} and made.returns[ID].keys() == {"greedy"}
    assert "2048 tokens" in made.unplayed[TOO_LONG]
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
        assert read_submission(tmp_path / "tiny.json").returns[ID]["greedy"] == [0.5] * 50
        raise RuntimeError("the machine is out of memory")

    monkeypatch.setattr(play, "untrained", lambda *args: breaks() if (tmp_path / "tiny.json").exists() else None)
    monkeypatch.setattr(play, "_returns", lambda run, ways: {"greedy": [0.5] * 50})
    with pytest.raises(RuntimeError, match="out of memory"):
        evaluate_suite(Console(file=io.StringIO()), tmp_path, models=["tiny"], ids=(ID, TOO_LONG), ways=("greedy",))
