"""Every prompt is completed by its own adapter, whether they run together or in turn."""

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from collm.agents.decoding.adapters import AdapterBank, active_adapter
from collm.agents.decoding.cpu import patch_layers
from collm.agents.decoding.decoder import Decoder, Prompt
from collm.agents.decoding.sampling import Sampling

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
PLAIN = LoraConfig(r=4, target_modules="all-linear")

pytestmark = pytest.mark.filterwarnings("ignore:fan_in_fan_out", "ignore:`is_gradient_checkpointing`:FutureWarning")


def build(name="llama", **left):
    torch.manual_seed(0)
    base = (
        LlamaForCausalLM(LlamaConfig(**SIZES, intermediate_size=64, num_key_value_heads=2))
        if name == "llama"
        else GPT2LMHeadModel(GPT2Config(**SIZES))
    )
    model = get_peft_model(base, LoraConfig(r=4, target_modules="all-linear", **left), adapter_name="left")
    right = ["q_proj", "up_proj"] if name == "llama" else ["c_attn"]
    model.add_adapter("right", LoraConfig(r=2, lora_alpha=3, target_modules=right))
    for parameter_name, weight in model.named_parameters():
        if "lora_B" in parameter_name:
            nn.init.normal_(weight, std=0.3)
        weight.requires_grad_("lora" in parameter_name)
    return model.eval()


def prompts_of(adapters, seed=0):
    rng = np.random.default_rng(seed)
    return [
        Prompt(rng.integers(4, 64, int(rng.integers(1, 20))), (seed, row), int(rng.integers(1, 15)), row, adapter)
        for row, adapter in enumerate(adapters)
    ]


@torch.no_grad()
def logprobs_by_force(model, prompt, sample):
    with active_adapter(model, prompt.adapter):
        ids = torch.from_numpy(np.concatenate([prompt.ids, sample.ids]))
        logprobs = torch.log_softmax(model(input_ids=ids[None]).logits[0, :-1], -1)
        return logprobs.gather(1, ids[1:, None])[len(prompt.ids) - 1 :, 0].numpy()


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("adapters", [["left", "right", None], ["right"], [None]], ids=str)
def test_log_probabilities_are_those_of_the_prompts_own_adapter(name, adapters):
    model = build(name)
    prompts, decoder = prompts_of(adapters * 4), Decoder(model, [3], max_slots=5)
    for _ in range(2):
        samples = decoder.generate(prompts, Sampling())
        for prompt, sample in zip(prompts, samples, strict=True):
            np.testing.assert_allclose(sample.logprobs, logprobs_by_force(model, prompt, sample), atol=1e-5)
        prompts = [
            Prompt(np.concatenate([prompt.ids, sample.ids, [9, 8, 7]]), (1, row), 6, row, prompt.adapter)
            for row, (prompt, sample) in enumerate(zip(prompts, samples, strict=True))
        ]


def test_a_sample_is_the_same_together_with_other_adapters_and_alone():
    model, prompts = build(), prompts_of(["left", None, "right", "left"] * 5)
    together = Decoder(model, [3]).generate(prompts, Sampling())
    lone = Decoder(model, [3])
    alone = [lone.generate([prompt], Sampling())[0] for prompt in prompts]
    assert [sample.ids.tolist() for sample in together] == [sample.ids.tolist() for sample in alone]


def test_decoding_leaves_the_model_as_it_was():
    model = build()
    patch_layers(model)
    flags = [weight.requires_grad for weight in model.parameters()]
    forwards = [vars(module).get("forward") for module in model.modules()]
    for adapters in (["left", "right", None], ["right"], [None]):
        Decoder(model, [3]).generate(prompts_of(adapters), Sampling())
    assert model.active_adapter == "left"
    assert [weight.requires_grad for weight in model.parameters()] == flags
    assert [vars(module).get("forward") for module in model.modules()] == forwards


@pytest.mark.parametrize("setting", [{"use_dora": True}, {"modules_to_save": ["lm_head"]}], ids=str)
def test_adapters_that_are_more_than_low_rank_products_run_in_turn(setting):
    model = build(**setting)
    assert not AdapterBank.serves(model)
    prompts = prompts_of(["left", "right", None])
    for prompt, sample in zip(prompts, Decoder(model, [3]).generate(prompts, Sampling()), strict=True):
        np.testing.assert_allclose(sample.logprobs, logprobs_by_force(model, prompt, sample), atol=1e-5)


def test_each_adapter_may_have_its_own_value_head():
    model, prompts = build(), prompts_of(["left", None, "right"])
    torch.manual_seed(2)
    heads = {"left": nn.Linear(32, 1), "right": nn.Linear(32, 1)}
    samples = Decoder(model, [3], value_head=heads).generate(prompts, Sampling())
    for prompt, sample in zip(prompts, samples, strict=True):
        if prompt.adapter is None:
            assert sample.value is None
        else:
            with torch.no_grad(), active_adapter(model, prompt.adapter):
                states = model.get_base_model().model(input_ids=torch.tensor(prompt.ids)[None])[0]
                assert sample.value == pytest.approx(heads[prompt.adapter](states[0, -1]).item(), abs=1e-5)


def test_an_unknown_adapter_is_refused_by_name():
    with pytest.raises(ValueError, match=r"no adapter 'middle'; it has \['left', 'right'\]"):
        Decoder(build(), [3]).generate(prompts_of(["middle"]), Sampling())
