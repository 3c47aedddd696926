"""Tokens come from the server, log-probabilities from the learner, and updates reach the server."""

import re

import numpy as np
import pytest
import torch
from fakes import byte_tokenizer
from transformers import AutoModelForCausalLM
from vllm_server import STOP, learner, perturb, prompts

from collm.agents.config import ModelConfig
from collm.agents.core import Request
from collm.agents.decoding.decoder import Decoder
from collm.agents.decoding.sampling import Sampling
from collm.agents.language.model import LanguageModel
from collm.agents.language.policy import LanguagePolicy
from collm.agents.loading import check_servers, with_adapters
from collm.agents.vllm.server import ServerError, Serving


def _expected(model, prompt, ids, temperature):
    """Log-probabilities and entropies by a plain forward pass."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt.ids, *ids]])).logits[0, len(prompt.ids) - 1 : -1]
    scores = (logits / temperature).log_softmax(-1)
    return scores.gather(1, torch.tensor(ids)[:, None])[:, 0].numpy(), -(scores.exp() * scores).sum(-1).numpy()


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.7, top_k=20)], ids=["plain", "filtered"])
def test_tokens_are_the_servers_and_their_scores_are_ours(folder, stub, sampling):
    generator = learner(folder, stub.url)
    asked = prompts()
    samples = generator.generate(asked, sampling)
    requests = {tuple(body["token_ids"]): body for path, body in stub.calls if path == "/inference/v1/generate"}
    for prompt, sample in zip(asked, samples, strict=True):
        told = stub.completion(requests[tuple(prompt.ids)])
        assert sample.ids.tolist() == told["token_ids"]
        assert sample.is_cut == (told["finish_reason"] == "length")
        logprobs, entropies = _expected(generator._model, prompt, sample.ids, sampling.temperature)
        np.testing.assert_allclose(sample.logprobs, logprobs, atol=1e-5)
        np.testing.assert_allclose(sample.entropies, entropies, atol=1e-5)
    assert (generator.drift is None) == (sampling != Sampling())
    assert generator.drift is None or generator.drift < 1e-5


def test_a_greedy_server_samples_what_the_decoder_samples(folder, stub):
    generator = learner(folder, stub.url)
    there = generator.generate(prompts(), Sampling(greedy=True))
    here = Decoder(generator._model, STOP).generate(prompts(), Sampling(greedy=True))
    assert [sample.ids.tolist() for sample in there] == [sample.ids.tolist() for sample in here]


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft asks for it
def test_adapters_reach_the_server_under_names_that_are_never_used_again(folder, stub):
    model = with_adapters(AutoModelForCausalLM.from_pretrained(folder), ["fox", "stone"], rank=4)
    language_model = LanguageModel(model, byte_tokenizer(), serving=Serving(addresses=(stub.url,), patience_s=0))
    generator = language_model.generator
    asked = prompts(3, "fox") + prompts(3, "stone")
    seen = []
    for _ in range(2):
        perturb(generator, of="lora_")
        samples = generator.generate(asked, Sampling())
        assert generator.drift < 1e-5
        seen.append(set(stub.adapters))
    assert [len(names) for names in seen] == [2, 2]
    assert not seen[0] & seen[1]
    model.set_adapter("stone")
    logprobs, _ = _expected(model, asked[4], samples[4].ids, 1.0)
    np.testing.assert_allclose(samples[4].logprobs, logprobs, atol=1e-5)


def test_a_policy_acts_through_a_server(folder, stub):
    model = AutoModelForCausalLM.from_pretrained(folder)
    language_model = LanguageModel(model, byte_tokenizer(), serving=Serving(addresses=(stub.url,), patience_s=0))
    policy = LanguagePolicy(language_model, max_new_tokens=6, has_value_head=True)
    torch.nn.init.normal_(policy.value_head.weight)
    requests = [Request("fox", "hello", (1, number, 0, 0)) for number in range(3)]
    completions = policy.act(requests)
    with torch.no_grad():
        evaluation = policy.evaluate([[completion] for completion in completions])
    np.testing.assert_allclose(np.concatenate([c.logprobs for c in completions]), evaluation.logprobs, atol=1e-5)
    np.testing.assert_allclose([c.value for c in completions], evaluation.values, atol=1e-5)


STOPPED = {"finish_reason": "stop", "token_ids": [7], "logprobs": {"content": [{"logprob": -1.0}]}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda stub: stub.base.lm_head.weight.data.mul_(3), "more than 0.5"),
        (lambda stub: setattr(stub, "root", "somebody/else"), "serves 'somebody/else' as 'base', but the learner's"),
        (lambda stub: stub.changes.update({"token_ids": None}), "lacks the sampled token ids"),
        (lambda stub: stub.changes.update({"logprobs": None}), "lacks the sampled token ids"),
        (lambda stub: stub.changes.update({"weight_versions": None}), "lacks the sampled token ids"),
        (lambda stub: stub.changes.update({"finish_reason": "repetition"}), "ended by 'repetition'"),
        (lambda stub: stub.changes.update(STOPPED), "after token 7"),
    ],
)
def test_a_server_of_other_weights_or_with_another_answer_is_refused(folder, stub, change, message):
    generator = learner(folder, stub.url)
    change(stub)
    with pytest.raises(ServerError, match=message):
        generator.generate(prompts(), Sampling())


def test_a_server_that_does_not_answer_or_is_gone_is_given_up(folder, stub):
    generator = learner(folder, stub.url, timeout_s=0.2)
    generator.generate(prompts(1), Sampling(greedy=True))
    with stub.lock, pytest.warns(RuntimeWarning, match="not used"), pytest.raises(ServerError, match=r"within 0\.2 s"):
        generator.generate(prompts(1), Sampling())
    later = learner(folder, stub.url)
    stub.die()
    with pytest.warns(RuntimeWarning, match="not used"), pytest.raises(ServerError, match="there is no server at"):
        later.generate(prompts(1), Sampling())


NOT_FOUND = (404, '{"detail": "Not Found"}')
DISABLED = '{"error": {"message": "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out"}}'


@pytest.mark.parametrize(
    ("weights", "path", "refusal", "needs"),
    [
        ("shared", "/inference/v1/generate", (403, DISABLED), "--enable-scale-out"),
        ("shared", "/inference/v1/generate", NOT_FOUND, "--enable-scale-out"),
        ("shared", "/weight_info", NOT_FOUND, "VLLM_SERVER_DEV_MODE=1"),
        ("adapters", "/v1/load_lora_adapter", NOT_FOUND, "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"),
    ],
)
def test_a_server_that_lacks_an_option_is_refused_at_the_start(stub, weights, path, refusal, needs):
    config = ModelConfig(server=stub.url, weights=weights)
    check_servers(config, 2, learns=True)
    stub.refusals[path] = refusal
    line = f"the server at {stub.url} has no {path}: start vLLM with {needs}"
    with pytest.raises(ServerError, match=f"^{re.escape(line)}[^\n]*$"):
        check_servers(config, 2, learns=True)
    if path != "/inference/v1/generate":
        check_servers(config, 2, learns=False)  # a run without learning exchanges no weights
    assert not stub.calls


def test_a_server_that_comes_back_without_an_option_is_asked_once(folder, stub):
    generator = learner(folder, stub.url)
    stub.refusals["/inference/v1/generate"] = NOT_FOUND
    with pytest.raises(ServerError, match="start vLLM with --enable-scale-out"):
        generator.generate(prompts(), Sampling())
    assert not stub.calls


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://host/v1"])
def test_what_is_no_address_is_refused(folder, url):
    with pytest.raises(ValueError, match="is not of the form http://host:port"):
        LanguageModel(AutoModelForCausalLM.from_pretrained(folder), byte_tokenizer(), serving=Serving(addresses=(url,)))


def test_agents_with_weights_of_their_own_need_servers_each():
    both = ModelConfig(server="http://a:1+http://a:2,http://b:2").servers(2)
    assert both == [("http://a:1", "http://a:2"), ("http://b:2",)]
    assert ModelConfig(server="http://a:1", weights="adapters").servers(3) == [("http://a:1",)] * 3
    assert ModelConfig().servers(2) == [(), ()]
    with pytest.raises(ValueError, match="server has 1 entries for 2 agents"):
        ModelConfig(server="http://a:1").servers(2)
    with pytest.raises(ValueError, match="an address twice"):
        ModelConfig(server="http://a:1,http://a:1").servers(2)
