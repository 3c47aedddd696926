"""`train`, `evaluate`, `load_team`."""

from __future__ import annotations

import re

import pytest
from probes import TextProbe, word_policy

import collm
from collm.agents import TrainablePolicy, fixed_policy
from collm.algorithms import Experiment, MAACConfig
from collm.algorithms.runs.api import load_run
from collm.algorithms.runs.assembly.trust import UntrustedCodeError
from collm.benchmarks.cli import main
from collm.envs.wrappers import RewardFunctions, Shares
from collm.envs.writing import MiniWriting

SMALL = {"num_updates": 2, "rollout_buffer_size": 4, "eval_num_samples": 4, "max_new_tokens": 8, "progress": False}
WRITING = "collm/MiniWriting-v2"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return collm.train("maac", env=WRITING, out=tmp_path_factory.mktemp("runs") / "maac", critic_warmup=1, **SMALL)


def test_a_run_has_metrics_a_team_evaluations_and_texts_for_notebooks(run):
    assert [row["update"] for row in run.metrics] == [1, 2]
    assert [row["update"] for row in run.evaluations] == [0, 2]
    assert len(run.episodes) == 8
    assert set(run.policies) == {"writer_0", "writer_1"}
    assert isinstance(run.experiment.config, MAACConfig)
    assert Experiment.from_json(run.experiment.to_json()) == run.experiment
    assert repr(run) == f"Run({str(run.directory)!r}: maac on {WRITING}, update 2)"
    result = run.evaluate(4)
    assert repr(result) == f"EvaluationResult(4 episodes, return {result.team_return})"
    text = str(result.best)
    for agent, track in result.best.tracks.items():
        assert f"--- {agent}\npost: " in text and track[0].completion.action.strip()[:8] in text
    assert text.startswith(f"seed {result.best.seed}, return {result.best.team_return:.3f}\n")


def test_a_run_that_is_at_its_end_says_how_it_goes_on(run, capsys):
    assert main(["resume", str(run.directory)]) == 0
    printed = capsys.readouterr().out
    assert f": collm resume {run.directory}" in printed and "greedy" not in printed


def test_a_team_plays_from_its_folder_as_it_does_in_memory_and_in_another_environment(run):
    here = run.evaluate(4)
    assert collm.evaluate(run.directory, 4).team_return == here.team_return
    assert collm.evaluate(run, 4).team_return == here.team_return
    assert set(collm.load_team(run.directory)) == set(run.policies)
    found = collm.evaluate(run, 4, env="collm/MiniWriting-v2", split="train")
    assert len(found.episodes) == 4
    with pytest.raises(ValueError, match="num_episodes must be at least 1"):
        run.evaluate(0)


@pytest.mark.parametrize(
    ("given", "error", "reason"),
    [
        ({"num_update": 3}, TypeError, "'maac' has no setting 'num_update'; did you mean 'num_updates'?"),
        ({"xyzzy": 3}, TypeError, "`collm train maac --help-all` lists them"),
        ({"env": "collm/MiniWritin-v0"}, LookupError, "did you mean 'collm/MiniWriting-v2'"),
        ({"env": 3}, TypeError, "env must be an id, an environment, or a class or function that returns one, got 3"),
        ({"algorithm": "mack"}, LookupError, "did you mean"),
        ({"policies": {"nobody_0": fixed_policy("")}}, ValueError, "policies are given for ['nobody_0']"),
        ({"algorithm": "magrpo", "critics": {}}, ValueError, "MAGRPO"),
    ],
)
def test_what_is_wrong_is_refused_in_one_line(given, error, reason, tmp_path):
    call = {"algorithm": "maac", "env": WRITING, "out": tmp_path / "run", "progress": False}
    with pytest.raises(error, match=re.escape(reason)):
        collm.train(**(call | given))


def test_an_environment_may_be_an_object_or_what_builds_one(tmp_path):
    def trained(name, env, policies=None):
        return collm.train("magrpo", env, policies=policies, num_generations=2, out=tmp_path / name, **SMALL)

    by_object = trained("object", collm.make(WRITING, split="train"))
    assert by_object.experiment.env == WRITING and by_object.experiment.env_kwargs == {"split": "train"}
    assert load_run(trained("class", MiniWriting).directory).experiment.env == WRITING
    policies = {agent: word_policy(i) for i, agent in enumerate(TextProbe("constant").possible_agents)}
    built = trained("factory", lambda: TextProbe("constant"), policies)
    assert built.experiment.env.startswith("unregistered/")
    copied = trained("copied", TextProbe("constant"), lambda seat: word_policy(int(seat.agent[-1])))
    returns = [[row["return"] for row in each.metrics] for each in (built, copied)]
    assert returns[0] == returns[1]


def test_a_partner_that_does_not_learn_plays_along_and_a_logger_gets_every_update(tmp_path):
    seen: list[int] = []

    class Logger:
        def log(self, step, metrics):
            assert "return" in metrics
            seen.append(step)

        def close(self):
            seen.append(-1)

    call = {"policies": {"writer_1": fixed_policy("the fox")}, "critic_warmup": 1, "loggers": [Logger()]}
    run = collm.train("maac", env=WRITING, out=tmp_path / "run", **call, **SMALL)
    assert seen == [1, 2, -1]
    assert isinstance(run.policies["writer_0"], TrainablePolicy)
    assert not isinstance(run.policies["writer_1"], TrainablePolicy)
    assert {turn["wrote"] for row in run.episodes for turn in row["agents"]["writer_1"]["turns"]} == {"the fox"}


def brevity(turn) -> float:
    """A reward function: minus the words of the team."""
    return -float(sum(len(reply.split()) for reply in turn.replies.values()))


def shares_of(row: dict) -> dict:
    return {name: value for name, value in row.items() if "metric/share/" in name}


def test_shares_of_the_work_are_told_in_evaluations_and_not_in_training(run):
    assert not any(map(shares_of, run.metrics))
    assert all(sum(shares_of(row).values()) == pytest.approx(2.0) for row in run.evaluations)  # sampled and greedy
    assert sum(shares_of(run.evaluate(3).metrics).values()) == pytest.approx(1.0)


def test_a_wrapper_that_is_passed_as_an_object_is_trained_in_and_so_are_its_shares(tmp_path):
    wrapped = Shares(RewardFunctions(collm.make(WRITING), ["own", brevity], [1.0, 0.001]))
    run = collm.train("mareinforce", wrapped, out=tmp_path / "run", num_generations=2, **SMALL)
    for row in run.metrics:
        assert row["return"] == pytest.approx(row["reward/own"] + row["reward/brevity"])
        assert row["reward/brevity"] < 0
    assert any(map(shares_of, run.metrics))


@pytest.mark.slow
def test_reward_functions_by_name_are_part_of_a_run_s_settings(tmp_path, monkeypatch):
    judged = {"reward_funcs": ["own", f"{__name__}:brevity"], "reward_weights": [1.0, 0.5]}
    run = collm.train("mareinforce", WRITING, env_kwargs=judged, out=tmp_path / "run", num_generations=2, **SMALL)
    assert all(row["return"] == pytest.approx(row["reward/own"] + row["reward/brevity"]) for row in run.metrics)
    assert load_run(run.directory).evaluate(2).metrics["reward/brevity"] < 0
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # of another user
    with pytest.raises(UntrustedCodeError, match="--trust"):
        load_run(run.directory)
