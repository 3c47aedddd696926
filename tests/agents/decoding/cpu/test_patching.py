"""Patched layers compute the same as before. Layers that compute something else are not patched."""

import copy
import pickle

import pytest
import torch
from architectures import model_of
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.nn import functional
from transformers.models.llama import modeling_llama
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm

from collm.agents.decoding.cpu import compiler, patch_layers, patching
from collm.agents.decoding.cpu.kernels import SWITCH

needs_compiler = pytest.mark.skipif(compiler() is None, reason="this machine has no C++ compiler")
LAYERS = {"llama": (5, 2, 2), "qwen2": (5, 2, 2), "qwen3": (9, 2, 2), "olmo": (0, 2, 2), "gpt2": (0, 0, 0)}
LAYERS |= {"gpt_oss": (5, 0, 0)}
"""Patched norms, SwiGLU layers and attentions of a model with two layers."""


def patched(layer):
    """The function that replaces the layer's `forward`, or None."""
    forward = vars(layer).get("forward")
    return None if forward is None else forward.func


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
    before = gradients(model, ids)
    patch_layers(model)
    patch_layers(model)
    kinds = patching._rms_norm, patching._swiglu, patching._attention
    found = tuple(sum(patched(layer) is kind for layer in model.modules()) for kind in kinds)
    assert found == LAYERS[name]
    for twin in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert list(twin.state_dict()) == names
        layers = [layer for layer in twin.modules() if patched(layer)]
        assert len(layers) == sum(found)
        assert all(vars(layer)["forward"].args == (layer,) for layer in layers)
        for now, then in zip(gradients(twin, ids), before, strict=True):
            torch.testing.assert_close(now, then, atol=2e-5, rtol=1e-3)


def test_the_switch_leaves_a_model_as_it_is(monkeypatch):
    monkeypatch.setenv(SWITCH, "0")
    model, ids = model_of("qwen3"), torch.arange(24)[None]
    before = gradients(model, ids)
    patch_layers(model)
    assert not any(patched(layer) for layer in model.modules())
    assert all(map(torch.equal, gradients(model, ids), before))


@needs_compiler
def test_patched_layers_of_another_type_compute_as_their_own():
    model, ids = model_of("qwen3").to(torch.bfloat16), torch.arange(24)[None]
    before = gradients(model, ids)
    patched_model = model_of("qwen3")
    patch_layers(patched_model)
    assert all(map(torch.equal, gradients(patched_model.to(torch.bfloat16), ids), before))


@needs_compiler
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
def test_adapters_in_a_patched_layer_act():
    model = model_of("llama")
    patch_layers(model)
    adapted = get_peft_model(model, LoraConfig(target_modules=["gate_proj", "down_proj"], init_lora_weights=False))
    mlp = model.model.layers[0].mlp
    assert patched(mlp)
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


@needs_compiler
def test_layers_that_compute_something_else_are_left():
    config = model_of("llama").config
    gelu = LlamaMLP(config)
    gelu.act_fn = nn.GELU()
    norms = [ShiftedNorm(32), GatedNorm(32), nn.LayerNorm(32), LlamaRMSNorm(32).double()]
    others = nn.ModuleList([*norms, DroppingLayer(config), OtherLayer(config), nn.SiLU(), gelu]).eval()
    patch_layers(others)
    assert not any(patched(layer) for layer in others.modules())
    fits = nn.ModuleList([LlamaRMSNorm(32), LlamaMLP(config)])
    patch_layers(fits)
    assert all(patched(layer) for layer in fits)


class HeadNorm(LlamaRMSNorm):  # as xLSTM's
    def forward(self, x):
        num_rows, num_tokens, num_heads, width = x.shape
        return super().forward(x.reshape(num_rows, num_tokens, num_heads * width))


@needs_compiler
def test_layers_that_do_not_accept_the_inputs_of_a_test_are_left():
    layer = HeadNorm(32)
    patch_layers(layer)
    assert not patched(layer)


def test_attention_may_pass_arguments_of_rope_by_name():
    fused = patching._with_fused_rope(modeling_llama.LlamaAttention.forward).__globals__[patching.ROPE]
    x, angles = torch.randn(1, 2, 3, 8), torch.randn(1, 3, 8)
    plain = modeling_llama.apply_rotary_pos_emb(x, x, angles, angles)
    torch.testing.assert_close(fused(q=x, k=x, cos=angles, sin=angles), plain)


def test_other_ways_to_turn_are_left(monkeypatch):
    def interleaved(q, k, cos, sin, unsqueeze_dim=1):
        def turned(x):
            pairs = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
            return x * cos.unsqueeze(unsqueeze_dim) + pairs * sin.unsqueeze(unsqueeze_dim)

        return turned(q), turned(k)

    def otherwise_called(q, k, angles):
        return q, k

    for other in (interleaved, otherwise_called):
        monkeypatch.setattr(modeling_llama, patching.ROPE, other)
        model = model_of("llama")
        patch_layers(model)
        assert not any(patched(layer) is patching._attention for layer in model.modules())
