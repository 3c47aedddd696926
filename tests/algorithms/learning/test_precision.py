"""Weights that learn are kept in 32 bits: at learning rates near 1e-6 a step is smaller than 16 bits can tell."""

import pytest
import torch
from probes import AGENTS, TextProbe, random_llama, word_policy, word_tokenizer
from transformers import LlamaForSequenceClassification, LlamaModel

from collm.agents.config import ModelConfig
from collm.agents.core import CriticInput
from collm.agents.language.critics import TextCritic
from collm.agents.language.model import LanguageModel
from collm.agents.language.policy import LanguagePolicy
from collm.agents.language.reward_model import RewardModel
from collm.agents.loading import load_language_model, load_policies
from collm.algorithms import IAC, IACConfig, MAACConfig
from collm.algorithms.learning.critic_learner import CriticLearner
from collm.algorithms.learning.policy_learner import PolicyLearner, TurnBatch
from collm.algorithms.rollout.collector import Plan, RolloutCollector
from collm.envs.vectors.vector import SyncVector


def policy_of(dtype, model=None, **settings):
    model = LanguageModel(model or random_llama(), word_tokenizer(), compute_dtype=dtype)
    return LanguagePolicy(model, max_new_tokens=2, **settings)


def tracks_of(policy, count=8):
    policies = {AGENTS[0]: policy, AGENTS[1]: word_policy(1)}
    collector = RolloutCollector(SyncVector(lambda: TextProbe("delayed"), 4), policies)
    episodes = collector.collect([Plan(seed) for seed in range(count)])
    return [tuple(turn.completion for turn in each.tracks[AGENTS[0]]) for each in episodes]


def updated(policy, tracks, rate, size=1.0, *, scales_loss=True):
    learner = PolicyLearner(policy, IAC(IACConfig(agent_learning_rate=rate)), torch.Generator())
    if not scales_loss:
        learner.optimizer.scaler = torch.amp.GradScaler("cpu", enabled=False)
    advantages = size * torch.linspace(-1, 1.5, sum(len(track) for track in tracks))
    return learner.prepare(TurnBatch(tracks, advantages))()


@pytest.mark.parametrize(("dtype", "least", "most"), [(torch.float32, 0.99, 1.0), (torch.bfloat16, 0.0, 0.1)])
def test_updates_at_1e_6_arrive_in_fp32_weights_and_are_lost_in_bf16_weights(dtype, least, most):
    policy = policy_of(torch.bfloat16, random_llama().to(dtype))
    before = [weight.detach().clone() for weight in policy.parameters()]
    updated(policy, tracks_of(policy), 1e-6)
    moved = sum(int((a != b).sum()) for a, b in zip(before, policy.parameters(), strict=True))
    felt = sum(int((weight.grad != 0).sum()) for weight in policy.parameters())
    assert least <= moved / felt <= most and felt


def small_gradients(dtype, **settings):
    """Return gradients of advantages near 1e-6, which float16 rounds to 0."""
    policy = policy_of(dtype)
    metrics = updated(policy, tracks_of(word_policy(0, max_new_tokens=2)), 0.0, 1e-6, **settings)
    return torch.cat([weight.grad.flatten() for weight in policy.parameters()]), metrics


def test_gradients_that_float16_cannot_hold_are_scaled_into_its_range():
    exact, _ = small_gradients(None)
    scaled, metrics = small_gradients(torch.float16)
    plain, _ = small_gradients(torch.float16, scales_loss=False)
    assert float((scaled - exact).norm() / exact.norm()) < 0.02
    assert float((plain - exact).norm() / exact.norm()) > 0.5  # most has rounded to 0
    assert metrics["grad_norm"] == pytest.approx(float(exact.norm()), rel=0.02)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "adapters"])
def test_what_a_run_trains_is_fp32_whatever_it_computes_in(dtype, tmp_path):
    random_llama().to(torch.bfloat16).save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    if dtype == "adapters":
        settings = {"weights": "adapters", "compute_dtype": "bfloat16", "lora_rank": 2}
    else:
        settings = {"compute_dtype": dtype}
    config = ModelConfig(model=str(tmp_path), device="cpu", **settings)
    policies = load_policies(config, AGENTS, has_value_head=dtype != "adapters")
    assert {weight.dtype for policy in policies.values() for weight in policy.parameters()} == {torch.float32}
    if dtype == "adapters":
        frozen = load_language_model(config, str(tmp_path), adapters=AGENTS).base.lm_head.weight
        assert frozen.dtype == torch.bfloat16


