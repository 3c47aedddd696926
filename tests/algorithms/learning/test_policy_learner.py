"""Gradients that do not depend on how a batch is cut, log-probabilities that agree with sampling, options that act."""

from __future__ import annotations

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


def rollout(count=8, **settings):
    policies = word_policies(max_new_tokens=3, **settings)
    vector = SyncVector(lambda: TextProbe("delayed"), 4)
    episodes = RolloutCollector(vector, policies).collect([Plan(seed) for seed in range(count)])
    tracks = [tuple(turn.completion for turn in each.tracks[AGENTS[0]]) for each in episodes]
    return policies[AGENTS[0]], tracks


def batch(tracks, **more):
    num_turns = sum(len(track) for track in tracks)
    return TurnBatch(tracks, torch.linspace(-1, 1.5, num_turns), **more)


def algorithm_of(config):
    return IPPO(config) if isinstance(config, IPPOConfig) else IAC(config)


def learned(config, tracks_of=rollout, **more):
    """Metrics of an update, and the weights before and after."""
    policy, tracks = tracks_of()
    learner = PolicyLearner(policy, algorithm_of(config), torch.Generator().manual_seed(0))
    before = [weight.detach().clone() for weight in policy.parameters()]
    metrics = learner.prepare(batch(tracks, **{name: make(tracks) for name, make in more.items()}))()
    return metrics, before, [weight.detach() for weight in policy.parameters()], policy


def gradient(policy, tracks, max_batch_tokens, **settings):
    """The gradient of one step over all tracks, before any clipping."""
    found = {}
    config = IACConfig(max_batch_tokens=max_batch_tokens, max_grad_norm=1e9, agent_learning_rate=0.0, **settings)
    learner = PolicyLearner(policy, algorithm_of(config), torch.Generator())
    learner.optimizer.step = lambda norm: bool(
        found.setdefault("gradient", [w.grad.clone() for w in policy.parameters() if w.grad is not None])
    )
    learner.prepare(batch(tracks))()
    return found["gradient"]


@pytest.mark.parametrize("credit", ["turn", "token"])
def test_eight_passes_of_one_give_the_gradient_of_one_pass_of_eight(credit):
    policy, tracks = rollout()
    together = gradient(policy, tracks, 100_000, credit=credit, entropy_coef=0.1)
    one_by_one = gradient(policy, tracks, 1, credit=credit, entropy_coef=0.1)
    assert any(each.abs().max() > 1e-3 for each in together)
    for a, b in zip(together, one_by_one, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


def test_at_the_first_step_the_policy_is_the_sampler():
    metrics, *_ = learned(IACConfig())
    assert metrics["logprob_error"] < 1e-4
    assert abs(metrics["kl_to_sampler"]) < 1e-6


@pytest.mark.parametrize(("rate", "is_absurd"), [(1e-3, False), (3.0, True)])
def test_an_update_that_destroys_a_policy_is_seen_in_the_update_itself(rate, is_absurd):
    metrics, *_ = learned(IACConfig(agent_learning_rate=rate))
    assert abs(metrics["kl_to_sampler"]) < 1e-6  # measured before the step
    assert (metrics["kl_after_update"] > 1.0) == is_absurd
    assert metrics["kl_after_update"] > 0


def test_the_policy_gradient_raises_what_went_well_and_lowers_what_did_not():
    policy, tracks = rollout()
    learner = PolicyLearner(policy, IAC(IACConfig(agent_learning_rate=1e-3)), torch.Generator())
    before = torch.stack([each.sum() for each in logprobs(learner, policy, tracks)])
    assert not before.requires_grad  # a graph of all turns would stay in memory for nothing
    turns = [len(track) for track in tracks]
    advantages = torch.cat([torch.full((n,), 1.0 if i % 2 else -1.0) for i, n in enumerate(turns)])
    for _ in range(3):
        learner.prepare(TurnBatch(tracks, advantages))()
    after = torch.stack([each.sum() for each in logprobs(learner, policy, tracks)])
    assert ((after - before)[1::2].mean() > 0) and ((after - before)[::2].mean() < 0)


def test_several_epochs_move_away_from_the_sampler_and_the_clip_holds_them_back():
    moved = {}
    for clip_range in (0.05, 10.0):
        config = IPPOConfig(
            ppo_epochs=10, mini_batch_size=None, clip_range=clip_range, agent_learning_rate=3e-3, credit="token"
        )
        moved[clip_range] = learned(config)[0]
    assert moved[10.0]["kl_to_sampler"] > moved[0.05]["kl_to_sampler"] > 0
    assert moved[0.05]["clip_fraction"] > moved[10.0]["clip_fraction"]


def test_an_update_stops_once_it_has_gone_far_enough():
    config = {"ppo_epochs": 20, "mini_batch_size": None, "clip_range": 10.0, "agent_learning_rate": 3e-3}
    assert learned(IPPOConfig(**config))[0]["optimizer_steps"] == 20
    assert learned(IPPOConfig(**config, target_kl=0.01))[0]["optimizer_steps"] < 10


def test_mini_batches_are_the_epochs_parts_in_an_order_of_their_own():
    metrics, *_ = learned(IPPOConfig(ppo_epochs=3, mini_batch_size=3))
    assert metrics["optimizer_steps"] == 3 * 3


def test_turns_of_vectors_are_learned_in_any_grouping():
    space = gymnasium.spaces.Box(-1, 1, (3,))

    def tracks_of():
        policy = NumericPolicy.for_spaces(space, gymnasium.spaces.Discrete(2))
        rng = np.random.default_rng(0)
        requests = [Request("a", rng.normal(size=3), (i,)) for i in range(20)]
        return policy, [tuple(policy.act(requests))]

    metrics, *_ = learned(IPPOConfig(ppo_epochs=2, mini_batch_size=5), tracks_of)
    assert metrics["optimizer_steps"] == 2 * 4


def test_the_entropy_bonus_makes_replies_less_certain():
    entropies = []
    for coefficient in (0.0, 5.0):
        policy, tracks = rollout()
        config = IACConfig(agent_learning_rate=3e-3, entropy_coef=coefficient)
        learner = PolicyLearner(policy, algorithm_of(config), torch.Generator())
        for _ in range(3):
            learner.prepare(batch(tracks))()
        entropies.append(policy.evaluate(tracks).entropies.mean().item())
    assert entropies[1] > entropies[0]


@pytest.mark.parametrize("estimator", [None, "k2", "k3"])
def test_the_price_in_the_loss_pulls_towards_the_reference(estimator):
    policy, tracks = rollout()
    anchor = policy.reference()
    with torch.no_grad():
        for weight in policy.parameters():
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)) * 0.05)
    config = IACConfig(agent_learning_rate=1e-2, reference_kl_coef=1.0, reference_kl_estimator=estimator)
    learner = PolicyLearner(policy, algorithm_of(config), torch.Generator())
    anchors = torch.cat(logprobs(learner, anchor, tracks))
    distances = []
    for _ in range(8):
        zeros = torch.zeros(sum(len(track) for track in tracks))
        metrics = learner.prepare(TurnBatch(tracks, zeros, reference_logprobs=anchors))()
        distances.append(metrics["reference_kl"])
    assert distances[-1] < distances[0] / 2


