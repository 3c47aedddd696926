"""Commands do not overwrite files that collm did not write, and name them in one line."""

import json

import pytest
from probes import NumberProbe

from collm.benchmarks.cli import main
from collm.benchmarks.commands.machine.throughput import MEASUREMENTS
from collm.envs import register

FEW = "--num-updates 1 --rollout-buffer-size 2 --eval-num-samples 2 --critic-warmup 0 --hidden-dims 4"
EVALUATE = "evaluate {run} --episodes 2 --no-transcripts"
CALLS = {
    "report": ("report {run} --out {out}", ["report.html", "tables.md", "marl_eval.json", "figures/profile.png"]),
    "evaluate": (f"{EVALUATE} --out {{out}}", ["evaluation-test.jsonl"]),
    "leaderboard": ("evaluate {run} {run}-2 --episodes 2 --out {out}", ["leaderboard.json"]),
    "suite": ("evaluate --suite core --model random --env collm/MiniCode-v1 --out {out}", ["random.json", "table.md"]),
    "crossplay": ("crossplay {run} {run}-2 --num-episodes 2 --out {out}", ["README.md", "crossplay.png"]),
    "throughput": ("throughput decode --repeats 1 --out {out}", ["decode.md"]),
    "credit": (
        "benchmark credit --algorithms rae --games TinyHanabi --seeds 0 --num-updates 1 --out {out}",
        ["credit.json", "README.md", "credit.png"],
    ),
    "record": ("play collm/MiniCode-v1 --record {out}", ["episodes.jsonl"]),
    "gif": ("play collm/MiniBuild-v0 --gif {out}/a.gif", ["a.gif"]),
    "benchmark": (
        "benchmark --algorithms ippo --envs gymnasium/CartPole-v1 --seeds 0 --environment-steps 99999 --out {out}",
        ["runs/gymnasium-CartPole-v1/ippo/seed-0/notes.txt"],
    ),
}


@pytest.fixture
def run(tmp_path, clean_registry, capsys, monkeypatch):
    monkeypatch.setitem(MEASUREMENTS, "decode", lambda arguments: "as fast as this")
    register("test/Number-v0", NumberProbe, kwargs={"probe": "delayed"})
    directory = tmp_path / "run"
    for out in (directory, f"{directory}-2"):
        assert main(["train", "ippo", "--env", "test/Number-v0", *FEW.split(), "--out", str(out)]) == 0
    capsys.readouterr()
    return directory


@pytest.mark.parametrize(("name", "file"), [(name, file) for name, (_, files) in CALLS.items() for file in files])
def test_a_file_of_others_stays_and_is_named_in_one_line(tmp_path, run, capsys, name, file):
    out = tmp_path / "out"
    foreign = out / file
    foreign.parent.mkdir(parents=True)
    foreign.write_text("mine")
    assert main(CALLS[name][0].format(run=run, out=out).split()) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1 and foreign.name in printed
    assert [path for path in out.rglob("*") if path.is_file()] == [foreign] and foreign.read_text() == "mine"


@pytest.mark.parametrize("name", ["report", "evaluate", "leaderboard", "suite", "record", "gif"])
def test_a_command_overwrites_its_own_files_beside_those_of_others(tmp_path, run, name):
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    for _ in range(2):
        assert main(CALLS[name][0].format(run=run, out=out).split()) == 0
    assert (out / "notes.txt").read_text() == "mine"
    assert not list(out.rglob(".collm-*"))


def test_a_report_does_not_follow_links(tmp_path, run):
    assert main(["report", str(run)]) == 0
    written = [run / "report.html", run / "tables.md", *(run / "figures").iterdir()]
    assert len(written) > 3
    for number, path in enumerate(written):
        path.rename(tmp_path / f"{number}")
        path.symlink_to(tmp_path / f"{number}")
        (tmp_path / f"{number}").write_text("mine")
    assert main(["report", str(run)]) == 0
    assert not any(path.is_symlink() for path in written)
    assert all((tmp_path / f"{number}").read_text() == "mine" for number in range(len(written)))


def test_figures_that_are_a_link_to_a_folder_are_refused(tmp_path, run, capsys):
    (tmp_path / "elsewhere").mkdir()
    (run / "figures").symlink_to(tmp_path / "elsewhere")
    assert main(["report", str(run)]) == 2
    assert "figures is a symbolic link" in capsys.readouterr().err
    assert list((tmp_path / "elsewhere").iterdir()) == [] and not (run / "report.html").exists()


def test_transcripts_are_added_to_own_files_and_not_to_files_of_others_or_of_a_run(run, capsys, tmp_path):
    before = (run / "episodes.jsonl").read_bytes()
    assert main(["play", "collm/MiniCode-v1", "--record", str(run)]) == 2
    assert str(run) in capsys.readouterr().err
    assert (run / "episodes.jsonl").read_bytes() == before
    call = ["play", "collm/MiniCode-v1", "--record", str(tmp_path)]
    assert main(call) == 0
    assert main(call) == 0
    assert len((tmp_path / "episodes.jsonl").read_text().splitlines()) == 2
    (tmp_path / ".collm").unlink()
    assert main(call) == 2
    assert len((tmp_path / "episodes.jsonl").read_text().splitlines()) == 2


def test_an_export_goes_to_a_new_folder_alone(tmp_path, run, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "config.json").write_text("mine")
    for out in (str(tmp_path / "out"), ""):
        assert main(["export", str(run), out]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert (tmp_path / "out" / "config.json").read_text() == "mine"


@pytest.mark.parametrize(
    "call",
    (
        *("report ||", "report --out ||", "evaluate --out ||", "throughput --out ||", "demo --out ||", "resume ||"),
        *("play x --gif ||", "benchmark --out ||", "train iac --env x --init-from ||", "chat ||", "crossplay a ||"),
    ),
)
def test_an_empty_path_is_refused(call, capsys):
    assert main([word.replace("||", "") for word in call.split()]) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1 and "is empty" in printed


def test_an_empty_path_in_a_file_of_settings_is_refused(tmp_path, capsys):
    (tmp_path / "a.json").write_text(json.dumps({"algorithm": "iac", "env": "collm/MiniCode-v1", "out": ""}))
    assert main(["train", "--config", str(tmp_path / "a.json")]) == 2
    assert "out is empty" in capsys.readouterr().err