@pytest.mark.parametrize("hidden_dim", [None, 8])
def test_values_are_made_in_fp32_whatever_the_model_computes_in(hidden_dim):
    policy = policy_of(torch.bfloat16, has_value_head=True, value_head_hidden_dim=hidden_dim)
    for weight in policy.value_head.parameters():
        torch.nn.init.normal_(weight, std=3.0)
    tracks = tracks_of(policy, 4)
    evaluated, prompted = policy.evaluate(tracks).values, policy.prompt_values(tracks)
    sampled = torch.tensor([turn.value for track in tracks for turn in track])
    for values in (evaluated, prompted, sampled):
        assert values.dtype == torch.float32
        assert not torch.equal(values, values.bfloat16().float())  # no number of 8 bits
    torch.testing.assert_close(evaluated, prompted)


def critic_of(dtype, **kwargs):
    made = TextCritic(LlamaModel(random_llama().config), word_tokenizer(), compute_dtype=dtype, **kwargs)
    torch.manual_seed(0)
    for weight in made.parameters():
        torch.nn.init.normal_(weight, std=0.1)
    return made


PAIRS = (("red", "blue"), ("blue", "red"), ("red", "red"))
INPUTS = [CriticInput((f"say {first}", f"say {first} {second}")) for first, second in PAIRS]


def test_critics_and_reward_models_compute_in_their_type_and_return_fp32():
    exact, found = (critic_of(dtype).values(INPUTS) for dtype in (None, torch.bfloat16))
    assert found.dtype == torch.float32
    assert not torch.equal(found, exact)  # the layers computed in bf16,
    assert not torch.equal(found, found.bfloat16().float())  # the head did not
    torch.testing.assert_close(found, exact, atol=0.03, rtol=0.03)

    config = random_llama().config
    config.num_labels = 1
    torch.manual_seed(0)
    model = LlamaForSequenceClassification(config)
    texts = ["say red", "say blue", "red blue red"]
    exact = RewardModel(model, word_tokenizer()).scores(texts)
    found = RewardModel(model, word_tokenizer(), torch.bfloat16).scores(texts)
    assert not torch.equal(found, exact)
    assert not torch.equal(found, found.bfloat16().float())
    torch.testing.assert_close(found, exact, atol=0.03, rtol=0.03)


def critic_step(dtype, target, **kwargs):
    critic = critic_of(dtype, **kwargs)
    config = MAACConfig(critic_steps=1, value_normalization=False, critic_learning_rate=0.0)
    learner = CriticLearner(critic, config, torch.Generator().manual_seed(0))
    metrics = learner.learn(INPUTS, critic_of(None).values(INPUTS).detach() + target)
    return torch.cat([weight.grad.flatten() for weight in critic.parameters() if weight.grad is not None]), metrics


def test_a_critics_gradients_are_scaled_into_the_range_of_float16_and_computed_again_on_overflow():
    exact, _ = critic_step(None, 1e-2)
    torch.testing.assert_close(critic_step(None, 1e-2, recomputes_activations=True)[0], exact)
    scaled, metrics = critic_step(torch.float16, 1e-2)
    assert float((scaled - exact).norm() / exact.norm()) < 0.3  # the layers' own rounding moves so small an error
    assert metrics["critic_grad_norm"] == pytest.approx(float(scaled.norm()), rel=1e-4)
    _, exact = critic_step(None, 1e5)
    _, metrics = critic_step(torch.float16, 1e5)  # times the first scale of 65,536: beyond float16
    assert metrics["critic_grad_norm"] == pytest.approx(exact["critic_grad_norm"], rel=0.02)


def test_a_reference_keeps_its_matrices_in_the_type_it_computes_in_and_says_the_same_to_the_bit():
    policy = policy_of(torch.bfloat16)
    tracks = tracks_of(policy, 4)
    reference = policy.reference()
    assert torch.equal(reference.evaluate(tracks).logprobs, policy.evaluate(tracks).logprobs)
    assert sum(weight.nbytes for weight in reference.parameters()) < sum(each.nbytes for each in policy.parameters())
