"""`examples/maac_single_file.py` computes what the library's MAAC computes, and learns."""

import ast
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import torch

from collm.agents.config import ModelConfig
from collm.agents.core import SMALL_LEARNING_RATE
from collm.algorithms import MAAC, MAACConfig
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.envs.registration.registry import spec
from examples import maac_single_file as single_file

PATH = Path(single_file.__file__)
UPDATES = {"seed": 0, "num_updates": 2, "critic_warmup": 1}
EPSILON = 1e-3
"""Epsilon of Adam. With 1e-8 the first step is the sign of the gradient, even if that is a rounding error."""
RELATIVE = 1e-5  # relative tolerance of numbers and of weights


class Replayed:
    """The library's trainer, and the example that learns from the same episodes."""

    def __init__(self):
        config = MAACConfig(critic_model_name_or_path="actor", adam=(0.9, 0.999, EPSILON), **UPDATES)
        parts = {"env": single_file.ENV, "env_kwargs": single_file.ENV_KWARGS}
        self.trainer = Experiment(algorithm="maac", config=config, **parts).make_trainer()
        self.example = single_file.MAAC(single_file.Settings(adam_epsilon=EPSILON, **UPDATES))
        self.updates = []
        for update in range(UPDATES["num_updates"]):
            theirs, metrics = self.trainer.step()
            ours = single_file.play([episode.seed for episode in theirs], sampler_of(theirs))
            advantages, targets = self.example.credit(ours)
            learned = self.example.learn(update, ours)
            self.updates.append((theirs, ours, self.trainer.credits, advantages, targets, metrics, learned))


def sampler_of(episodes):
    """Return a sampling function that repeats the replies of recorded episodes, in order."""
    turns = {
        agent: iter(zip(*(episode.tracks[agent] for episode in episodes), strict=True)) for agent in single_file.AGENTS
    }

    def sample(agent, prompts):
        recorded = [turn.completion.tokens for turn in next(turns[agent])]
        assert prompts == [tokens.prompt_ids.tolist() for tokens in recorded]
        return [tokens.completion_ids.tolist() for tokens in recorded]

    return sample


def distance(ours, theirs):
    one, other = (torch.cat([weights[name].double().flatten() for name in theirs]) for weights in (ours, theirs))
    return float((one - other).norm() / other.norm())


@pytest.fixture(scope="module")
def replayed():
    return Replayed()


def test_rewards_advantages_targets_and_losses_are_the_librarys(replayed):
    for theirs, ours, *_ in replayed.updates:  # `sampler_of` compares the prompts
        assert [episode.team_rewards for episode in theirs] == [episode.rewards for episode in ours]
        assert 0 < sum(episode.team_return for episode in theirs) < len(theirs)
    for _, _, credits, advantages, targets, *_ in replayed.updates:
        for credit in credits.values():
            torch.testing.assert_close(advantages.flatten(), credit.advantages, rtol=RELATIVE, atol=RELATIVE)
            torch.testing.assert_close(targets.flatten(), credit.targets, rtol=RELATIVE, atol=RELATIVE)
    assert len(set(replayed.updates[1][3].flatten().tolist())) > 100, "values tell the turns of an episode apart"
    names = {"value_loss", "critic_grad_norm", "policy_loss", "grad_norm"}
    for update, (*_, metrics, learned) in enumerate(replayed.updates):
        assert learned.keys() == (names if update else {"value_loss", "critic_grad_norm"})
        # The policy loss is a small mean of numbers near 1, hence the absolute tolerance.
        assert learned == pytest.approx({name: metrics[name] for name in learned}, rel=RELATIVE, abs=RELATIVE)


def test_the_first_updated_weights_are_the_librarys(replayed):
    before = single_file.MAAC(single_file.Settings())
    for agent, learner in replayed.trainer.learners.items():
        theirs = {name.removeprefix("model."): weight for name, weight in learner.policy.state_dict().items()}
        ours = replayed.example.actors[agent].state_dict()
        assert distance(ours, theirs) < RELATIVE
        assert distance(before.actors[agent].state_dict(), theirs) > 100 * RELATIVE, "the step is no rounding error"
    theirs = replayed.trainer.critics["joint"].critic.state_dict()
    assert distance(replayed.example.critic.state_dict(), theirs) < RELATIVE
    assert distance(before.critic.state_dict(), theirs) > 100 * RELATIVE


def test_defaults_are_the_librarys():
    config, model = MAACConfig(), ModelConfig()
    given = {"agent_learning_rate": SMALL_LEARNING_RATE, "max_new_tokens": spec(single_file.ENV).max_new_tokens}
    given |= {"adam_epsilon": config.adam[2], "critic_warmup": MAAC(config).critic_warmup}
    assert (config.agent_learning_rate, model.max_new_tokens) == (None, None)
    for each in fields(single_file.Settings):
        assert each.default == given.get(each.name, getattr(config, each.name, None)), each.name
    assert (config.estimator, config.critic_target, config.credit) == ("gae", "monte_carlo", "turn")
    assert (config.advantage_normalization, config.clip_range, config.ppo_epochs) == ("batch", None, 1)
    assert (config.value_normalization, config.weight_decay, config.reference_kl_coef) == (True, 0, 0)


def test_the_file_fits_on_a_few_screens_and_uses_no_trainer():
    nodes = list(ast.walk(ast.parse(PATH.read_text())))
    found = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    found |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    used = {name for name in found if name.startswith("collm")}
    assert used == {"collm.agents.tiny", "collm.envs", "collm.envs.core"}
    assert len(PATH.read_text().splitlines()) <= 250


def test_a_few_updates_run_offline(tmp_path):
    small = ["--num-updates", "2", "--rollout-buffer-size", "2", "--critic-warmup", "1"]
    done = subprocess.run([sys.executable, str(PATH), *small], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("update 1: return ") and "policy_loss" not in first
    assert second.startswith("update 2: return ") and "policy_loss" in second


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_team_learns(seed):
    """The share of parts that are built right starts near 0.71."""
    returns = single_file.train(single_file.Settings(seed=seed, num_updates=20))
    assert sum(returns[:3]) / 3 < 0.75 < 0.8 < sum(returns[-3:]) / 3
