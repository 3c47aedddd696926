"""Every prompt is completed by its own adapter, whether they run together or in turn."""

from dataclasses import replace

import pytest
from architectures import adapted_model
from decoded import assert_exact, next_turn, ragged_prompts

from collm.agents.decoding.adapters import AdapterBank
from collm.agents.decoding.cpu import patch_layers
from collm.agents.decoding.decoder import Decoder
from collm.agents.decoding.sampling import Sampling

pytestmark = pytest.mark.filterwarnings("ignore:fan_in_fan_out", "ignore:`is_gradient_checkpointing`:FutureWarning")


def prompts_of(adapters):
    prompts = ragged_prompts(len(adapters), longest=20, parks=True)
    return [replace(prompt, adapter=adapter) for prompt, adapter in zip(prompts, adapters, strict=True)]


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("adapters", [["left", "right", None], ["right"], [None]], ids=str)
def test_log_probabilities_are_those_of_the_prompts_own_adapter(name, adapters):
    model = adapted_model(name)
    prompts, decoder = prompts_of(adapters * 4), Decoder(model, [3], max_slots=5)
    for _ in range(2):
        samples = decoder.generate(prompts, Sampling())
        assert_exact(model, prompts, samples)
        prompts = next_turn(prompts, samples)


def test_a_sample_is_the_same_together_with_other_adapters_and_alone():
    model, prompts = adapted_model(), prompts_of(["left", None, "right", "left"] * 5)
    together = Decoder(model, [3]).generate(prompts, Sampling())
    lone = Decoder(model, [3])
    alone = [lone.generate([prompt], Sampling())[0] for prompt in prompts]
    assert [sample.ids.tolist() for sample in together] == [sample.ids.tolist() for sample in alone]


def test_decoding_leaves_the_model_as_it_was():
    model = adapted_model()
    patch_layers(model)
    flags = [weight.requires_grad for weight in model.parameters()]
    forwards = [vars(module).get("forward") for module in model.modules()]
    for adapters in (["left", "right", None], ["right"], [None]):
        Decoder(model, [3]).generate(prompts_of(adapters), Sampling())
    assert model.active_adapter == "left"
    assert [weight.requires_grad for weight in model.parameters()] == flags
    assert [vars(module).get("forward") for module in model.modules()] == forwards
    with pytest.raises(ValueError, match=r"'middle'.*\['left', 'right'\]"):
        Decoder(model, [3]).generate(prompts_of(["middle"]), Sampling())


@pytest.mark.parametrize("setting", [{"use_dora": True}, {"modules_to_save": ["lm_head"]}], ids=str)
def test_adapters_that_are_more_than_low_rank_products_run_in_turn(setting):
    model = adapted_model(**setting)
    assert not AdapterBank.serves(model)
    prompts = prompts_of(["left", "right", None])
    assert_exact(model, prompts, Decoder(model, [3]).generate(prompts, Sampling()))
