"""A run that this user trained on this machine needs no --trust, unless its settings or its folder change."""

import json
import os
import shutil
from dataclasses import replace

import pytest

from collm.algorithms.runs.assembly.trust import UntrustedCodeError, load_experiment, run_command
from collm.algorithms.runs.own_runs import _state_file
from collm.algorithms.runs.run import run_experiment
from collm.benchmarks.cli import main


@pytest.fixture
def experiment(short_experiment):
    """Experiment whose environment is a class of a module, which other people's runs may not import."""
    made = short_experiment(num_updates=2, rollout_buffer_size=4)
    return replace(made, env="probes:NumberProbe", env_kwargs={"probe": "delayed"})


@pytest.fixture
def run(tmp_path, experiment):
    run_experiment(experiment, tmp_path / "run")
    return tmp_path / "run"


def edited(run):
    file = run / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"env_kwargs": {"probe": "delayed", "reward": 2}}))


def made_of_a_link(run):
    own = run.rename(run.with_name("own"))
    shutil.copytree(own, run)
    (run / "config.json").unlink()
    (run / "config.json").symlink_to(own / "config.json")


def copied(run):
    shutil.copytree(run, run.with_name("copy"))
    shutil.rmtree(run)  # its inodes are free again
    shutil.copytree(run.with_name("copy"), run)


def by_another_user(run):
    os.environ["XDG_STATE_HOME"] = str(run.with_name("state of another user"))


def with_a_state_that_others_write(run):
    _state_file().chmod(0o666)


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_an_own_run_needs_no_trust_even_if_it_is_moved_or_resumed_with_other_settings(run, capsys, monkeypatch):
    moved = run.rename(run.with_name("moved"))
    assert run_command("resume", moved) == f"collm resume {moved}"
    assert main(["evaluate", str(moved), "--episodes", "2", "--out", f"{moved}-results"]) == 0
    assert main(["resume", str(moved), "--num-updates", "3"]) == 0
    assert "--trust" not in capsys.readouterr().out
    load_experiment(moved)


@pytest.mark.parametrize(
    "changed",
    [edited, copied, made_of_a_link, by_another_user, with_a_state_that_others_write],
    ids=lambda f: f.__name__,
)
def test_a_run_is_asked_for_trust_if_it_is(run, changed):
    load_experiment(run)
    changed(run)
    with pytest.raises(UntrustedCodeError, match=r"config\.json has the environment 'probes:NumberProbe'"):
        load_experiment(run)
    assert run_command("resume", run).endswith(" --trust")


def test_a_run_from_elsewhere_stays_one_if_it_is_resumed_with_trust(run):
    copied(run)
    assert main(["resume", str(run), "--num-updates", "3", "--trust"]) == 0
    with pytest.raises(UntrustedCodeError):
        load_experiment(run)


@pytest.mark.parametrize("variable", ["XDG_STATE_HOME", "HOME"])
def test_a_user_without_a_state_folder_trains_and_is_asked_for_trust(tmp_path, experiment, monkeypatch, variable):
    (tmp_path / "file").touch()
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv(variable, str(tmp_path / "file"))
    run_experiment(experiment, tmp_path / "run")
    with pytest.raises(UntrustedCodeError):
        load_experiment(tmp_path / "run")
