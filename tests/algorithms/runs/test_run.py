"""A run resumes from its newest valid checkpoint, or starts again, and loses no data."""

import errno
import hashlib
import json
import math
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from fakes import OnUpdate
from killed import assert_resumes, changed, kill_after, stop_after, traces
from probes import AGENTS, NumberProbe, TextProbe
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from small_trainers import weights

from collm._errors import UserError
from collm.agents.numeric.policy import NumericPolicy
from collm.algorithms.learning.policy_learner import PolicyLearner
from collm.algorithms.learning.trainer import Trainer
from collm.algorithms.rollout.collector import RolloutCollector
from collm.algorithms.runs import run as running
from collm.algorithms.runs.api import load_run
from collm.algorithms.runs.assembly.trust import UntrustedCodeError, load_experiment
from collm.algorithms.runs.checkpoint import UnfitWeightsError, newest_checkpoint, save_checkpoint
from collm.algorithms.runs.files import DamagedRunError, RunFolderError, explained, only_one, read_config
from collm.algorithms.runs.loggers import Callback, JsonLines, read_lines
from collm.algorithms.runs.run import run_experiment
from collm.algorithms.runs.stopping import Stopped, StopSignals
from collm.benchmarks.cli import main
from collm.envs import register

RECORDS = ("metrics.jsonl", "episodes.jsonl", "evaluation.jsonl")


@pytest.fixture
def experiment(short_experiment):
    return short_experiment(num_updates=2, rollout_buffer_size=4)


