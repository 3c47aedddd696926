"""Sampling and scoring agree: alone or in a batch, plain or chat, with or without adapters."""

import copy
import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from chat_templates import FAMILIES, tokenizer_for
from fakes import Chatter, adapted_policies, byte_tokenizer, language_policy, random_llama
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from collm.agents.config import ModelConfig
from collm.agents.core import Request
from collm.agents.decoding.sampling import Sampling
from collm.agents.language.model import LanguageModel
from collm.agents.language.policy import LanguagePolicy
from collm.agents.loading import load_policies, load_team
from collm.algorithms.rollout.collector import Plan, RolloutCollector
from collm.envs import SyncVector, Transcript
from collm.envs.core import Message

AGENTS = ("fox_0", "stone_0")
REQUEST = Request("fox_0", Transcript([Message("user", "what next?")]), (7, 0, 0, 0))


def team(kind):
    if kind.startswith("adapters"):
        return adapted_policies(AGENTS, is_chat=kind.endswith("chat"))
    settings = {"is_chat": kind.endswith("chat"), "sampling": Sampling(temperature=0.8)}
    return {agent: language_policy(seed=seed, **settings) for seed, agent in enumerate(AGENTS)}


def collected(policies, num_episodes=6):
    collector = RolloutCollector(SyncVector(Chatter, 4), policies)
    return collector.collect([Plan(seed) for seed in range(num_episodes)])


def tracks_of(episodes, agent="fox_0"):
    return [tuple(turn.completion for turn in episode.tracks[agent]) for episode in episodes]


def played_by(policy, num_episodes=1):
    """Tracks of the fox in episodes in which both agents have the same policy."""
    return tracks_of(collected(dict.fromkeys(AGENTS, policy), num_episodes))


def same_ids(one, other):
    return np.array_equal(one.tokens.completion_ids, other.tokens.completion_ids)


def brute_force(policy, completion):
    """Log-probabilities and entropies by one forward pass per token."""
    model = policy.language_model.base
    prompt, sampled = completion.tokens.prompt_ids.tolist(), completion.tokens.completion_ids.tolist()
    logprobs, entropies = [], []
    with torch.no_grad(), policy.language_model.passing(policy.adapter):
        for count, token in enumerate(sampled):
            logits = model(torch.tensor([prompt + sampled[:count]])).logits[0, -1].double()
            p = torch.softmax(logits / policy.sampling.temperature, dim=-1)
            logprobs.append(float(p[token].log()))
            entropies.append(float(-(p * p.log()).sum()))
    return logprobs, entropies


@pytest.mark.parametrize("kind", ["own plain", "own chat", "adapters plain", "adapters chat"])
def test_sampling_scoring_and_a_loop_over_tokens_agree(kind):
    policies = team(kind)
    episodes = collected(policies)
    for agent in AGENTS:
        tracks = tracks_of(episodes, agent)
        assert all(turn.tokens.is_extension for track in tracks for turn in track[1:])
        with torch.no_grad():
            evaluation = policies[agent].evaluate(tracks)
        sampled = np.concatenate([turn.logprobs for track in tracks for turn in track])
        entropies = np.concatenate([turn.entropies for track in tracks for turn in track])
        np.testing.assert_allclose(evaluation.logprobs.numpy(), sampled, atol=1e-4)
        np.testing.assert_allclose(evaluation.entropies.numpy(), entropies, atol=1e-4)
        counts = [len(turn.logprobs) for track in tracks for turn in track]
        assert torch.bincount(evaluation.turn_of_token).tolist() == counts
        for turn in tracks[0]:
            by_loop = brute_force(policies[agent], turn)
            np.testing.assert_allclose(turn.logprobs, by_loop[0], atol=1e-4)
            np.testing.assert_allclose(turn.entropies, by_loop[1], atol=1e-4)


@pytest.mark.parametrize("kind", ["own plain", "own chat", "adapters plain", "adapters chat"])
def test_a_given_reply_has_the_probability_with_which_it_is_sampled(kind):
    policy = team(kind)["stone_0"]
    (completion,) = policy.act([REQUEST], greedy=True)
    content, end = policy.language_model.encoder.reply_ids("no, yes")
    full = "x" * policy.max_new_tokens
    replies = ("no, yes", "no", full, full + "x")
    found, other, cut, too_long = policy.reply_logprobs([(completion, reply) for reply in replies])

    def expected(ids):
        record = replace(completion.tokens, completion_ids=np.asarray(ids))
        return pytest.approx(sum(brute_force(policy, replace(completion, tokens=record))[0]), abs=1e-3)

    assert found == expected([*content, *end]) and other != found and too_long == -np.inf
    assert cut == expected(policy.language_model.encoder.content(full))  # sampling stops at the limit, without an end


