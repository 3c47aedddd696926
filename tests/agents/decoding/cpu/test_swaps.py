"""Layers that are swapped compute what they did; a layer that is, or may become, something else is left as it is."""

import copy
import pickle

import pytest
import torch
from architectures import model_of
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.nn import functional
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm

from collm.agents.decoding.cpu import compiling, swaps
from collm.agents.decoding.cpu.swaps import Attention, GatedLayer, Norm, Swapped, quicken

needs_compiler = pytest.mark.skipif(compiling.compiler() is None, reason="this machine has no C++ compiler")
LAYERS = {"llama": (5, 2, 2), "qwen2": (5, 2, 2), "qwen3": (9, 2, 2), "olmo": (0, 2, 2), "gpt2": (0, 0, 0)}
"""Norms, gated layers and attentions of a model of two layers."""


def gradients(model, ids):
    model.zero_grad()
    logits = model(ids).logits
    logits.square().mean().backward()
    return [logits.detach(), *(weight.grad.clone() for weight in model.parameters())]


@needs_compiler
@pytest.mark.parametrize("name", LAYERS)
def test_models_compute_what_they_did(name):
    model, ids = model_of(name), torch.arange(48).view(2, 24)
    names = list(model.state_dict())
    own = [type(layer) for layer in model.modules()]
    before = gradients(model, ids)
    quicken(model)
    quicken(model)
    found = tuple(sum(isinstance(layer, kind) for layer in model.modules()) for kind in (Norm, GatedLayer, Attention))
    assert found == LAYERS[name]
    for twin in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert list(twin.state_dict()) == names
        for layer, kind in zip(twin.modules(), own, strict=True):
            assert isinstance(layer, kind) and type(layer).__name__ == kind.__name__
        assert sum(isinstance(layer, Swapped) for layer in twin.modules()) == sum(found)
        for now, then in zip(gradients(twin, ids), before, strict=True):
            torch.testing.assert_close(now, then, atol=2e-5, rtol=1e-3)


@needs_compiler
def test_the_kernels_are_used(monkeypatch):
    used = set()

    def noted(name):
        own = getattr(swaps, name)
        monkeypatch.setattr(swaps, name, lambda *given: used.add(name) or own(*given))

    for name in ("normalised", "gated", "rotated"):
        noted(name)
    model = model_of("llama")
    model(torch.arange(6)[None])
    assert used == set()
    quicken(model)
    model(torch.arange(6)[None])
    assert used == {"normalised", "gated", "rotated"}


def test_without_kernels_swapped_layers_compute_as_their_own(monkeypatch):
    monkeypatch.setenv(compiling.SWITCH, "0")
    model, ids = model_of("qwen3"), torch.arange(24)[None]
    monkeypatch.setattr(swaps, "is_faster", lambda: False)
    before = gradients(model, ids)
    quicken(model)
    assert all(map(torch.equal, gradients(model, ids), before))
    assert model.to(torch.bfloat16)(ids).logits.dtype == torch.bfloat16


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
def test_adapters_in_a_swapped_layer_act():
    model = model_of("llama")
    quicken(model)
    adapted = get_peft_model(model, LoraConfig(target_modules=["gate_proj", "down_proj"], init_lora_weights=False))
    mlp = model.model.layers[0].mlp
    assert isinstance(mlp, GatedLayer)
    x = torch.randn(3, mlp.hidden_size)
    meant = mlp.down_proj(functional.silu(mlp.gate_proj(x)) * mlp.up_proj(x))
    torch.testing.assert_close(mlp(x), meant, atol=1e-5, rtol=1e-4)
    with adapted.disable_adapter():
        assert not torch.allclose(mlp(x), meant, atol=1e-3)


class ShiftedNorm(LlamaRMSNorm):  # as Gemma's
    def forward(self, x):
        return functional.rms_norm(x, x.shape[-1:], 1 + self.weight, self.variance_epsilon)


class GatedNorm(LlamaRMSNorm):  # as Mamba's
    def forward(self, x, gate=None):
        return super().forward(x if gate is None else x * gate)


class DroppingLayer(LlamaMLP):
    def forward(self, x):
        return functional.dropout(super().forward(x), 0.5, self.training)


class OtherLayer(LlamaMLP):
    def forward(self, x):
        return self.down_proj(self.act_fn(self.up_proj(x)) * self.gate_proj(x))


def test_layers_that_compute_something_else_are_left():
    config = model_of("llama").config
    others = [ShiftedNorm(32), GatedNorm(32), DroppingLayer(config), OtherLayer(config), nn.LayerNorm(32), nn.SiLU()]
    wide = LlamaRMSNorm(32).double()
    gelu = LlamaMLP(config)
    gelu.act_fn = nn.GELU()
    others = nn.ModuleList([*others, wide, gelu]).eval()
    quicken(others)
    assert not any(isinstance(layer, Swapped) for layer in others.modules())
    fits = nn.ModuleList([LlamaRMSNorm(32), LlamaMLP(config)])
    quicken(fits)
    assert [isinstance(layer, Swapped) for layer in fits] == [True, True]


def test_other_ways_to_turn_are_left(monkeypatch):
    from transformers.models.llama import modeling_llama

    def interleaved(q, k, cos, sin, unsqueeze_dim=1):
        def turned(x):
            pairs = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
            return x * cos.unsqueeze(unsqueeze_dim) + pairs * sin.unsqueeze(unsqueeze_dim)

        return turned(q), turned(k)

    def otherwise_called(q, k, angles):
        return q, k

    for other in (interleaved, otherwise_called):
        monkeypatch.setattr(modeling_llama, swaps.ROTATE, other)
        model = model_of("llama")
        quicken(model)
        assert not any(isinstance(layer, Attention) for layer in model.modules())