@pytest.mark.parametrize("damage", ["flipped", "cut", "zeros", "tensors.safetensors", "SHA256SUMS"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so(tmp_path, experiment, damage):
    run_experiment(experiment, tmp_path / "r")
    expected = traces(tmp_path / "r")
    newest = newest_checkpoint(tmp_path / "r").path
    file = newest / "tensors.safetensors"
    content = file.read_bytes()
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    file.write_bytes({"flipped": flipped, "cut": content[:-1], "zeros": bytes(len(content))}.get(damage, content))
    if damage in ("tensors.safetensors", "SHA256SUMS"):
        (newest / damage).unlink()
    told = []
    trainer = run_experiment(experiment, tmp_path / "r", resume=True, on_notice=told.append)
    assert trainer.progress.update == 2 and traces(tmp_path / "r") == expected
    assert [line for line in told if f"{newest} is damaged" in line and "00000001" in line] == told and len(told) == 1
    assert newest_checkpoint(tmp_path / "r").path == newest  # written again
    for path in (tmp_path / "r" / "checkpoints").iterdir():
        (path / "state.json").write_text("{}")
    with pytest.raises(DamagedRunError, match="no checkpoint is valid"):
        run_experiment(experiment, tmp_path / "r", resume=True)


def test_two_checkpoints_are_kept_and_all_is_data(tmp_path, experiment):
    run_experiment(changed(experiment, num_updates=4), tmp_path / "r")
    assert sorted(path.name for path in (tmp_path / "r" / "checkpoints").iterdir()) == ["00000003", "00000004"]
    for path in (tmp_path / "r").rglob("*"):
        known = (".json", ".jsonl", ".safetensors", "SHA256SUMS", ".collm", ".update")
        assert path.is_dir() or path.name.endswith(known), path
        assert path.is_dir() or not path.read_bytes().startswith((b"PK", b"\x80")), f"{path} is a pickle"


def test_a_number_that_is_not_finite_is_never_written_and_its_tensor_is_named(tmp_path, experiment):
    trainer = run_experiment(experiment, tmp_path / "r")
    weight = next(iter(trainer.learners.values())).policy.parameters()[0]
    with torch.no_grad():
        weight[0, 0] = math.nan
    trainer.progress.update = 3
    before = newest_checkpoint(tmp_path / "r").path
    with pytest.raises(FloatingPointError, match=r"update 3: .* in trainer/learners/\w+/policy/.*weight"):
        save_checkpoint(tmp_path / "r", trainer)
    assert newest_checkpoint(tmp_path / "r").path == before


def test_episodes_are_written_before_they_are_learned_from(tmp_path, experiment, monkeypatch):
    monkeypatch.setattr(PolicyLearner, "prepare", Mock(side_effect=FloatingPointError))
    with pytest.raises(FloatingPointError):
        run_experiment(experiment, tmp_path / "r")
    rows = read_lines(tmp_path / "r" / "episodes.jsonl")
    assert [row["update"] for row in rows] == [1] * 4
    assert not (tmp_path / "r" / "metrics.jsonl").exists()


@pytest.mark.parametrize("resume", [False, True])
def test_a_run_without_a_checkpoint_starts_again_and_says_so(tmp_path, experiment, resume):
    seldom = changed(experiment, save_interval=0)
    run_experiment(seldom, tmp_path / "peace")
    kill_after(1, seldom, tmp_path / "war")
    other = changed(seldom, seed=5)
    with pytest.raises(FileExistsError, match="already contains a run"):  # of other settings, with logged metrics
        run_experiment(other, tmp_path / "war")
    told = []
    run_experiment(seldom, tmp_path / "war", resume=resume, on_notice=told.append)
    assert traces(tmp_path / "war") == traces(tmp_path / "peace")
    assert len(told) == 1 and "start" in told[0]


def test_a_failed_start_leaves_the_folder_usable(tmp_path, experiment):
    with pytest.raises(Exception, match=r"cuda|CUDA"):
        run_experiment(replace(experiment, model=replace(experiment.model, device="cuda")), tmp_path / "r")
    run_experiment(changed(experiment, seed=1), tmp_path / "r")


def test_a_run_without_an_evaluation_at_the_start_trains_the_same(tmp_path, experiment):
    run_experiment(experiment, tmp_path / "whole")
    run_experiment(changed(experiment, eval_on_start=False), tmp_path / "short")
    whole, short = (read_lines(tmp_path / name / "evaluation.jsonl") for name in ("whole", "short"))
    assert [row["update"] for row in whole] == [0, 2]
    assert short == whole[1:]
    assert traces(tmp_path / "short")[0] == traces(tmp_path / "whole")[0]


def test_a_finished_run_is_prolonged_and_only_the_future_may_change(tmp_path, experiment, capsys):
    run_experiment(changed(experiment, num_updates=3, eval_interval=1), tmp_path / "long")
    run_experiment(changed(experiment, eval_interval=1), tmp_path / "r")
    options = "--num-updates 3 --num-envs 2 --save-interval 5"
    assert main(["resume", str(tmp_path / "r"), *options.split()]) == 0
    assert traces(tmp_path / "r") == traces(tmp_path / "long")
    assert "num_updates: 2 until update 2, 3 afterwards" in capsys.readouterr().out
    assert read_config(tmp_path / "r")["config"]["num_updates"] == 3
    more = changed(experiment, num_updates=3, eval_interval=1, num_envs=2, save_interval=5)
    with pytest.raises(ValueError, match=r"agent_learning_rate = None, not 0.1"):
        run_experiment(changed(more, agent_learning_rate=0.1), tmp_path / "r", resume=True)
    falling = changed(experiment, learning_rate_schedule="linear")
    run_experiment(falling, tmp_path / "falling")
    with pytest.raises(ValueError, match=r"num_updates = 2, not 3 .the learning rate or the difficulty"):
        run_experiment(changed(falling, num_updates=3), tmp_path / "falling", resume=True)


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_a_resumed_run_keeps_the_default_learning_rate_of_its_model(tmp_path, experiment, monkeypatch, schedule):
    shown = []
    longer = changed(experiment, num_updates=3, learning_rate_schedule=schedule, warmup_updates=1)
    monkeypatch.setattr(NumericPolicy, "default_learning_rate", 1e-3, raising=False)
    run_experiment(longer, tmp_path / "whole")
    stop_after(2, longer, tmp_path / "r")
    assert read_config(tmp_path / "r")["learning_rates"] == dict.fromkeys(AGENTS, 1e-3)
    monkeypatch.setattr(NumericPolicy, "default_learning_rate", 0.1)
    run_experiment(longer, tmp_path / "r", resume=True, on_notice=shown.append)
    assert traces(tmp_path / "r") == traces(tmp_path / "whole")
    assert "0.001, the default" in shown[0]
    run_experiment(changed(longer, agent_learning_rate=1e-3), tmp_path / "named")
    assert "learning_rates" not in read_config(tmp_path / "named")
    assert traces(tmp_path / "named") == traces(tmp_path / "whole")


def test_a_warm_up_that_equals_the_default_may_be_left_out_on_resume(tmp_path, short_experiment):
    run_experiment(short_experiment(critic_warmup=1, num_updates=2), tmp_path / "r")
    run_experiment(short_experiment(critic_warmup=None, num_updates=2), tmp_path / "r", resume=True)
    with pytest.raises(ValueError, match="critic_warmup = 1, not 0"):
        run_experiment(short_experiment(critic_warmup=0, num_updates=2), tmp_path / "r", resume=True)


def test_records_that_are_longer_shorter_or_damaged(tmp_path, experiment, monkeypatch):
    directory = tmp_path / "r"
    run_experiment(experiment, directory)
    expected = traces(directory)
    for name in RECORDS:
        with (directory / name).open("ab") as file:  # what was logged after the checkpoint, and the power failed
            file.write(b'{"update": 3}\n\0\0\0\n{"upd')
    told = []
    run_experiment(experiment, directory, resume=True, on_notice=told.append)
    assert traces(directory) == expected and not told

    lines = (directory / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    (directory / "episodes.jsonl").write_bytes(b"".join(lines[:5]))
    run_experiment(experiment, directory, resume=True, on_notice=told.append)
    assert len(told) == 1 and "episodes.jsonl has 5 of the 8 lines up to update 2" in told[0]

    for bad in (b"\0\0\0\n", b"\xff\n", b"garbage\n", b"[1]\n", b"{}\n"):
        (directory / "episodes.jsonl").write_bytes(b"".join([*lines[:2], bad, *lines[3:]]))
        with pytest.raises(UserError, match=r"episodes\.jsonl, (from )?line 3"):
            run_experiment(experiment, directory, resume=True)


def test_lines_end_at_line_feeds_alone(tmp_path):
    rows = [{"update": 1, "text": f"a{sign}b"} for sign in "\u2028\u2029\x85\x0b\x0c\x1c\r"]
    JsonLines(tmp_path / "x.jsonl").write(rows)
    assert read_lines(tmp_path / "x.jsonl") == rows


@pytest.mark.parametrize("max_staleness", [0, 1])
def test_a_signal_stops_after_the_update_with_a_checkpoint(tmp_path, experiment, max_staleness):
    whole = changed(experiment, num_updates=3, save_interval=0, max_staleness=max_staleness)
    run_experiment(whole, tmp_path / "whole")
    rows = read_lines(tmp_path / "whole" / "episodes.jsonl")
    versions = {row["update"]: row["agents"][AGENTS[0]]["version"] for row in rows}
    assert versions == {update: max(0, update - 1 - max_staleness) for update in (1, 2, 3)}
    stopped = stop_after(1, whole, tmp_path / "r")
    assert stopped.status == 128 + signal.SIGTERM and "to resume: collm resume" in str(stopped)
    assert newest_checkpoint(tmp_path / "r").update == 1
    assert_resumes(whole, tmp_path / "r", tmp_path / "whole")


def weights_of(policies):
    return {(agent, name): tensor for agent, policy in policies.items() for name, tensor in policy.state_dict().items()}


@pytest.mark.parametrize("prolonged", [False, True])
def test_a_run_that_stopped_before_its_end_is_evaluated_as_it_then_was(tmp_path, experiment, prolonged):
    """After a stop, and after a kill, where agents/ is older than the checkpoint."""
    expected = run_experiment(changed(experiment, num_updates=3), tmp_path / "three").collector.policies
    goes_on = changed(experiment, num_updates=5, save_interval=0)
    if prolonged:
        run_experiment(experiment, tmp_path / "r")
    stop_after(3, goes_on, tmp_path / "r", resume=prolonged)
    assert (tmp_path / "r" / "agents").is_dir() == prolonged
    found = load_run(tmp_path / "r")
    assert found.update == 3
    torch.testing.assert_close(weights_of(found.policies), weights_of(expected), rtol=0, atol=0)
    end = run_experiment(goes_on, tmp_path / "r", resume=True).collector.policies
    found = load_run(tmp_path / "r")
    assert found.update == 5
    torch.testing.assert_close(weights_of(found.policies), weights_of(end), rtol=0, atol=0)
    shutil.rmtree(tmp_path / "r" / "checkpoints")  # to save room: the team is still there
    assert load_run(tmp_path / "r").update == 5


def test_a_stopped_run_of_other_policies_than_its_settings_name_says_what_writes_them(tmp_path, experiment):
    env = NumberProbe("delayed")
    spaces = env.observation_space(AGENTS[0]), env.action_space(AGENTS[0])
    own = {agent: NumericPolicy.for_spaces(*spaces, hidden_dims=(7,)) for agent in AGENTS}
    stop_after(1, experiment, tmp_path / "r", policies=own)
    with pytest.raises(UserError, match=r"stopped before its end.*: collm resume"):
        load_run(tmp_path / "r")


@pytest.mark.parametrize("decision", [1, 5])  # of the first update, of the second one
@pytest.mark.parametrize("cut", [{}, {"turns_per_update": 4, "num_envs": 2}])
def test_a_signal_while_episodes_are_played_stops_before_the_next_turn_and_loses_nothing(
    tmp_path, experiment, monkeypatch, decision, cut
):
    whole = changed(experiment, num_updates=3, save_interval=0, **cut)
    run_experiment(whole, tmp_path / "whole")
    num_decided, decided = [], RolloutCollector._decide

    def deciding(collector, plays, greedy):
        if collector.keeps_vectors:  # in training, not in evaluation
            num_decided.append(len(plays))
            if len(num_decided) == decision + 1:
                os.kill(os.getpid(), signal.SIGINT)
        return decided(collector, plays, greedy)

    monkeypatch.setattr(RolloutCollector, "_decide", deciding)
    done = decision // 4
    with StopSignals() as stop, pytest.raises(Stopped, match=f"stopped after update {done}; to resume: collm resume"):
        run_experiment(whole, tmp_path / "r", stop=stop)
    assert len(num_decided) == decision + 1
    assert newest_checkpoint(tmp_path / "r").update == done
    assert_resumes(whole, tmp_path / "r", tmp_path / "whole")


@pytest.mark.parametrize("phase", ["play", "credit", "critics", "policies"])
@pytest.mark.parametrize("share", [1 / 6, 0.0])
def test_ctrl_c_in_a_phase_undoes_the_update_if_its_state_was_copied(tmp_path, experiment, monkeypatch, phase, share):
    class Asking(Callback):
        is_done = False

        def log_progress(self, work):
            if (work.chain()[0][0].name, work.name) == ("update 2", phase) and work.done and not self.is_done:
                self.is_done = True
                os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("collm.algorithms.runs.assembly.experiment.UNDO_SHARE", share)
    whole = changed(experiment, num_updates=3, save_interval=0)
    run_experiment(whole, tmp_path / "whole")
    done = 1 if share or phase == "play" else 2
    with StopSignals() as stop, pytest.raises(Stopped, match=f"after update {done}"):
        run_experiment(whole, tmp_path / "r", stop=stop, loggers=[Asking()])
    assert newest_checkpoint(tmp_path / "r").update == done
    assert_resumes(whole, tmp_path / "r", tmp_path / "whole")


def test_a_second_ctrl_c_stops_at_once():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with StopSignals() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.number == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    signal.signal(signal.SIGINT, before)


def test_checkpoints_come_by_the_clock(tmp_path, experiment, monkeypatch):
    seconds = iter(range(0, 10_000, 100))
    monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    saved = []
    monkeypatch.setattr(running, "save_checkpoint", lambda _, trainer, *content: saved.append(trainer.progress.update))
    run_experiment(changed(experiment, num_updates=9, save_interval=0), tmp_path / "r")
    assert saved[-1] == 9 and 1 < len(saved) < 9


def test_one_process_at_a_time(tmp_path, experiment):
    with only_one(tmp_path / "r"):
        code = (
            "import sys; from pathlib import Path; from collm.algorithms.runs.files import only_one\n"
            "with only_one(Path(sys.argv[1])): pass"
        )
        second = subprocess.run([sys.executable, "-c", code, str(tmp_path / "r")], capture_output=True, text=True)
        assert second.stderr.strip().splitlines()[-1].endswith("another process trains there; wait for it to end")
        run_experiment(experiment, tmp_path / "r")  # this process holds it
    with only_one(tmp_path / "r"):  # a lock does not outlive its block
        pass


def test_a_limit_of_the_disk_leaves_the_checkpoint_and_is_one_line(tmp_path, experiment):
    def limit(update, metrics):
        if update == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, before[1]))

    longer = changed(experiment, num_updates=3)
    run_experiment(longer, tmp_path / "whole")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(RunFolderError, match=r"File too large; the checkpoint of update 1 is intact") as error:
            run_experiment(longer, tmp_path / "r", loggers=[OnUpdate(limit)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "\n" not in str(error.value)
    assert_resumes(longer, tmp_path / "r", tmp_path / "whole")
    files = [sorted(path.name for path in (tmp_path / name).rglob("*")) for name in ("r", "whole")]
    assert files[0] == files[1]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, "full"), "No space left on device"),
        (OSError(errno.EROFS, "read only"), "Read-only file system"),
        (OSError(errno.ENOENT, "gone", "elsewhere"), None),
        (PermissionError(errno.EACCES, "no", "/elsewhere/model"), None),
        (SafetensorError("Error while serializing: I/O error: No space left (os error 28)"), "No space left on device"),
        (SafetensorError("header too large"), None),
    ],
)
def test_only_what_the_folder_refused_is_explained(tmp_path, error, expected):
    with pytest.raises(type(error) if expected is None else RunFolderError) as found:
        with explained(tmp_path, lambda: "advice"):
            raise error
    if expected is not None:
        assert str(found.value) == f"{tmp_path} cannot be written: {expected}; advice"


