"""What a language policy samples is what it scores: alone or in a batch, plain or chat, with or without adapters."""

import copy
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from fakes import Chatter, adapted_policies, byte_tokenizer, language_policy, random_llama
from transformers import AutoModelForCausalLM, AutoTokenizer

from collm.agents.core import Request
from collm.agents.decoding.sampling import Sampling
from collm.agents.language.model import LanguageModel
from collm.agents.language.policy import LanguagePolicy
from collm.agents.loading import load_team
from collm.algorithms.rollout.collector import Plan, RolloutCollector
from collm.algorithms.rollout.summary import episode_metrics
from collm.envs import SyncVector, Transcript
from collm.envs.core import Message

AGENTS = ("fox_0", "stone_0")


def team(kind):
    if kind.startswith("adapters"):
        return adapted_policies(AGENTS, is_chat=kind.endswith("chat"))
    return {
        agent: language_policy(is_chat=kind.endswith("chat"), seed=i, sampling=Sampling(temperature=0.8))
        for i, agent in enumerate(AGENTS)
    }


def collected(policies, num_episodes=6, num_envs=4):
    collector = RolloutCollector(SyncVector(Chatter, num_envs), policies)
    return collector.collect([Plan(seed) for seed in range(num_episodes)])


def brute_force(policy, completion):
    """Log-probabilities and entropies, one whole forward pass a token."""
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
def test_sampling_scoring_and_a_loop_over_tokens_agree_over_whole_episodes(kind):
    policies = team(kind)
    episodes = collected(policies)
    for agent in AGENTS:
        tracks = [tuple(turn.completion for turn in episode.tracks[agent]) for episode in episodes]
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


@pytest.mark.parametrize("is_chat", [False, True])
def test_a_reply_is_the_same_alone_and_in_a_batch_of_64(is_chat):
    policy = language_policy(is_chat=is_chat, max_new_tokens=24)
    rng = np.random.default_rng(0)
    requests = []
    for i in range(64):
        words = " ".join(rng.choice(["red", "fox", "old", "river", "stone"], size=int(rng.integers(1, 20))))
        requests.append(Request("fox_0", Transcript([Message("user", words)]), (7, i, 0, 0)))
    together = policy.act(requests)
    for i in (0, 1, 31, 63):
        policy.forget()
        (alone,) = policy.act([requests[i]])
        assert alone.action == together[i].action
        assert alone.tokens.completion_ids.tolist() == together[i].tokens.completion_ids.tolist()


def test_adapters_of_one_base_answer_in_one_call_as_they_would_apart():
    policies = adapted_policies(AGENTS)
    requests = {agent: Request(agent, Transcript([Message("user", "what next?")]), (1, 2, 3, 0)) for agent in AGENTS}
    assert policies["fox_0"].batch_key() == policies["stone_0"].batch_key()
    together = policies["fox_0"].act_together([(policies[agent], requests[agent]) for agent in AGENTS])
    for agent, answer in zip(AGENTS, together, strict=True):
        policies[agent].forget()
        assert policies[agent].act([requests[agent]])[0].action == answer.action
    assert together[0].action != together[1].action  # same prompt and stream, other adapter


def test_an_adapters_gradient_reaches_its_own_weights_only():
    policies = adapted_policies(AGENTS)
    episodes = collected(policies, num_episodes=2)
    track = tuple(turn.completion for turn in episodes[0].tracks["stone_0"])
    policies["stone_0"].evaluate([track]).logprobs.sum().backward()
    assert any(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in policies["stone_0"].parameters())
    assert all(weight.grad is None for weight in policies["fox_0"].parameters())


def test_the_last_turns_row_holds_all_turns_so_that_one_pass_scores_an_episode():
    policy = language_policy()
    episode = collected({agent: policy for agent in AGENTS}, num_episodes=1)[0]
    track = tuple(turn.completion for turn in episode.tracks["fox_0"])
    assert len(track) == 3
    last = track[-1].tokens
    assert policy.num_tokens(track) == len(last.prompt_ids) + len(last.completion_ids)


def test_the_value_of_a_head_is_the_same_while_acting_and_while_learning():
    policy = language_policy(has_value_head=True)
    torch.nn.init.normal_(policy.value_head.weight)
    episode = collected({agent: policy for agent in AGENTS}, num_episodes=1)[0]
    track = tuple(turn.completion for turn in episode.tracks["fox_0"])
    values = policy.evaluate([track]).values
    np.testing.assert_allclose(values.detach().numpy(), [turn.value for turn in track], atol=1e-4)


