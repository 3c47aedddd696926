"""Weights that learn are kept in 32 bits: at learning rates near 1e-6 a step is smaller than 16 bits can tell."""

from __future__ import annotations

import pytest
import torch
from probes import AGENTS, TextProbe, random_llama, word_policy, word_tokenizer

from collm.agents.config import ModelConfig
from collm.agents.language.policy import LanguageModel, LanguagePolicy
from collm.agents.loading import load_language_model, load_policies
from collm.algorithms import IAC, IACConfig
from collm.algorithms.learning.policy_learner import PolicyLearner, TurnBatch
from collm.algorithms.rollout.collector import Plan, RolloutCollector
from collm.envs.vectors.vector import SyncVector

RATE = 1e-6


def moved_share(policy):
    """Of the weights, after one step at this rate."""
    vector = SyncVector(lambda: TextProbe("delayed"), 4)
    collector = RolloutCollector(vector, {AGENTS[0]: policy, AGENTS[1]: word_policy(1)})
    episodes = collector.collect([Plan(seed) for seed in range(8)])
    tracks = [tuple(turn.completion for turn in each.tracks[AGENTS[0]]) for each in episodes]
    learner = PolicyLearner(policy, IAC(IACConfig(agent_learning_rate=RATE)), torch.Generator())
    before = [weight.detach().clone() for weight in policy.parameters()]
    metrics = learner.update(TurnBatch(tracks, torch.linspace(-1, 1.5, sum(len(track) for track in tracks))))
    after = policy.parameters()
    moved = sum(int((a != b).sum()) for a, b in zip(before, after, strict=True))
    felt = sum(int((weight.grad != 0).sum()) for weight in after)
    return moved / felt, metrics


def bf16(model):
    return LanguagePolicy(LanguageModel(model, word_tokenizer(), compute_dtype=torch.bfloat16), max_new_tokens=2)


def test_updates_at_1e_6_arrive_in_fp32_weights_under_bf16_compute():
    share, metrics = moved_share(bf16(random_llama()))
    assert share > 0.99
    assert metrics["grad_norm"] > 0


def test_the_same_updates_are_lost_in_bf16_weights():
    share, _ = moved_share(bf16(random_llama().to(torch.bfloat16)))
    assert share < 0.1


def test_steps_that_are_too_small_for_16_bits_add_up():
    policy = bf16(random_llama())
    weight = policy.parameters()[0]
    start = weight.detach().clone()
    for _ in range(20):
        moved_share(policy)
    assert float((weight.detach() - start).abs().max()) > 10 * RATE


def gradients_of_small_advantages(dtype, *, scales_loss=True):
    """Of advantages around 1e-6, whose gradients are below what float16 can hold."""
    policy = LanguagePolicy(LanguageModel(random_llama(), word_tokenizer(), compute_dtype=dtype), max_new_tokens=2)
    vector = SyncVector(lambda: TextProbe("delayed"), 4)
    collector = RolloutCollector(vector, {AGENTS[0]: word_policy(0, max_new_tokens=2), AGENTS[1]: word_policy(1)})
    episodes = collector.collect([Plan(seed) for seed in range(8)])
    tracks = [tuple(turn.completion for turn in each.tracks[AGENTS[0]]) for each in episodes]
    learner = PolicyLearner(policy, IAC(IACConfig(agent_learning_rate=0.0)), torch.Generator())
    if not scales_loss:
        learner.optimizer.scaler = torch.amp.GradScaler("cpu", enabled=False)
    metrics = learner.update(TurnBatch(tracks, 1e-6 * torch.linspace(-1, 1.5, sum(len(track) for track in tracks))))
    return torch.cat([weight.grad.flatten() for weight in policy.parameters()]), metrics


def test_gradients_that_float16_cannot_hold_are_scaled_into_its_range():
    exact, _ = gradients_of_small_advantages(None)
    scaled, metrics = gradients_of_small_advantages(torch.float16)
    plain, _ = gradients_of_small_advantages(torch.float16, scales_loss=False)
    assert float((scaled - exact).norm() / exact.norm()) < 0.02
    assert float((plain - exact).norm() / exact.norm()) > 0.5  # most has rounded to 0
    assert metrics["grad_norm"] == pytest.approx(float(exact.norm()), rel=0.02)


def test_a_scale_that_overflows_is_halved_until_the_gradient_fits():
    policy = LanguagePolicy(LanguageModel(random_llama(), word_tokenizer(), compute_dtype=torch.float16))
    optimizer = PolicyLearner(policy, IAC(IACConfig()), torch.Generator()).optimizer
    weight = policy.parameters()[0]
    before = weight.detach().clone()
    optimizer.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**100)
    steps = []
    while not steps or steps[-1] is None:
        optimizer.zero_grad()
        optimizer.backward(weight.sum() * 1e10)
        steps.append(optimizer.step(float(optimizer.clip())))
        assert steps[-1] is not None or torch.equal(weight, before)
    assert 1 < len(steps) < 20
    assert steps[-1] == pytest.approx(1e10 * weight.numel() ** 0.5, rel=1e-4)
    assert not torch.equal(weight, before)
    again = PolicyLearner(policy, IAC(IACConfig()), torch.Generator()).optimizer
    again.load_state_dict(optimizer.state_dict())
    assert again.scaler.get_scale() == optimizer.scaler.get_scale()


def test_what_is_not_finite_at_any_scale_is_refused():
    policy = LanguagePolicy(LanguageModel(random_llama(), word_tokenizer(), compute_dtype=torch.float16))
    optimizer = PolicyLearner(policy, IAC(IACConfig()), torch.Generator()).optimizer
    with pytest.raises(FloatingPointError, match="norm is nan"):
        for _ in range(30):
            optimizer.zero_grad()
            optimizer.backward(policy.parameters()[0].sum() * float("nan"))
            optimizer.step(float(optimizer.clip()))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_what_a_run_trains_is_fp32_whatever_it_computes_in(dtype, tmp_path):
    random_llama().to(torch.bfloat16).save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    config = ModelConfig(model=str(tmp_path), compute_dtype=dtype, device="cpu")
    policies = load_policies(config, AGENTS, has_value_head=True)
    assert {weight.dtype for policy in policies.values() for weight in policy.parameters()} == {torch.float32}


def test_adapters_are_fp32_on_a_frozen_base_of_16_bits(tmp_path):
    random_llama().save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    config = ModelConfig(model=str(tmp_path), weights="adapters", compute_dtype="bfloat16", device="cpu", lora_rank=2)
    policies = load_policies(config, AGENTS)
    assert {weight.dtype for policy in policies.values() for weight in policy.parameters()} == {torch.float32}
    frozen = load_language_model(config, str(tmp_path), adapters=AGENTS).base.lm_head.weight
    assert frozen.dtype == torch.bfloat16
