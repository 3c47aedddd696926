import json

import pytest
import torch

from collm.agents.decoding.cpu.kernels import SWITCH, compiler
from collm.benchmarks.cli import main

TRAIN = ["train", "maac", "--env", "collm/MiniWriting-v2", "--critic-model-name-or-path", "actor"]


def test_the_machine_is_shown_as_json_and_as_a_table(capsys, monkeypatch):
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["versions"]["torch"] == torch.__version__
    assert found["devices"][0]["name"] == "cpu" and found["devices"][0]["memory"] > 2**30
    assert found["sandbox"]
    assert found["compiler"] == compiler()
    monkeypatch.setenv(SWITCH, "0")
    assert main(["doctor"]) == 0
    assert "no C++ compiler" in capsys.readouterr().out


def test_a_training_that_cannot_fit_is_refused_with_what_would(capsys):
    call = ["doctor", *TRAIN, "--model", "Qwen/Qwen3-4B", "--memory", "80GB"]
    with pytest.raises(SystemExit, match="2"):
        main(call)
    said = capsys.readouterr().out
    assert "it fits with --offload learner" in said.replace("\n", " ") and "update of" in said
    assert main([*call, "--offload", "learner"]) == 0
    assert "it fits" in capsys.readouterr().out


def test_every_heading_and_amount_finds_room_on_a_terminal_of_eighty_letters(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    call = ["doctor", "--memory", "80GB", "train", "maac", "--env", "collm/MiniWriting-v2"]
    assert main([*call[:1], "--json", *call[1:]]) == 0
    phases = json.loads(capsys.readouterr().out)["devices"][0]["phases"]
    for phase in phases:
        assert phase["total"] == sum(value for name, value in phase.items() if name not in ("name", "total"))
    assert main(call) == 0
    printed = capsys.readouterr().out.splitlines()
    heading = next(line for line in printed if line.lstrip().startswith("GiB"))
    assert heading.split()[1:] == [name for name in phases[0] if name != "name"]
    rows = [line for line in printed if line.startswith("update of writer_0")]
    assert len(rows) == 1 and len(rows[0].split()) == 3 + len(phases[0]) - 1


def test_the_plan_is_of_each_rank(capsys):
    asked = ["doctor", "--gpu", "h100", *TRAIN, "--model", "Qwen/Qwen3-4B", "--compute-dtype", "bfloat16"]
    assert main([*asked[:1], "--ranks", "8", *asked[1:], "--fsdp"]) == 0
    assert "it fits (on each of 8 ranks" in capsys.readouterr().out.replace("\n", " ")
    with pytest.raises(SystemExit):
        main([*asked[:1], "--ranks", "8", *asked[1:]])
    assert "--fsdp" in capsys.readouterr().out


def test_mistakes_cost_one_line(capsys):
    for wrong in (
        ["doctor", *TRAIN, "--model", "nobody/has-it", "--gpu", "h100"],
        ["doctor", *TRAIN, "--gpu", "h1000x"],
        ["doctor", *TRAIN, "--memory", "much"],
        ["doctor", "--memory", "80GB"],
        ["doctor", "--ranks", "0", *TRAIN],
        ["doctor", "play"],
    ):
        assert main(wrong) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
