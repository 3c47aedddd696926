"""Samples depend on prompt, stream and weights only, and their log-probabilities equal plain forward passes."""

import numpy as np
import pytest
import torch
from architectures import SMALL, model_of
from decoded import assert_exact, assert_same, next_turn, ragged_prompts
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, MistralConfig, MistralForCausalLM

from collm._progress import observing
from collm.agents.decoding.decoder import PREFILL_TOKENS, Decoder, Prompt
from collm.agents.decoding.sampling import Sampling

STOP = 3
MODELS = ("llama", "eager", "qwen2", "qwen3", "gpt2", "opt")
OTHERS = ("windowed", "mamba", "gemma2", "gpt_oss", "moshi", "bart")  # models that the arena cannot serve


@pytest.fixture(scope="module")
def llama():
    return model_of("llama")


@pytest.fixture
def row():
    return Prompt(np.arange(4, 30), (0,), 8, parked="row")


def fresh(model, prompts, sampling=None):
    return Decoder(model, [STOP]).generate(prompts, sampling or Sampling())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8, 20, 0.9), Sampling(greedy=True)], ids=str)
def test_log_probabilities_and_entropies_equal_one_full_forward_for_each_token(name, sampling):
    model, prompts = model_of(name), ragged_prompts(9)
    assert_exact(model, prompts, Decoder(model, [STOP], max_slots=4).generate(prompts, sampling), sampling.temperature)


@pytest.mark.parametrize("name", OTHERS)
def test_a_model_that_the_arena_would_falsify_falls_back_with_one_warning(name):
    model, prompts = model_of(name), ragged_prompts(6, max_new_tokens=20)
    decoder = Decoder(model, [STOP])
    with pytest.warns(UserWarning, match="slower plain loop") as told:
        samples = decoder.generate(prompts, Sampling(0.9)) + decoder.generate(prompts, Sampling(0.9))
    assert len(told) == 1
    assert_exact(model, prompts * 2, samples, 0.9)


def test_models_may_have_a_long_window_and_use_their_last_position():
    model = MistralForCausalLM(MistralConfig(**SMALL, sliding_window=30)).eval()
    fresh(model, [Prompt([5] * 20, (0,), 10)])  # without a warning
    sample = Decoder(model_of("qwen2"), []).generate([Prompt([5] * 100, (0,), 28)], Sampling())[0]
    assert len(sample.ids) == 28


@pytest.mark.parametrize("sampling", [pytest.param(Sampling(), marks=pytest.mark.slow), Sampling(0.8, 20, 0.9)])
def test_a_sample_is_the_same_alone_and_in_a_batch_of_64(llama, sampling, monkeypatch):
    prompts = ragged_prompts(64, longest=40, new=25)
    together = Decoder(llama, [STOP], max_slots=64).generate(prompts, sampling)
    with monkeypatch.context() as patch:
        patch.setitem(PREFILL_TOKENS, "cpu", 50)
        refilled = Decoder(llama, [STOP], max_slots=7).generate(prompts[::-1], sampling)[::-1]
    lone = Decoder(llama, [STOP])
    alone = [lone.generate([prompt], sampling)[0] for prompt in prompts]
    assert_same(together, alone)
    assert_same(refilled, alone)


def test_a_completion_ends_with_its_stop_token_or_is_marked_as_cut(llama):
    samples = Decoder(llama, [STOP, 50, 51]).generate(ragged_prompts(60, max_new_tokens=30), Sampling(2.0))
    for sample in samples:
        assert not set(sample.ids[:-1].tolist()) & {STOP, 50, 51}
        assert sample.is_cut == (sample.ids[-1] not in {STOP, 50, 51})
        assert len(sample.ids) == 30 or not sample.is_cut
    assert 0 < sum(sample.is_cut for sample in samples) < 60


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("max_slots", [3, 20])
def test_rows_parked_between_turns_continue_as_if_computed_anew(name, max_slots):
    model, prompts = model_of(name), ragged_prompts(11, seed=2, parks=True)
    decoder = Decoder(model, [STOP], max_slots=max_slots)
    for turn in range(1, 4):
        samples = decoder.generate(prompts, Sampling(0.9))
        assert_same(samples, fresh(model, prompts, Sampling(0.9)))
        prompts = next_turn(prompts, samples, turn)[::-1]


def test_a_parked_row_is_used_only_as_far_as_the_new_prompt_agrees(llama, row):
    decoder = Decoder(llama, [STOP])
    decoder.generate([row], Sampling())
    for ids in ([*range(4, 20), 70, 71, 72, 73], [90, 91, 92], list(range(4, 12)), [4]):
        changed = [Prompt(ids, (1,), 8, parked="row")]
        assert_same(decoder.generate(changed, Sampling()), fresh(llama, changed))


def test_changed_weights_need_parked_rows_to_be_forgotten(row):
    model = model_of("llama")
    decoder = Decoder(model, [STOP])
    prompts = next_turn([row], decoder.generate([row], Sampling()))
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.1)
    decoder.forget()
    assert_same(decoder.generate(prompts, Sampling()), fresh(model, prompts))


def test_equal_prompts_are_computed_once_and_sampled_apart(llama):
    prompts = [Prompt(np.arange(4, 30), (0, row), 6) for row in range(8)]
    decoder, passes = Decoder(llama, []), []
    handle = llama.model.register_forward_pre_hook(
        lambda module, args, kwargs: passes.append(kwargs["input_ids"].shape), with_kwargs=True
    )
    samples = decoder.generate(prompts, Sampling())
    handle.remove()
    assert passes == [(1, 25)] + [(8, 1)] * 6
    assert len({tuple(sample.ids) for sample in samples}) == 8
    assert_same(samples, [Decoder(llama, []).generate([prompt], Sampling())[0] for prompt in prompts])


