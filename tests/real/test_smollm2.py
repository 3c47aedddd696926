"""SmolLM2-135M-Instruct: prompts, replies and log-probabilities equal those of transformers."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import collm
from collm.agents.config import ModelConfig
from collm.agents.core import Request
from collm.agents.loading import load_policies
from collm.envs import Message, Transcript
from collm.envs.core import as_chat

pytestmark = pytest.mark.real
AGENTS = ["writer_0", "writer_1"]
TOPICS = ("a river", "wood", "the moon", "tea", "a goat", "rain", "bread", "a clock", "snow", "a ladder")
QUESTIONS = [f"Name one fact about {topic}." for topic in TOPICS]
QUESTIONS += [f"\n  Write one line about {topic}, without the token <|im_end|>.\n\n" for topic in TOPICS]
MAX_NEW_TOKENS = 24


@pytest.fixture(scope="module")
def plain(real_model):
    return AutoModelForCausalLM.from_pretrained(real_model).eval(), AutoTokenizer.from_pretrained(real_model)


@pytest.fixture(scope="module", params=["own", "shared", "adapters"])
def policies(request, real_model):
    config = ModelConfig(model=str(real_model), weights=request.param, max_new_tokens=MAX_NEW_TOKENS)
    return load_policies(config, AGENTS)


def requests():
    return [
        Request(AGENTS[number % 2], Transcript([Message("user", question)]), (0, number, 0, 0))
        for number, question in enumerate(QUESTIONS)
    ]


def test_prompts_equal_the_template_in_both_turns(policies, plain):
    _, tokenizer = plain
    encoder = policies["writer_0"].language_model.encoder
    for request in requests()[:10]:  # the other questions spell a control token, which must stay text
        asked = as_chat(request.observation.messages)
        ids = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_dict=True)["input_ids"]
        assert encoder.prompt(request.observation)[0].tolist() == ids
        (completion,) = policies[request.agent].act([request])
        later = request.observation.extended(Message("assistant", completion.action), Message("user", "Another one."))
        prompt, is_extension = encoder.prompt(later, completion)
        text = tokenizer.apply_chat_template(as_chat(later.messages), add_generation_prompt=True, tokenize=False)
        assert is_extension and tokenizer.decode(prompt) == text


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probabilities_equal_those_of_transformers(real_model, plain, temperature):
    model, _ = plain
    for weights in ("own", "adapters"):
        config = ModelConfig(
            model=str(real_model), weights=weights, max_new_tokens=MAX_NEW_TOKENS, temperature=temperature
        )
        policy = load_policies(config, AGENTS)["writer_1"]
        completions = policy.act(requests()[:8])
        learned = policy.evaluate([[completion] for completion in completions]).logprobs.detach().numpy()
        start = 0
        for completion in completions:
            prompt, reply = completion.tokens.prompt_ids, completion.tokens.completion_ids
            with torch.no_grad():
                logits = model(torch.tensor([*prompt, *reply])[None], use_cache=False).logits[0, len(prompt) - 1 : -1]
            expected = torch.log_softmax(logits / temperature, -1).gather(1, torch.tensor(reply)[:, None])[:, 0].numpy()
            np.testing.assert_allclose(completion.logprobs, expected, atol=1e-4)
            np.testing.assert_allclose(learned[start : start + len(reply)], expected, atol=1e-4)
            start += len(reply)


def test_greedy_replies_equal_generate(policies, plain):
    model, tokenizer = plain
    for agent in AGENTS:
        mine = [request for request in requests() if request.agent == agent]
        for request, completion in zip(mine, policies[agent].act(mine, greedy=True), strict=True):
            prompt = torch.tensor(completion.tokens.prompt_ids)[None]
            generated = model.generate(
                prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=MAX_NEW_TOKENS
            )[0, prompt.shape[1] :]
            assert completion.tokens.completion_ids.tolist() == generated.tolist()
            assert completion.action == tokenizer.decode(generated, skip_special_tokens=True)
            assert request.observation == completion.tokens.observation


def test_a_team_with_adapters_trains_and_is_loaded(real_model, tmp_path, capsys):
    run = collm.train(
        "magrpo",
        env="collm/TinyHanabi-v0",
        model=str(real_model),
        weights="adapters",
        num_updates=1,
        rollout_buffer_size=4,
        num_generations=2,
        max_new_tokens=8,
        eval_num_samples=2,
        out=tmp_path / "run",
    )
    assert run.experiment.env_kwargs["is_explained"] is True
    assert "is_chat: True" in capsys.readouterr().out
    team = collm.load_team(tmp_path / "run", trust=True)
    observations, infos = collm.make("collm/TinyHanabi-v0", is_explained=True).reset(seed=0)
    assert all(isinstance(action, str) for action in team.act(observations, infos).values())