def test_a_run_begins_with_another_run_s_policies_and_critics(tmp_path, experiment):
    source = run_experiment(experiment, tmp_path / "source")
    still = changed(experiment, num_updates=1, agent_learning_rate=0.0, critic_learning_rate=0.0, seed=7)
    trainer = run_experiment(still, tmp_path / "r", init_from=tmp_path / "source")
    assert all(torch.equal(a, b) for a, b in zip(weights(source), weights(trainer), strict=True))
    with pytest.raises(UnfitWeightsError, match="no checkpoint"):
        run_experiment(experiment, tmp_path / "third", init_from=tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("ippo --env test/Number-v0 --hidden-dims 5", r"'speaker_0': output\.weight .*\(3, 4\).*\(3, 5\)"),
        ("ippo --env test/Number-v0 --hidden-dims 4 4", r"'speaker_0': trunk\.2\.bias is missing"),
        ("iac --env test/Text-v0 --max-new-tokens 4", "'speaker_0': .* is missing"),
        ("iac --env collm/MiniBuild-v0 --max-new-tokens 4", r"'builder_0'.*\['speaker_0', 'speaker_1'\]"),
    ],
)
def test_a_start_from_other_models_costs_one_line_that_names_what_differs_and_leaves_nothing(
    tmp_path, experiment, capsys, call, problem
):
    register("test/Text-v0", TextProbe, kwargs={"probe": "delayed"})
    run_experiment(experiment, tmp_path / "source")
    before = sorted(tmp_path.rglob("*"))
    out = tmp_path / "deep" / "down" / "run"
    few = "--num-updates 2 --rollout-buffer-size 2 --eval-num-samples 2 --critic-warmup 0"
    capsys.readouterr()
    call = f"train {call} {few} --out {out} --init-from {tmp_path / 'source'}"
    assert main(call.split()) == 2
    printed = capsys.readouterr().err.splitlines()
    assert len(printed) == 1 and re.search(f"{re.escape(str(tmp_path / 'source'))}.*{problem}", printed[0]), printed
    assert sorted(tmp_path.rglob("*")) == before