@pytest.mark.parametrize("family", ["qwen3", "qwen3, no thoughts", "qwen3.5", "smollm3"])
def test_a_reply_in_a_later_turn_has_its_probability_after_the_sampled_history(family):
    tokenizer = tokenizer_for(family)
    options = {"template_kwargs": FAMILIES[family].template_kwargs}
    model = LanguageModel(random_llama(vocab_size=len(tokenizer)), tokenizer, **options)
    encoder, policy = model.encoder, LanguagePolicy(model, max_new_tokens=4)
    later = [turn for track in played_by(policy, 12) for turn in track[1:]]
    usual = [turn for turn in later if same_ids(policy.answered(turn, turn.action), turn)]
    changed = [turn for turn in usual if len(encoder.prompt(turn.tokens.observation)[0]) != len(turn.tokens.prompt_ids)]
    assert changed, "no reply in its usual tokenization after a history that the template renders in another form"
    found = policy.reply_logprobs([(turn, turn.action) for turn in usual])
    np.testing.assert_allclose(found, [turn.logprobs.sum() for turn in usual], atol=1e-4)


def test_adapters_of_one_base_sample_together_and_learn_apart():
    policies = adapted_policies(AGENTS)
    assert policies["fox_0"].batch_key() == policies["stone_0"].batch_key()
    together = policies["fox_0"].act_together([(policies[agent], REQUEST) for agent in AGENTS])
    for agent, answer in zip(AGENTS, together, strict=True):
        policies[agent].forget()
        assert policies[agent].act([REQUEST])[0].action == answer.action
    assert together[0].action != together[1].action  # same prompt and stream, other adapter
    policies["stone_0"].evaluate(tracks_of(collected(policies, 2), "stone_0")).logprobs.sum().backward()
    assert any(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in policies["stone_0"].parameters())
    assert all(weight.grad is None for weight in policies["fox_0"].parameters())


def test_the_value_head_returns_the_same_in_acting_and_evaluating():
    policy = language_policy(has_value_head=True)
    torch.nn.init.normal_(policy.value_head.weight)
    tracks = played_by(policy)
    values = policy.evaluate(tracks).values
    np.testing.assert_allclose(values.detach().numpy(), [turn.value for turn in tracks[0]], atol=1e-4)


def test_saved_policies_act_the_same_and_keep_types_sampling_and_adapters(tmp_path):
    policy = language_policy(is_chat=True, max_new_tokens=9, sampling=Sampling(temperature=0.7), has_value_head=True)
    policy.save(tmp_path / "fox_0")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "fox_0", dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "fox_0")
    ids = torch.tensor([tokenizer("hello")["input_ids"]])
    torch.testing.assert_close(model(ids).logits, policy.language_model.base(ids).logits)
    again = load_team(tmp_path, ["fox_0"])["fox_0"]
    assert again.act([REQUEST])[0].action == policy.act([REQUEST])[0].action
    assert (again.max_new_tokens, again.sampling) == (9, Sampling(temperature=0.7))
    model = LanguageModel(random_llama(), byte_tokenizer(), compute_dtype=torch.bfloat16)
    sampling = Sampling(top_p=0.6, learns_filtered=True)
    LanguagePolicy(model, sampling=sampling).save(tmp_path / "fox_0")
    again = load_team(tmp_path, ["fox_0"])["fox_0"]
    assert again.compute_dtype == torch.bfloat16
    assert again.sampling == sampling
    with pytest.raises(ValueError, match="max_new_tokens must be at least 1, got 0"):
        language_policy(max_new_tokens=0)
    policies = adapted_policies(AGENTS)
    policies["stone_0"].save(tmp_path / "elsewhere")
    assert (tmp_path / "elsewhere" / "adapter_model.safetensors").is_file()


@pytest.mark.parametrize("adapter", [False, True])
def test_the_saved_generation_config_samples_as_the_policy(adapter, tmp_path):
    policy = adapted_policies(AGENTS)["fox_0"] if adapter else language_policy()
    changes = {
        "do_sample": True,
        "repetition_penalty": 1.3,
        "top_k": 1,
        "min_new_tokens": 5,
        "suppress_tokens": [5],
        "eos_token_id": [1, 2],
    }
    policy.language_model.base.generation_config.update(**changes, pad_token_id=3)
    policy.sampling = Sampling(temperature=0.7, top_p=0.9)
    policy.save(tmp_path)
    saved = json.loads((tmp_path / "generation_config.json").read_text())
    assert saved.pop("transformers_version")
    ids = {"eos_token_id": sorted(policy.language_model.encoder.stop_ids), "pad_token_id": 3}
    wanted = {"do_sample": True, "temperature": 0.7, "top_k": 0, "top_p": 0.9, "max_new_tokens": 12, **ids}
    assert {name: value for name, value in saved.items() if name != "bos_token_id"} == wanted


NAMES = [("0", "1"), ("layers", "mlp"), ("q_proj", "v_proj"), ("__base__", "a.b c"), ("model", "lora_A")]


