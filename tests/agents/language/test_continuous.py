"""Continuous batching by transformers obeys the laws of decoding that do not speak of our own random numbers."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from architectures import model_of
from fakes import adapted_policies
from probes import AGENTS, random_llama, word_tokenizer

from collm.agents.config import ModelConfig
from collm.agents.core import Request
from collm.agents.decoding.decoder import Decoder
from collm.agents.decoding.samples import Prompt
from collm.agents.decoding.sampling import Sampling
from collm.agents.language.continuous import ContinuousBatching
from collm.agents.loading import load_policies
from collm.agents.scoring.scorer import Scorer

STOPS = [3, 5, 7, 11, 13, 17, 19, 23]
GREEDY = Sampling(greedy=True)


def prompts_of(count, new=12, seed=0):
    rng = np.random.default_rng(seed)
    return [Prompt(rng.integers(1, 97, int(rng.integers(1, 20))), (seed, row), new) for row in range(count)]


@pytest.fixture(scope="module")
def model():
    return model_of("qwen3")


@pytest.fixture
def continuous(model):
    generator = ContinuousBatching(model, Scorer(model), STOPS)
    yield generator
    generator.forget()


def logprobs_of(model, prompt, sample, temperature=1.0):
    """By a plain forward pass over the whole sequence."""
    ids = torch.from_numpy(np.concatenate([prompt.ids, sample.ids]))[None]
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0, len(prompt.ids) - 1 : -1] / temperature
    table = torch.log_softmax(logits, -1)
    entropies = -(table.exp() * table).sum(-1)
    return table.gather(1, ids[0, len(prompt.ids) :, None])[:, 0].numpy(), entropies.numpy()


def test_greedy_samples_are_the_arena_s_alone_and_in_a_batch(model, continuous):
    prompts = prompts_of(9)
    expected = Decoder(model, STOPS).generate(prompts, GREEDY)
    together = continuous.generate(prompts, GREEDY)
    alone = [continuous.generate([prompt], GREEDY)[0] for prompt in prompts[:3]]
    for sample, other in zip([*together, *alone], [*expected, *expected[:3]], strict=True):
        np.testing.assert_array_equal(sample.ids, other.ids)
        np.testing.assert_allclose(sample.logprobs, other.logprobs, atol=2e-6)
        assert sample.is_cut == other.is_cut


def test_samples_carry_the_model_s_numbers_and_stop_where_they_should(model, continuous):
    prompts = [replace(prompt, max_new_tokens=1 + row % 12) for row, prompt in enumerate(prompts_of(24))]
    samples = continuous.generate(prompts, Sampling(temperature=0.7))
    for prompt, sample in zip(prompts, samples, strict=True):
        logprobs, entropies = logprobs_of(model, prompt, sample, 0.7)
        np.testing.assert_allclose(sample.logprobs, logprobs, atol=2e-6)
        np.testing.assert_allclose(sample.entropies, entropies, atol=1e-5)
        assert not set(sample.ids[:-1].tolist()) & set(STOPS)
        assert sample.is_cut == (int(sample.ids[-1]) not in STOPS)
        assert len(sample.ids) == prompt.max_new_tokens or not sample.is_cut
    assert {sample.is_cut for sample in samples} == {True, False}


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.8, top_k=12)], ids=["plain", "filtered"])
def test_first_tokens_follow_the_model_s_distribution(model, continuous, sampling):
    prompt, count = prompts_of(1)[0], 2000
    with torch.no_grad():
        logits = model(input_ids=torch.from_numpy(prompt.ids)[None]).logits[0, -1] / sampling.temperature
    if sampling.top_k:
        logits[logits < logits.topk(sampling.top_k).values[-1]] = -torch.inf
    expected = torch.softmax(logits, -1).double().numpy() * count
    prompts = [replace(prompt, stream=(row,), max_new_tokens=1) for row in range(count)]
    drawn = np.bincount([int(sample.ids[0]) for sample in continuous.generate(prompts, sampling)], minlength=97)
    assert drawn[expected == 0].sum() == 0
    often = expected >= 5
    pieces = np.append(expected[often], expected[~often].sum()), np.append(drawn[often], drawn[~often].sum())
    statistic = ((pieces[1] - pieces[0]) ** 2 / np.maximum(pieces[0], 1e-9))[pieces[0] > 0].sum()
    degrees = (pieces[0] > 0).sum() - 1
    assert statistic < degrees + 5 * np.sqrt(2 * degrees)  # five deviations of chi-squared


@pytest.mark.slow
def test_the_model_is_left_as_it_was_and_new_weights_are_sampled_from(model, continuous):
    prompts, before = prompts_of(3), model.config._attn_implementation
    first = continuous.generate(prompts, GREEDY)
    assert model.config._attn_implementation == before
    kept = model.lm_head.weight.detach().clone()
    with torch.no_grad():
        model.lm_head.weight.copy_(kept.flip(0))
    continuous.forget()
    flipped = continuous.generate(prompts, GREEDY)
    expected = Decoder(model, STOPS).generate(prompts, GREEDY)
    with torch.no_grad():
        model.lm_head.weight.copy_(kept)
    assert [s.ids.tolist() for s in flipped] == [s.ids.tolist() for s in expected]
    assert [s.ids.tolist() for s in flipped] != [s.ids.tolist() for s in first]


@pytest.mark.slow
def test_adapters_sample_with_their_own_weights():
    policies = adapted_policies(["first", "second"])
    base = policies["first"].language_model
    generator = ContinuousBatching(base.model, base.scorer, STOPS)
    prompts = [replace(prompt, adapter=name) for prompt in prompts_of(4) for name in policies]
    found = generator.generate(prompts, GREEDY)
    generator.forget()
    expected = Decoder(base.model, STOPS).generate(prompts, GREEDY)
    assert [sample.ids.tolist() for sample in found] == [sample.ids.tolist() for sample in expected]


def test_another_type_than_the_weights_is_refused(continuous):
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(ValueError, match="sampler='arena'"):
        continuous.generate(prompts_of(1), GREEDY)
    with pytest.raises(ValueError, match="deterministic"):
        continuous.fix_shapes()


def test_the_setting_makes_policies_that_decode_so(tmp_path):
    random_llama().save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    config = ModelConfig(model=str(tmp_path), temperature=1e-4, max_new_tokens=4, device="cpu")
    said = {}
    for sampler, kind in (("arena", Decoder), ("continuous", ContinuousBatching)):
        policies = load_policies(replace(config, sampler=sampler), AGENTS)
        assert {type(policy.language_model.generator) for policy in policies.values()} == {kind}
        (done,) = policies[AGENTS[0]].act([Request(AGENTS[0], "say red", (0, 0, 0, 0))])
        policies[AGENTS[0]].forget()
        said[sampler] = done.action, done.tokens.completion_ids.tolist()
    assert said["continuous"] == said["arena"]  # nearly greedy


@pytest.mark.gpu
def test_on_a_gpu_greedy_samples_are_the_arena_s():
    model = model_of("qwen3").to("cuda")
    generator = ContinuousBatching(model, Scorer(model), STOPS)
    prompts = prompts_of(16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers' advice on attention kernels
        found = generator.generate(prompts, GREEDY)
    generator.forget()
    expected = Decoder(model, STOPS).generate(prompts, GREEDY)
    assert [sample.ids.tolist() for sample in found] == [sample.ids.tolist() for sample in expected]
