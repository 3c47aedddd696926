"""A run deletes and overwrites only its own files, writes through no link, and can be resumed after any kill."""

import json
import shlex
import signal
from dataclasses import replace
from unittest.mock import Mock

import pytest
from killed import changed, status_of_life, stop_after

from collm._errors import UserError
from collm._ownership import MARKER
from collm.algorithms.learning.trainer import Trainer
from collm.algorithms.runs.api import load_run, train
from collm.algorithms.runs.assembly.trust import next_commands, run_command
from collm.algorithms.runs.run import run_experiment
from collm.benchmarks.cli import main

FOREIGN = (
    *("checkpoints/my_llama/weights.pt", "pictures/holiday.jpg", "tensorboard/mine", "start/main.py", "critics/a/b"),
    *("agents/smith/notes", "agents.old/notes", "agents.new/notes", "config.json", "config.json.new", "metrics.jsonl"),
    *("episodes.jsonl", "wandb_id.txt", ".lock", ".writable", "notes.txt"),
)
SMALL = "--num-updates 1 --rollout-buffer-size 2 --eval-num-samples 2 --critic-warmup 0 --hidden-dims 4"


@pytest.fixture
def experiment(short_experiment):
    return short_experiment(num_updates=1, rollout_buffer_size=2)


def put(folder, name, text="mine"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def tree(folder):
    return {str(path.relative_to(folder)): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_folder_with_files_of_others_is_refused_and_stays_as_it_is(tmp_path, experiment, capsys, name):
    put(tmp_path, name, '{"mine": 1}' if name == "config.json" else "mine")
    before = tree(tmp_path)
    with pytest.raises(FileExistsError, match=name.split("/")[0]):
        run_experiment(experiment, tmp_path)
    assert main(["train", "ippo", "--env", "test/Number-v0", *SMALL.split(), "--out", str(tmp_path)]) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1 and str(tmp_path) in printed
    assert tree(tmp_path) == before


def test_an_empty_folder_is_used_and_an_empty_name_refused(tmp_path, experiment, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call = ["train", "ippo", "--env", "test/Number-v0", *SMALL.split()]
    for option in (["--out", ""], ["--out="], ["--output-dir", ""]):
        assert main([*call, *option]) == 2
        assert option[0].rstrip("=") in capsys.readouterr().err
    with pytest.raises(UserError, match="out=''"):
        train("ippo", "test/Number-v0", out="")
    assert tree(tmp_path) == {}
    assert main([*call, "--out", "."]) == 0
    assert (tmp_path / "metrics.jsonl").is_file()


@pytest.mark.parametrize("resume", [False, True])
def test_an_attempt_without_a_checkpoint_is_cleared_of_its_own_files_alone(tmp_path, experiment, monkeypatch, resume):
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(Trainer, "step", Mock(side_effect=RuntimeError))
        run_experiment(experiment, tmp_path)
    put(tmp_path, "pictures/update-0.gif", "an earlier picture")
    put(tmp_path, "tensorboard/events.out.tfevents.1", "earlier events")
    own = ("checkpoints/my_llama/weights.pt", "pictures/holiday.jpg", "tensorboard/mine", "start/main.py", "notes.txt")
    for name in own:
        put(tmp_path, name)
    run_experiment(experiment, tmp_path, resume=resume)
    assert all((tmp_path / name).read_text() == "mine" for name in own)
    assert not (tmp_path / "pictures" / "update-0.gif").exists()
    assert [path.name for path in (tmp_path / "tensorboard").iterdir()] == ["mine"]
    longer = changed(experiment, num_updates=4)
    run_experiment(longer, tmp_path, resume=True)
    assert all((tmp_path / name).read_text() == "mine" for name in own)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["00000003", "00000004", "my_llama"]


def test_files_of_others_in_the_saved_models_stay_when_these_are_written_again(tmp_path, experiment):
    run_experiment(experiment, tmp_path)
    put(tmp_path, "agents/speaker_0/model.gguf")
    put(tmp_path, "agents/README.md")
    weights = (tmp_path / "agents" / "speaker_0" / "numeric_policy.safetensors").read_bytes()
    run_experiment(changed(experiment, num_updates=2), tmp_path, resume=True)
    assert (tmp_path / "agents" / "speaker_0" / "model.gguf").read_text() == "mine"
    assert (tmp_path / "agents" / "README.md").read_text() == "mine"
    assert (tmp_path / "agents" / "speaker_0" / "numeric_policy.safetensors").read_bytes() != weights
    assert [path.name for path in tmp_path.iterdir() if "collm-" in path.name] == []


def test_a_run_that_was_copied_without_its_hidden_file_goes_on_and_is_reported(tmp_path, experiment):
    run_experiment(experiment, tmp_path)
    assert main(["report", str(tmp_path)]) == 0
    (tmp_path / MARKER).unlink()
    with pytest.raises(FileExistsError, match="already contains a run"):
        run_experiment(experiment, tmp_path)
    run_experiment(changed(experiment, num_updates=2), tmp_path, resume=True)
    assert main(["report", str(tmp_path)]) == 0
    assert load_run(tmp_path).update == 2


@pytest.mark.parametrize(
    "name",
    [
        *("metrics.jsonl", "episodes.jsonl", "evaluation.jsonl", "agents", "critics", "checkpoints", "pictures"),
        *("tensorboard", "failures", "start", ".collm", "checkpoints/00000001"),
    ],
)
def test_a_link_in_a_run_s_folder_is_refused_before_training(tmp_path, experiment, monkeypatch, capsys, name):
    run_experiment(experiment, tmp_path / "r")
    path, target = tmp_path / "r" / name, tmp_path / "target"
    if path.exists():
        path.rename(target)
    else:
        put(target, "mine")
    path.symlink_to(target)
    before = tree(target) if target.is_dir() else target.read_bytes()
    monkeypatch.setattr(Trainer, "step", Mock(side_effect=RuntimeError))
    capsys.readouterr()
    assert main(["resume", str(tmp_path / "r"), "--num-updates", "2"]) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1 and str(path) in printed
    assert (tree(target) if target.is_dir() else target.read_bytes()) == before


def test_a_run_s_folder_may_be_reached_through_a_link(tmp_path, experiment):
    (tmp_path / "scratch").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "scratch")
    run_experiment(experiment, tmp_path / "runs" / "r")
    run_experiment(changed(experiment, num_updates=2), tmp_path / "runs/r", resume=True)
    (tmp_path / "r").symlink_to(tmp_path / "scratch" / "r")
    assert main(["resume", str(tmp_path / "r"), "--num-updates", "3"]) == 0
    assert main(["report", str(tmp_path / "r")]) == 0
    assert load_run(tmp_path / "scratch" / "r").update == 3


def test_settings_that_are_a_link_are_replaced_and_not_followed(tmp_path, experiment):
    run_experiment(experiment, tmp_path / "r")
    target = tmp_path / "target"
    (tmp_path / "r" / "config.json").rename(target)
    (tmp_path / "r" / "config.json").symlink_to(target)
    (tmp_path / "r" / ".collm-new-config.json").symlink_to(tmp_path / "other")
    before = target.read_bytes()
    assert main(["resume", str(tmp_path / "r"), "--num-updates", "2"]) == 0
    assert target.read_bytes() == before and not (tmp_path / "other").exists()
    assert json.loads((tmp_path / "r" / "config.json").read_text())["config"]["num_updates"] == 2


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 7])
def test_a_kill_at_any_file_event_leaves_a_folder_that_is_taken_up_again(tmp_path, experiment, step):
    config = replace(experiment.config, eval_on_start=False, eval_num_samples=1)
    short = replace(experiment, config=config, env="probes:NumberProbe", env_kwargs={"probe": "delayed"})
    limit, status = 0, None
    while status != 0:
        limit += step
        folder = tmp_path / str(limit)
        status = status_of_life(short, folder, limit)
        assert status in (-signal.SIGKILL, 0)
        has_checkpoint = any(path.name.isdecimal() for path in folder.glob("checkpoints/*"))
        resume = folder.is_dir() and (has_checkpoint or limit % 2 == 0)
        assert run_experiment(short, folder, resume=resume).progress.update == 1
        assert [path.name for path in folder.rglob(".collm-*")] == [], limit
    assert limit > 30