@pytest.mark.parametrize("agents", NAMES)
def test_adapters_of_agents_with_any_name_are_saved_completely(agents, tmp_path):
    policies = load_policies(ModelConfig(weights="adapters", lora_rank=2), agents)
    for seed, agent in enumerate(agents):
        torch.manual_seed(seed)
        for weight in policies[agent].parameters():
            weight.data.normal_(std=0.1)
        policies[agent].save(tmp_path / agent)
    for agent in agents:
        tensors = load_file(tmp_path / agent / "adapter_model.safetensors")
        assert (
            len(tensors)
            == len(policies[agent].parameters())
            == 2 * 7 * policies[agent].language_model.base.config.num_hidden_layers
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            loaded = AutoModelForCausalLM.from_pretrained(tmp_path / agent)
        ids = torch.arange(5, 20)[None]
        with torch.no_grad(), policies[agent].language_model.passing(policies[agent].adapter):
            torch.testing.assert_close(loaded(ids).logits, policies[agent].language_model.base(ids).logits)
        again = load_team(tmp_path, [agent])[agent]
        assert again.act([REQUEST])[0].action == policies[agent].act([REQUEST])[0].action


def test_checkpoints_with_the_names_of_agents_can_be_loaded():
    policies = load_policies(ModelConfig(weights="adapters", lora_rank=2), ["a.b", "c"])
    state = policies["a.b"].state_dict()
    old = {name.replace(".weight", ".a.b.weight"): torch.ones_like(weight) for name, weight in state.items()}
    assert state.keys().isdisjoint(old)
    policies["a.b"].load_state_dict(old)
    assert all((weight == 1).all() for weight in policies["a.b"].parameters())
    assert not all((weight == 1).all() for weight in policies["c"].parameters())


def test_adapters_of_embeddings_learn():
    layers = ("embed_tokens", "lm_head", "q_proj")
    policies = load_policies(ModelConfig(weights="adapters", lora_rank=2, lora_target_modules=layers), AGENTS)
    policy = policies["fox_0"]
    assert sum("embed" in name for name in policy.state_dict()) == 2
    for weight in policy.parameters():
        weight.data.normal_()
    policy.evaluate(tracks_of(collected(policies, 2), "fox_0")).logprobs.sum().backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in policy.parameters())


def test_a_reference_does_not_change_with_the_policy_whose_weights_can_be_restored():
    policy = language_policy(has_value_head=True)
    reference = policy.reference()
    before, frozen = copy.deepcopy(policy.state_dict()), copy.deepcopy(reference.state_dict())
    with torch.no_grad():
        for weight in policy.parameters():
            weight.add_(1.0)
    assert all(torch.equal(weight, frozen[name]) for name, weight in reference.state_dict().items())
    assert not any(weight.requires_grad for weight in reference.parameters())
    policy.load_state_dict(before)
    assert all(torch.equal(weight, before[name]) for name, weight in policy.state_dict().items())


def test_the_reference_of_adapters_is_their_base_and_no_copy_of_it():
    policies = adapted_policies(AGENTS)
    episodes = collected(policies, num_episodes=2)
    tracks = {agent: tracks_of(episodes, agent) for agent in AGENTS}
    base = copy.deepcopy(policies["fox_0"].language_model.model).unload()
    bare = LanguagePolicy(LanguageModel(base, byte_tokenizer()))
    flags = [weight.requires_grad for weight in policies["fox_0"].language_model.model.parameters()]
    for agent in AGENTS:
        reference = policies[agent].reference()
        assert reference.language_model is policies[agent].language_model
        with torch.no_grad():
            learned = policies[agent].evaluate(tracks[agent]).logprobs
            expected = bare.evaluate(tracks[agent]).logprobs
            torch.testing.assert_close(reference.evaluate(tracks[agent]).logprobs, expected)
            torch.testing.assert_close(policies[agent].evaluate(tracks[agent]).logprobs, learned)
        assert not torch.allclose(learned, expected, atol=1e-3)
        found = policies[agent].language_model.model.parameters()
        assert [weight.requires_grad for weight in found] == flags or agent != "fox_0"


def test_a_reference_is_scored_before_the_filters():
    policy = language_policy(sampling=Sampling(top_k=2, learns_filtered=True))
    tracks = played_by(policy, 2)
    with torch.no_grad():
        filtered, before = policy.evaluate(tracks).logprobs, policy.reference().evaluate(tracks).logprobs
    sampled = np.concatenate([turn.logprobs for track in tracks for turn in track])
    np.testing.assert_allclose(filtered.numpy(), sampled, atol=1e-5)
    assert (filtered > before).all()


def test_the_default_learning_rate_depends_on_the_model_s_size_and_on_adapters(monkeypatch):
    own, adapted = language_policy(), adapted_policies(AGENTS)["fox_0"]
    assert (own.default_learning_rate, adapted.default_learning_rate) == (5e-4, 5e-4)
    monkeypatch.setattr("collm.agents.language.policy.MAX_SMALL_WEIGHTS", 1)
    assert (own.default_learning_rate, adapted.default_learning_rate) == (1e-5, 1e-4)
    monkeypatch.setattr("collm.agents.language.policy.MAX_MEDIUM_WEIGHTS", 1)
    assert (own.default_learning_rate, adapted.default_learning_rate) == (1e-6, 1e-4)
