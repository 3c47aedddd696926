"""Replacement of a model's layers by faster layers for CPUs. RMSNorm, SwiGLU and RoPE have different classes in each
family of transformers models. They are recognized by their parts and by their outputs on random inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from inspect import signature
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from .fused_ops import can_run, rms_norm, rope, swiglu
from .onednn_linear import Linear, is_onednn_faster

SWIGLU_PARTS = {"gate_proj", "up_proj", "down_proj", "act_fn"}
ROPE = "apply_rotary_pos_emb"  # name of the function that applies RoPE in transformers' models
TOLERANCE = 1e-4
FAILURES = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Exceptions that models and their layers raise for inputs, caches or masks that they do not support."""


@torch.no_grad()
def patch_layers(model: nn.Module) -> None:
    """Replace fp32 layers on a CPU by faster layers, in place. Weights and saved files do not change."""
    for layer in model.modules():
        weights = list(layer.parameters())
        if type(layer) is nn.Linear:
            if is_onednn_faster():
                layer.__class__ = Linear
        elif weights and "forward" not in vars(layer) and can_run(*weights):
            try:
                forward = next((forward for is_kind, forward in KINDS if is_kind(layer)), None)
            except FAILURES:  # the layer needs inputs of other shapes or types
                continue
            if forward is not None:
                vars(layer)["forward"] = partial(forward, layer)


def _is_rms_norm(layer: Any) -> bool:
    if [name for name, _ in layer.named_parameters()] != ["weight"] or list(layer.buffers()):
        return False
    if _epsilon(layer) is None or layer.weight.ndim != 1 or not _reads_one(layer):
        return False
    x, other = torch.randn(2, 2, len(layer.weight), generator=torch.Generator().manual_seed(0))
    found = functional_call(layer, {"weight": other[0]}, x)  # weights of 1 would also accept other norms
    return _is_close(found, functional.rms_norm(x, layer.weight.shape, other[0], _epsilon(layer)))


def _is_swiglu(layer: Any) -> bool:
    if {name for name, _ in layer.named_children()} != SWIGLU_PARTS or list(layer.parameters(recurse=False)):
        return False
    if set(type(layer).forward.__code__.co_names) != SWIGLU_PARTS or not _reads_one(layer):
        return False  # the layer computes something else, perhaps only in training
    x = torch.randn(2, layer.gate_proj.weight.shape[1], generator=torch.Generator().manual_seed(0))
    return _is_close(layer(x), layer.down_proj(functional.silu(layer.gate_proj(x)) * layer.up_proj(x)))


def _applies_rope(layer: Any) -> bool:
    forward = type(layer).forward
    apply = getattr(forward, "__globals__", {}).get(ROPE)
    if apply is None or ROPE not in forward.__code__.co_names:
        return False
    generator = torch.Generator().manual_seed(0)
    x, (cosine, sine) = torch.randn(2, 3, 3, 4, generator=generator), torch.randn(2, 2, 3, 4, generator=generator)
    first, second = x.chunk(2, dim=-1)
    meant = x * cosine[:, None] + torch.cat([-second, first], dim=-1) * sine[:, None]
    return all(_is_close(turned, meant) for turned in apply(x, x, cosine, sine))


def _rms_norm(layer: Any, x: Tensor) -> Any:
    normal = rms_norm(x, layer.weight, _epsilon(layer) or 0.0)
    return type(layer).forward(layer, x) if normal is None else normal


def _swiglu(layer: Any, x: Tensor) -> Any:
    gate, up = layer.gate_proj(x), layer.up_proj(x)
    hidden = swiglu(gate, up)
    return layer.down_proj(layer.act_fn(gate) * up if hidden is None else hidden)


def _attention(layer: Any, *args: Any, **kwargs: Any) -> Any:
    return _with_fused_rope(type(layer).forward)(layer, *args, **kwargs)


KINDS = ((_is_rms_norm, _rms_norm), (_is_swiglu, _swiglu), (_applies_rope, _attention))


@cache
def _with_fused_rope(forward: Any) -> Callable[..., Any]:
    """Return a copy of an attention layer's `forward` method that calls the RoPE kernel."""
    own = forward.__globals__[ROPE]

    def apply(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 4 and not kwargs:
            turned = rope(args[0], *args[2:]), rope(*args[1:])  # query and key
            if turned[0] is not None and turned[1] is not None:
                return turned
        return own(*args, **kwargs)

    names = {**forward.__globals__, ROPE: apply}
    copy = FunctionType(forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__)
    copy.__kwdefaults__ = forward.__kwdefaults__
    return copy


def _epsilon(norm: nn.Module) -> float | None:
    found = (getattr(norm, name, None) for name in ("variance_epsilon", "eps"))
    return next((epsilon for epsilon in found if isinstance(epsilon, float)), None)


def _reads_one(layer: nn.Module) -> bool:
    return len(signature(type(layer).forward).parameters) == 2  # self and a tensor


def _is_close(found: Any, meant: Tensor) -> bool:
    return isinstance(found, Tensor) and torch.allclose(found, meant, atol=TOLERANCE, rtol=TOLERANCE)