def test_a_run_without_settings_says_that_it_is_to_be_started_again(tmp_path, experiment, capsys):
    (tmp_path / MARKER).write_text("collm files, format 1\nconfig.json\n")
    assert main(["resume", str(tmp_path)]) == 2
    assert "collm train" in capsys.readouterr().err
    run_experiment(experiment, tmp_path)


@pytest.mark.parametrize("env", ["test/Number-v0", "probes:NumberProbe"])
def test_the_command_that_a_stop_prints_works(tmp_path, experiment, env, monkeypatch):
    directory = tmp_path / "my runs" / "it's"
    other = replace(experiment, env=env, env_kwargs={"probe": "delayed"})
    longer = changed(other, num_updates=2)
    command = str(stop_after(1, longer, directory)).partition("to resume: ")[2]
    assert "--trust" not in command  # the run is this user's own
    with pytest.raises(FileExistsError) as refused:
        run_experiment(longer, directory)
    assert str(refused.value).endswith(command)
    assert main(shlex.split(command)[1:]) == 0
    assert load_run(directory).update == 2
    place = shlex.quote(str(directory))
    report, evaluation, *_ = next_commands(directory).split(", ")
    assert report == f"collm report {place}"
    assert evaluation == f"collm evaluate {place}"
    (directory / "config.json").write_text("not JSON")
    assert run_command("resume", directory) == f"collm resume {place}"
