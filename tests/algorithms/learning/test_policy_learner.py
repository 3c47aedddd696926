"""Gradients that do not depend on how a batch is cut, log-probabilities that agree with sampling, numbers of steps."""

import gymnasium
import numpy as np
import pytest
import torch
from probes import AGENTS, TextProbe, word_policies

from collm.agents.core import Request
from collm.agents.numeric.policy import NumericPolicy
from collm.algorithms import IAC, IPPO, IACConfig, IPPOConfig
from collm.algorithms.learning.policy_learner import PolicyLearner, TurnBatch
from collm.algorithms.learning.scoring import logprobs
from collm.algorithms.rollout.collector import Plan, RolloutCollector
from collm.envs.vectors.vector import SyncVector


def rollout(count=8):
    policies = word_policies(max_new_tokens=3)
    vector = SyncVector(lambda: TextProbe("delayed"), 4)
    episodes = RolloutCollector(vector, policies).collect([Plan(seed) for seed in range(count)])
    return policies[AGENTS[0]], [tuple(turn.completion for turn in each.tracks[AGENTS[0]]) for each in episodes]


def of_vectors():
    """Return a perceptron and one track of 20 turns, which it evaluates alone."""
    policy = NumericPolicy.for_spaces(gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Discrete(2))
    rng = np.random.default_rng(0)
    return policy, [tuple(policy.act([Request("a", rng.normal(size=3), (i,)) for i in range(20)]))]


def updated(algorithm, policy, tracks):
    learner = PolicyLearner(policy, algorithm, torch.Generator().manual_seed(0))
    return learner.prepare(TurnBatch(tracks, torch.linspace(-1, 1.5, sum(len(track) for track in tracks))))()


@pytest.mark.parametrize("credit", ["turn", "token"])
def test_eight_passes_of_one_give_the_gradient_of_one_pass_of_eight(credit):
    policy, tracks = rollout()
    settings = {"max_grad_norm": 1e9, "agent_learning_rate": 0.0, "credit": credit, "entropy_coef": 0.1}
    found = []
    for max_batch_tokens in (100_000, 1):
        updated(IAC(IACConfig(max_batch_tokens=max_batch_tokens, **settings)), policy, tracks)
        found.append([weight.grad.clone() for weight in policy.parameters() if weight.grad is not None])
    assert any(each.abs().max() > 1e-3 for each in found[0])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


def test_at_the_first_step_the_policy_is_the_sampler():
    policy, tracks = rollout()
    learner = PolicyLearner(policy, IAC(IACConfig()), torch.Generator())
    assert not logprobs(learner, policy, tracks)[0].requires_grad  # a graph of all turns would stay in memory
    metrics = updated(IAC(IACConfig()), policy, tracks)
    assert metrics["logprob_error"] < 1e-4
    assert abs(metrics["kl_to_sampler"]) < 1e-6 < metrics["kl_after_update"]


@pytest.mark.parametrize(
    ("make", "settings", "num_steps"),
    [
        (rollout, {"ppo_epochs": 3, "mini_batch_size": 3}, 3 * 3),
        (of_vectors, {"ppo_epochs": 2, "mini_batch_size": 5}, 2 * 4),
        (rollout, {"ppo_epochs": 20, "clip_range": 10.0, "agent_learning_rate": 3e-3}, 20),
        (rollout, {"ppo_epochs": 20, "clip_range": 10.0, "agent_learning_rate": 3e-3, "target_kl": 0.01}, range(2, 10)),
    ],
)
def test_an_update_takes_a_step_per_mini_batch_until_it_has_gone_far_enough(make, settings, num_steps):
    metrics = updated(IPPO(IPPOConfig(**{"mini_batch_size": None, **settings})), *make())
    assert metrics["optimizer_steps"] in (num_steps if isinstance(num_steps, range) else (num_steps,))