@pytest.mark.parametrize("name", ["llama", "gemma2", "opt", "bart"])
@pytest.mark.filterwarnings("ignore:.*slower plain loop:UserWarning")
def test_the_value_is_the_heads_at_the_last_prompt_token(name):
    torch.manual_seed(1)
    model, prompts = model_of(name), ragged_prompts(9)
    head = nn.Linear(model.get_output_embeddings().in_features, 1)
    samples = Decoder(model, [STOP], max_slots=4, value_head=head).generate(prompts, Sampling())
    with torch.no_grad():
        expected = [head(model.model(input_ids=torch.tensor(p.ids)[None])[0][0, -1]).item() for p in prompts]
    assert [sample.value for sample in samples] == pytest.approx(expected, abs=1e-5)
    assert fresh(model, prompts[:1])[0].value is None


def test_dropout_is_off_while_decoding_and_every_mode_is_restored():
    model = GPT2LMHeadModel(GPT2Config(**SMALL, resid_pdrop=0.9)).train()
    model.transformer.h[0].eval()
    modes = [module.training for module in model.modules()]
    prompts = ragged_prompts(4)
    decoder = Decoder(model, [STOP])
    assert_same(decoder.generate(prompts, Sampling()), decoder.generate(prompts, Sampling()))
    assert [module.training for module in model.modules()] == modes


def test_gradients_flow_after_decoding_in_inference_mode_and_no_random_state_is_touched(llama):
    decoder = Decoder(llama, [STOP])
    with torch.inference_mode():
        decoder.generate(ragged_prompts(2), Sampling())
    state = torch.get_rng_state()
    decoder.generate(ragged_prompts(2), Sampling())
    assert torch.equal(torch.get_rng_state(), state)
    llama(input_ids=torch.arange(4, 20)[None]).logits.sum().backward()
    assert llama.lm_head.weight.grad is not None
    llama.zero_grad()


def test_rows_parked_in_one_compute_type_are_not_read_in_another(llama, row):
    decoder = Decoder(llama, [STOP])
    prompts = next_turn([row], decoder.generate([row], Sampling()))
    with torch.autocast("cpu", torch.bfloat16):
        coarse = decoder.generate(prompts, Sampling())
    assert_same(decoder.generate(prompts, Sampling()), fresh(llama, prompts))
    with torch.autocast("cpu", torch.bfloat16):
        assert_same(decoder.generate(prompts, Sampling()), coarse)


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([Prompt([], (0,), 4)], "prompt 0 has no tokens"),
        ([Prompt([5], (0,), 0)], "max_new_tokens 0"),
        ([Prompt([5] * 100, (0,), 29)], "129, .* max_position_embeddings 128"),
        ([Prompt([5], (0,), 4, "row"), Prompt([6], (1,), 4, "row")], "handle 'row'"),
        ([Prompt([5], (0,), 4, adapter="left")], "no adapters"),
    ],
)
def test_a_request_that_cannot_be_served_says_why(prompts, message):
    with pytest.raises(ValueError, match=message):
        fresh(model_of("qwen2"), prompts)


def test_a_decoder_with_a_foreign_stop_token_or_a_diverged_model_is_refused():
    model = model_of("llama")
    with pytest.raises(ValueError, match="stop token 97"):
        Decoder(model, [97])
    decoder = Decoder(model, [STOP])
    assert decoder.generate([], Sampling()) == []
    with torch.no_grad():
        model.model.norm.weight.fill_(torch.nan)
    with pytest.raises(ValueError, match="logits are not numbers"):
        decoder.generate(ragged_prompts(2), Sampling(top_p=0.9))


def test_with_fixed_shapes_a_prompt_beyond_the_window_does_not_change_the_other_samples():
    torch.manual_seed(0)
    model = MistralForCausalLM(MistralConfig(**(SMALL | {"max_position_embeddings": 512}), sliding_window=256)).eval()
    short = [Prompt([3 + i, 5, 7], stream=(i,), max_new_tokens=6) for i in range(3)]
    long = Prompt(list(range(90)) * 3, stream=(9,), max_new_tokens=4)
    decoder = Decoder(model, [96], max_slots=4)
    decoder.fix_shapes()
    alone = decoder.generate(short, Sampling())
    with pytest.warns(UserWarning, match="window"):
        together = decoder.generate([*short, long], Sampling())
    for sample, other in zip(alone, together, strict=False):
        assert np.array_equal(sample.ids, other.ids) and np.array_equal(sample.logprobs, other.logprobs)


def test_decoding_reports_its_tokens_and_goes_on_after_an_observer_has_stopped_it(llama):
    class Stop(Exception):
        pass

    reports = []

    def observe(work):
        reports.append((work.name, work.done, work.total, work.note))
        if work.name == "decode" and work.done >= 6:
            raise Stop

    prompts = [Prompt(np.arange(4, 12 + number), (number,), 5, parked=number) for number in range(3)]
    decoder, expected = Decoder(llama, []), Decoder(llama, []).generate(prompts, Sampling())
    with observing(observe), pytest.raises(Stop):
        decoder.generate(prompts, Sampling())
    assert reports[-2:] == [("decode", 3, 15, "3 replies unfinished"), ("decode", 6, 15, "3 replies unfinished")]
    assert {name for name, *_ in reports} == {"decode", "read prompts"}
    for ours, theirs in zip(decoder.generate(prompts, Sampling()), expected, strict=True):
        assert ours.ids.tolist() == theirs.ids.tolist()
