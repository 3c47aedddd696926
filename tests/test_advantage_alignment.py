"""The example of Advantage Alignment equals the paper's formula, and runs as a plugin."""

import importlib.util
import sys

import pytest
import torch

from collm.agents.core import Completion
from collm.algorithms.learning.credit import agent_grid
from collm.algorithms.rollout.episode import Episode, Turn


@pytest.fixture(scope="module")
def example(root):
    spec = importlib.util.spec_from_file_location("advantage_alignment", root / "examples" / "advantage_alignment.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_aligned_advantages_equal_the_formula(example):
    own, theirs = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = own.clone()
    for turn in range(4):
        past = sum(0.9 ** (turn - k) * own[:, k] for k in range(turn))
        expected[:, turn] += 2.0 * 0.9 * past * theirs[:, turn]
    found = example.aligned_advantages(own, theirs, 0.9, 2.0)
    assert float((found - expected).abs().max()) <= 1e-6


def test_the_other_agent_s_advantages_come_from_its_own_rewards(example):
    def episode(index, *rewards):
        tracks = {
            agent: tuple(Turn(0.0, Completion(0), reward, time) for time, reward in enumerate(each))
            for agent, each in zip("ab", rewards, strict=True)
        }
        return Episode(index, 0, 0, tracks, (), dict.fromkeys("ab"), dict.fromkeys("ab", True), ({}, {}))

    episodes = [episode(0, (1.0, 0.0), (0.0, 3.0)), episode(1, (0.0, 0.0), (0.0, 1.0))]
    settings = example.AlignmentConfig(num_generations=2, rollout_buffer_size=2, discount=1.0, weight=0.5)
    found = example.AdvantageAlignment(settings).advantages(agent_grid(episodes, "a", None))
    assert found.tolist() == [[1.0, 0.0 + 0.5 * 1.0 * 2.0], [-1.0, 0.0 + 0.5 * -1.0 * -2.0]]


@pytest.mark.slow
def test_the_example_trains(example, tmp_path, clean_registry, capsys):
    example.main(1, 1.0, str(tmp_path / "run"))
    assert "return" in capsys.readouterr().out
