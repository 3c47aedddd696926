"""The bench from the command line, on the embedded model: every number is there, and nothing is measured twice."""

from __future__ import annotations

import json

import pytest
import torch

from collm.agents.config import ModelConfig
from collm.agents.core import Request
from collm.agents.loading import load_policies
from collm.benchmarks.cli import main
from collm.benchmarks.variance.bench import LEARNED, WITHOUT_TRACE, turn_gradients
from collm.envs import make

SMALL = "--rewards terminal --horizons 2 --known 12 --groups 2 --group-size 2 --branches 2 --traces 0 1".split()


def test_gradients_of_turns_add_up_to_that_of_the_track():
    env = make("collm/MiniShift-v0", max_turns=3)
    observations, _ = env.reset(seed=0)
    policy = load_policies(ModelConfig(max_new_tokens=8), ["builder_0"])["builder_0"]
    track = []
    while env.agents:
        track += policy.act([Request("builder_0", observations["builder_0"], (0, 0, 0, env.unwrapped.turn))])
        observations = env.step({"builder_0": track[-1].action, "builder_1": ""})[0]
    rows = turn_gradients(policy, track)
    weights = policy.parameters()
    whole = torch.autograd.grad(policy.evaluate([track]).logprobs.sum(), weights, materialize_grads=True)
    assert rows.shape == (3, sum(each.numel() for each in weights))
    torch.testing.assert_close(rows.sum(dim=0), torch.cat([each.flatten() for each in whole]), rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_critics_may_be_of_another_kind_and_lie_beside_the_others(tmp_path):
    larger = "--rewards terminal --horizons 3 --known 24 --groups 5 --group-size 3 --gradient-groups 2".split()
    for critic in ([], ["--critic", "bag_of_words"]):
        assert main(["benchmark", "variance", "run", *larger, *critic, "--out", str(tmp_path)]) == 0
    small, words = (json.loads(file.read_text()) for file in sorted(tmp_path.glob("*.json"), key=lambda f: len(f.name)))
    assert (small["critic"], words["critic"]) == ("small", "bag_of_words")
    for name, same in (("joint", False), ("own", False), ("ideal table", True)):
        assert (small["explained_share"][name] == words["explained_share"][name]) is same
    assert "critic bag_of_words |" in (tmp_path / "README.md").read_text()


@pytest.mark.slow
def test_a_cell_is_measured_once_and_drawn(tmp_path, capsys):
    call = ["benchmark", "variance", "run", *SMALL, "--out", str(tmp_path)]
    assert main(call) == 0
    (file,) = tmp_path.glob("*.json")
    found = json.loads(file.read_text())
    kinds = [(row["critic"], row["trace"]) for row in found["rows"]]
    assert kinds == [*((name, 1.0) for name in WITHOUT_TRACE), *((name, trace) for name in LEARNED for trace in (0, 1))]
    assert all(row["gradient_variance"] >= 0 for row in found["rows"])
    kept = file.read_text()
    assert main(call) == 0 and file.read_text() == kept
    for name in ("correlation.png", "samples.png"):
        assert (tmp_path / name).stat().st_size > 5000
    assert "| joint |" in (tmp_path / "README.md").read_text()
    file.unlink()
    assert main(call) == 0 and file.read_text() == kept, "measured again, it is the same to the digit"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("run --policies tiny", "NAME=MODEL"),
        ("run --groups 1", "compares nothing"),
        ("run --gradient-groups 1", "not between 2 and --groups 16"),
        ("run --branches 3", "even number"),
        ("table", "holds no cells"),
    ],
)
def test_mistakes_are_one_line(tmp_path, capsys, options, message):
    assert main(["benchmark", "variance", *options.split(), "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
