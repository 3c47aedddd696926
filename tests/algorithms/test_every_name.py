"""Every algorithm that was asked for is there under its name, and one update of it runs from the command line."""

import math

import pytest

from collm.algorithms import ActorCriticConfig, algorithm_spec
from collm.algorithms.runs.loggers import read_lines
from collm.benchmarks.cli import main

ASKED_FOR = ("iac", "maac", "ippo", "mappo", "mareinforce", "magrpo", "marloo", "maremax", "collm-dc", "collm-cc")
ASKED_FOR += ("dr-grpo", "dapo", "gspo", "at-grpo", "dr-mas", "m-grpo", "rae", "difference", "coma", "c3")
TEXT_ONLY = ("difference", "coma")


def test_the_help_lists_every_algorithm(capsys):
    assert main(["train", "--help"]) == 0
    rows = capsys.readouterr().out.split("algorithms:\n")[1].split("\n\n")[0].splitlines()
    listed = {name: summary for name, summary in (row.split(None, 1) for row in rows)}
    assert set(ASKED_FOR) <= set(listed) and all(listed.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "env"),
    [
        (name, env)
        for name in ASKED_FOR
        for env in ("collm/MiniWriting-v2", "gymnasium/CartPole-v1")
        if name not in TEXT_ONLY or env.startswith("collm/")
    ],
)
def test_one_update_runs_from_the_command_line(name, env, tmp_path):
    call = ["train", name, "--env", env, "--out", str(tmp_path / "run"), "--num-updates", "1", "--max-new-tokens", "8"]
    call += ["--rollout-buffer-size", "16", "--eval-num-samples", "2"]
    if issubclass(algorithm_spec(name).config, ActorCriticConfig):
        call += ["--critic-steps", "1"]
    assert main(call) == 0
    (update,) = [line for line in read_lines(tmp_path / "run" / "metrics.jsonl") if "policy_loss" in line]
    assert update["update"] == 1 and math.isfinite(update["policy_loss"]) and update["grad_norm"] >= 0
    assert list((tmp_path / "run" / "agents").rglob("*.safetensors"))


@pytest.mark.parametrize("name", TEXT_ONLY)
def test_rules_of_replies_refuse_other_actions_in_one_line(name, tmp_path, capsys):
    assert main(["train", name, "--env", "gymnasium/CartPole-v1", "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err.strip()
    assert "replies" in error and "Traceback" not in error