def test_what_is_saved_loads_by_plain_transformers_and_answers_alike(tmp_path):
    policy = language_policy(is_chat=True, max_new_tokens=9, sampling=Sampling(temperature=0.7), has_value_head=True)
    policy.save(tmp_path / "fox_0")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "fox_0", dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "fox_0")
    ids = torch.tensor([tokenizer("hello")["input_ids"]])
    torch.testing.assert_close(model(ids).logits, policy.language_model.base(ids).logits)
    again = load_team(tmp_path, ["fox_0"])["fox_0"]
    request = Request("fox_0", Transcript([Message("user", "what next?")]), (0, 0, 0, 0))
    assert again.act([request])[0].action == policy.act([request])[0].action
    assert (again.max_new_tokens, again.sampling) == (9, Sampling(temperature=0.7))


def test_an_adapter_saves_to_a_folder_of_its_name(tmp_path):
    policies = adapted_policies(AGENTS)
    policies["stone_0"].save(tmp_path / "stone_0")
    assert (tmp_path / "stone_0" / "adapter_model.safetensors").is_file()
    with pytest.raises(ValueError, match="folder of its name"):
        policies["stone_0"].save(tmp_path / "elsewhere")


def test_weights_go_through_state_dict_and_back():
    policy = language_policy(has_value_head=True)
    before = {name: weight.clone() for name, weight in policy.state_dict().items()}
    with torch.no_grad():
        for weight in policy.parameters():
            weight.add_(1.0)
    policy.load_state_dict(before)
    assert all(torch.equal(weight, before[name]) for name, weight in policy.state_dict().items())


def test_a_reference_stays_where_the_policy_was():
    policy = language_policy()
    reference = policy.reference()
    before = copy.deepcopy(reference.state_dict())
    with torch.no_grad():
        for weight in policy.parameters():
            weight.add_(1.0)
    assert all(torch.equal(weight, before[name]) for name, weight in reference.state_dict().items())
    assert not any(weight.requires_grad for weight in reference.parameters())


def test_the_reference_of_adapters_is_their_base_and_no_copy_of_it():
    policies = adapted_policies(AGENTS)
    episodes = collected(policies, num_episodes=2)
    tracks = {agent: [tuple(turn.completion for turn in each.tracks[agent]) for each in episodes] for agent in AGENTS}
    bare = LanguagePolicy(
        LanguageModel(copy.deepcopy(policies["fox_0"].language_model.model).unload(), byte_tokenizer())
    )
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
    tracks = [
        tuple(turn.completion for turn in each.tracks["fox_0"]) for each in collected(dict.fromkeys(AGENTS, policy), 2)
    ]
    with torch.no_grad():
        filtered, before = policy.evaluate(tracks).logprobs, policy.reference().evaluate(tracks).logprobs
    sampled = np.concatenate([turn.logprobs for track in tracks for turn in track])
    np.testing.assert_allclose(filtered.numpy(), sampled, atol=1e-5)
    assert (filtered > before).all()


def test_a_saved_policy_computes_in_its_own_type_again(tmp_path):
    model = LanguageModel(random_llama(), byte_tokenizer(), compute_dtype=torch.bfloat16)
    sampling = Sampling(top_p=0.6, learns_filtered=True)
    LanguagePolicy(model, sampling=sampling).save(tmp_path / "fox_0")
    again = load_team(tmp_path, ["fox_0"])["fox_0"]
    assert again.compute_dtype == torch.bfloat16
    assert again.sampling == sampling


def test_a_policy_that_may_not_write_is_refused():
    model = LanguageModel(random_llama(), byte_tokenizer())
    with pytest.raises(ValueError, match="max_new_tokens must be at least 1, got 0"):
        LanguagePolicy(model, max_new_tokens=0)


class Forgetful(Chatter):
    """Chatter in which the stone remembers nothing of earlier turns."""

    metadata: ClassVar[dict] = {**Chatter.metadata, "append_only": False}

    def play(self, replies):
        return replace(super().play(replies), rewritten={"stone_0": [Message("user", "you wake up")]})


def test_prompts_of_rewritten_histories_are_counted():
    policies = {agent: language_policy() for agent in AGENTS}
    collector = RolloutCollector(SyncVector(Forgetful, 2), policies)
    episodes = collector.collect([Plan(0), Plan(1)])
    assert episode_metrics(episodes)["reencoded_share"] == 0.5  # the stone's two later turns, not the fox's
    assert episode_metrics(collected(policies))["reencoded_share"] == 0.0


def test_the_default_learning_rate_is_that_of_the_models_size_and_of_adapters(monkeypatch):
    own, adapted = language_policy(), adapted_policies(AGENTS)["fox_0"]
    assert (own.default_learning_rate, adapted.default_learning_rate) == (5e-4, 5e-4)
    monkeypatch.setattr("collm.agents.language.policy.MAX_SMALL_WEIGHTS", 1)
    assert (own.default_learning_rate, adapted.default_learning_rate) == (1e-6, 1e-4)