def test_a_value_head_learns_with_the_policy_and_a_clip_slows_it():
    def tracks_of():
        return rollout(has_value_head=True)

    def zeros(tracks):
        return torch.zeros(sum(len(track) for track in tracks))

    def ones(tracks):
        return zeros(tracks) + 1

    losses = {}
    for clip_range in (None, 0.001):
        policy, tracks = tracks_of()
        config = IACConfig(use_separate_critic=False, value_clip_range=clip_range, agent_learning_rate=1e-2)
        learner = PolicyLearner(policy, algorithm_of(config), torch.Generator())
        for _ in range(10):
            batch = TurnBatch(tracks, zeros(tracks), targets=ones(tracks), old_values=zeros(tracks))
            metrics = learner.prepare(batch)()
        losses[clip_range] = metrics["value_loss"], policy.evaluate(tracks).values.mean().item()
    assert losses[None][1] > 0.5
    assert losses[0.001][1] < losses[None][1]  # beyond the clip the gradient is gone


def test_the_value_loss_counts_by_its_coefficient():
    def tracks_of():
        return rollout(has_value_head=True)

    targets = {"targets": lambda tracks: torch.ones(sum(len(track) for track in tracks))}
    small = learned(IACConfig(use_separate_critic=False, value_loss_coef=0.0), tracks_of, **targets)
    large = learned(IACConfig(use_separate_critic=False, value_loss_coef=10.0), tracks_of, **targets)
    assert large[0]["grad_norm"] > 2 * small[0]["grad_norm"]


def test_gradients_are_clipped_and_what_is_not_finite_is_refused():
    policy, tracks = rollout()
    learner = PolicyLearner(policy, IAC(IACConfig(max_grad_norm=1e-12, weight_decay=0.0)), torch.Generator())
    assert learner.prepare(batch(tracks))()["grad_norm"] > 1e-3  # what is reported is the norm before
    with torch.no_grad():
        policy.parameters()[0][0, 0] = float("nan")
    weights = [weight.detach().clone() for weight in policy.parameters()]
    with pytest.raises(FloatingPointError, match="lower the learning rate"):
        learner.prepare(batch(tracks))()
    for a, b in zip(weights, policy.parameters(), strict=True):
        torch.testing.assert_close(a, b.detach(), equal_nan=True)
