"""Models that are not causal are refused. Accepted rounding errors follow the precision of matrix multiplications."""

from types import SimpleNamespace

import pytest
import torch
from architectures import model_of, smallest_model
from fakes import byte_tokenizer
from transformers import LlamaForCausalLM

from collm._errors import UserError
from collm.agents.decoding.self_check import NUM_TESTED, check_causal, is_cache_exact, tolerance
from collm.agents.language.model import LanguageModel


@pytest.mark.parametrize(("device", "is_looser"), [("cuda", True), ("cpu", False)])
def test_tf32_is_accepted_on_a_gpu_with_its_rounding(device, is_looser, monkeypatch):
    base = SimpleNamespace(device=torch.device(device), dtype=torch.float32)
    exact = tolerance(base)
    monkeypatch.setattr(torch.backends.cuda, "matmul", SimpleNamespace(fp32_precision="tf32"))
    assert (tolerance(base) > 1e-3) is is_looser and (tolerance(base) == exact) is not is_looser
    assert tolerance(base) < tolerance(SimpleNamespace(device=torch.device(device), dtype=torch.bfloat16))


@pytest.mark.parametrize(("name", "width"), [("llama", 32), ("gpt2", 32), ("opt", 16), ("bart", 32), ("mamba", 32)])
def test_causal_models_are_accepted_with_the_size_of_their_hidden_states(name, width):
    model = model_of(name)
    assert check_causal(model) == check_causal(model.base_model) == width
    assert all(weight.grad is None for weight in model.parameters())
    assert check_causal(model.to(torch.bfloat16)) == width
    assert check_causal(model.requires_grad_(False)) == width


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "words"), [("bidirectional", "not causal"), ("prophetnet", "not causal"), ("reformer", "train")]
)
def test_models_that_cannot_be_trained_as_causal_models_are_refused_in_one_line(name, words):
    model = model_of(name)
    with pytest.raises(UserError, match=f"{type(model).__name__}.*{words}") as raised:
        LanguageModel(model, byte_tokenizer())
    assert "\n" not in str(raised.value)


class NeedsPictures(LlamaForCausalLM):
    def forward(self, input_ids=None, pixel_values=None, **kwargs):
        return super().forward(input_ids=input_ids + pixel_values, **kwargs)


class LacksPackage(LlamaForCausalLM):
    def forward(self, *args, **kwargs):
        raise ImportError("install\nfast-kernels")


class Pools(LlamaForCausalLM):
    def forward(self, *args, **kwargs):
        outputs = super().forward(*args, **kwargs)
        outputs.logits = outputs.logits.mean(dim=1)
        return outputs


@pytest.mark.parametrize(
    ("kind", "words"),
    [(NeedsPictures, "TypeError"), (LacksPackage, "install fast-kernels"), (Pools, "one row per token")],
)
def test_models_that_need_more_than_token_ids_are_refused_in_one_line(kind, words):
    with pytest.raises(UserError, match=f"{kind.__name__}.*{words}"):
        check_causal(kind(model_of("llama").config))


@torch.no_grad()
def test_a_cache_with_a_window_for_attention_without_one_is_exact_only_within_the_window():
    model = model_of("moshi")
    assert not is_cache_exact(model, 24)
    model.config.sliding_window = 100
    assert is_cache_exact(model, 24)
    assert is_cache_exact(model_of("windowed"), 28)


@torch.no_grad()
def test_small_errors_of_a_cache_that_grow_with_each_step_are_found():
    model = smallest_model("nemotron_h")  # only passes without a cache clamp the time steps
    assert not is_cache_exact(model, NUM_TESTED)
    assert is_cache_exact(smallest_model("qwen3_next"), NUM_TESTED)