def test_saved_weights_that_are_not_finite_are_named_before_any_update(tmp_path, experiment, monkeypatch):
    run_experiment(experiment, tmp_path / "r")
    older, newest = sorted((tmp_path / "r" / "checkpoints").iterdir())
    file = newest / "tensors.safetensors"
    weights = load_file(file)
    name = next(each for each in weights if "speaker_0/policy/trunk" in each)
    weights[name].view(-1)[1] = float("nan")
    save_file(weights, file)
    sums = [f"{hashlib.sha256((newest / f).read_bytes()).hexdigest()}  {f}" for f in ("state.json", file.name)]
    (newest / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    problem = rf"{newest} is damaged \(a number is not finite in {re.escape(name)}\)"
    shutil.copytree(tmp_path / "r", tmp_path / "copy")
    told = []
    run_experiment(experiment, tmp_path / "r", resume=True, on_notice=told.append)
    assert told == [f"{newest} is damaged (a number is not finite in {name}): resuming from {older}"]
    monkeypatch.setattr(Trainer, "step", None)
    problem = problem.replace(str(tmp_path / "r"), str(tmp_path / "copy"))
    shutil.rmtree(tmp_path / "copy" / "checkpoints" / older.name)
    with pytest.raises(DamagedRunError, match=f"{problem}: no checkpoint is valid"):
        run_experiment(changed(experiment, num_updates=4), tmp_path / "copy", resume=True)
    with pytest.raises(DamagedRunError, match=problem):
        run_experiment(experiment, tmp_path / "other", init_from=tmp_path / "copy")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("turns", [3, pytest.param(7, marks=pytest.mark.slow)])
def test_episodes_under_way_are_played_again(tmp_path, experiment, turns):
    cut = changed(experiment, num_updates=3, turns_per_update=turns, num_envs=3)
    spread = replace(cut, env="mpe2.simple_spread_v3:parallel_env")  # it cannot be pickled in the middle
    run_experiment(spread, tmp_path / "whole")
    kill_after(2, spread, tmp_path / "r")
    assert_resumes(spread, tmp_path / "r", tmp_path / "whole")


@pytest.mark.parametrize(
    ("env", "kwargs"),
    [
        ("os:system", {"command": "touch {}"}),
        ("subprocess:Popen", {"args": "touch {}", "shell": True}),
        ("CartPole-v1", {"env": "evil:CartPole-v1"}),
        ("gymnasium/CartPole-v1", {"env": "evil:CartPole-v1"}),
        ("gymnasium/evil:CartPole-v1", {}),
        ("evil:Env", {}),
    ],
)
def test_a_folder_runs_no_code_of_its_own(tmp_path, experiment, monkeypatch, capsys, env, kwargs):
    run_experiment(experiment, tmp_path / "r")
    mark = tmp_path / "PWNED"
    (tmp_path / "evil.py").write_text(f"open({str(mark)!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    config = read_config(tmp_path / "r")
    config |= {"env": env, "env_kwargs": {key: str(value).format(mark) for key, value in kwargs.items()}}
    (tmp_path / "r" / "config.json").write_text(json.dumps(config))
    (tmp_path / "r" / "failures").mkdir()
    (tmp_path / "r" / "failures" / "train-0.json").write_text("{}")
    calls = (["evaluate"], ["resume"], ["replay", "--episode", "0"], ["replay", "--failure", "train-0"])
    for command, *options in calls:
        assert main([command, str(tmp_path / "r"), *options]) == 2
        assert "--trust" in capsys.readouterr().err
    main(["play", "test/Number-v0", "--policy", str(tmp_path / "r")])
    main(["report", str(tmp_path / "r"), "--out", str(tmp_path / "page")])
    assert not mark.exists()
    with pytest.raises(UntrustedCodeError):
        load_experiment(tmp_path / "r")
    assert load_experiment(tmp_path / "r", trust=True).env == env


def test_a_pickle_in_a_folder_is_never_opened(tmp_path, experiment):
    import pickle

    run_experiment(experiment, tmp_path / "r")

    class Evil:
        def __reduce__(self):
            return Path.touch, (tmp_path / "PWNED",)

    for path in ("checkpoint.pt", "checkpoints/00000002/state.pt", "agents/checkpoint.pt"):
        (tmp_path / "r" / path).write_bytes(pickle.dumps(Evil()))
    run_experiment(experiment, tmp_path / "r", resume=True)
    assert not (tmp_path / "PWNED").exists()
