"""A model's layers → the same layers that run faster on a CPU: only their classes change, and only in `forward`.

Linear layers become `products.Linear`. For norms by the root mean square and for gated feed-forward layers (SwiGLU)
every family of transformers models has classes of its own: they are known by what they are made of and by what they
compute, and become subclasses of their own classes. Attention layers turn queries and keys by positions in one pass.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache, update_wrapper
from inspect import signature
from types import FunctionType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from .layers import are_plain, gated, normalised, rotated
from .products import Linear, is_faster

EPSILONS = ("variance_epsilon", "eps")
GATED = {"gate_proj", "up_proj", "down_proj", "act_fn"}
ROTATE = "apply_rotary_pos_emb"
"""The function's name in transformers' models."""
TOLERANCE = 1e-4


def quicken(model: nn.Module) -> None:
    """Swap the layers of a model in memory that compute in fp32 on a CPU; others stay, and what is swapped stays so.

    Weights, their names and what `save_pretrained` writes are what they were.
    """
    for layer in model.modules():
        if type(layer) is nn.Linear:
            if is_faster():
                layer.__class__ = Linear
        elif not isinstance(layer, Swapped):
            own: Any = type(layer)
            swap: Any = next((swap for swap in (Norm, GatedLayer, Attention) if swap.fits(layer)), None)
            if swap is not None:
                layer.__class__ = _subclass(swap, own)


class Swapped(nn.Module):
    """A layer of its own class that computes the same in another way."""

    _own: type[nn.Module]

    @staticmethod
    def members(own: Any) -> dict[str, Any]:
        """What else the subclass of a layer's own class has."""
        return {}

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        swap = type(self).__mro__[1]
        return _blank, (swap, self._own), vars(self)  # copies and pickles: the class has no name of its own


class Norm(Swapped):
    """RMSNorm in one pass."""

    @staticmethod
    def fits(layer: nn.Module) -> bool:
        if [name for name, _ in layer.named_parameters()] != ["weight"] or list(layer.buffers()):
            return False
        (weight,), epsilon = layer.parameters(), epsilon_of(layer)
        if epsilon is None or weight.ndim != 1 or not are_plain(weight) or not _reads_one(layer):
            return False
        trial = copy.deepcopy(layer)
        generator = torch.Generator().manual_seed(0)
        x, other = torch.randn(2, 2, len(weight), generator=generator)
        for each in trial.parameters():
            each.data = other[0]  # weights as they begin, of 1, tell little
        return _agree(trial, x, functional.rms_norm(x, weight.shape, other[0], epsilon))

    def forward(self, x: Tensor) -> Tensor:
        layer: Any = self
        normal = normalised(x, layer.weight, epsilon_of(layer) or 0.0)
        return super().forward(x) if normal is None else normal


class GatedLayer(Swapped):
    """down(silu(gate(x)) * up(x)), what is between the products in one pass."""

    @staticmethod
    def fits(layer: nn.Module) -> bool:
        if {name for name, _ in layer.named_children()} != GATED or list(layer.parameters(recurse=False)):
            return False
        parts, code = cast(Any, layer), getattr(type(layer).forward, "__code__", None)
        weight = getattr(parts.gate_proj, "weight", None)
        if weight is None or not are_plain(*layer.parameters()) or not _reads_one(layer):
            return False
        if code is None or set(code.co_names) != GATED:  # nothing else happens, in training either
            return False
        x = torch.randn(2, weight.shape[1], generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            meant = parts.down_proj(functional.silu(parts.gate_proj(x)) * parts.up_proj(x))
        return _agree(layer, x, meant)

    def forward(self, x: Tensor) -> Tensor:
        layer: Any = self
        gate, up = layer.gate_proj(x), layer.up_proj(x)
        hidden = gated(gate, up)
        if hidden is None:
            hidden = layer.act_fn(gate) * up
        down: Tensor = layer.down_proj(hidden)
        return down


class Attention(Swapped):
    """Attention as it is, with a faster way to turn queries and keys by their positions (RoPE).

    Its own forward runs, in which the name of transformers' function stands for ours.
    """

    @staticmethod
    def fits(layer: nn.Module) -> bool:
        forward = type(layer).forward
        rotate = getattr(forward, "__globals__", {}).get(ROTATE)
        if rotate is None or ROTATE not in forward.__code__.co_names or not are_plain(*layer.parameters()):
            return False
        if sum(each.default is each.empty for each in signature(rotate).parameters.values()) != 4:
            return False
        generator = torch.Generator().manual_seed(0)
        x, (cosine, sine) = torch.randn(2, 3, 3, 4, generator=generator), torch.randn(2, 2, 3, 4, generator=generator)
        first, second = x.chunk(2, dim=-1)
        meant = x * cosine[:, None] + torch.cat([-second, first], dim=-1) * sine[:, None]
        return all(torch.allclose(turned, meant, atol=TOLERANCE) for turned in rotate(x, x, cosine, sine))

    @staticmethod
    def members(own: Any) -> dict[str, Any]:
        forward = own.forward
        names = {**forward.__globals__, ROTATE: _turned_by(forward.__globals__[ROTATE])}
        ours = FunctionType(forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__)
        ours.__kwdefaults__ = forward.__kwdefaults__
        return {"forward": update_wrapper(ours, forward)}


def _turned_by(rotate: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., tuple[Tensor, Tensor]]:
    def turned(query: Tensor, key: Tensor, cosine: Tensor, sine: Tensor, *more: Any, **others: Any) -> Any:
        if not (more or others):
            ours = rotated(query, cosine, sine), rotated(key, cosine, sine)
            if ours[0] is not None and ours[1] is not None:
                return ours
        return rotate(query, key, cosine, sine, *more, **others)

    return turned


def epsilon_of(norm: nn.Module) -> float | None:
    """What a norm adds to the mean square; None if it does not say."""
    found = (getattr(norm, name, None) for name in EPSILONS)
    return next((epsilon for epsilon in found if isinstance(epsilon, float)), None)


@cache
def _subclass(swap: Any, own: Any) -> Any:
    """A subclass of a layer's own class, under its name."""
    members = {"_own": own, "__module__": own.__module__, "__doc__": own.__doc__, **swap.members(own)}
    return type(own.__name__, (swap, own), members)


def _blank(swap: Any, own: Any) -> Any:
    kind = _subclass(swap, own)
    return kind.__new__(kind)


def _reads_one(layer: nn.Module) -> bool:
    """Whether a layer is called with a single tensor."""
    return len(signature(type(layer).forward).parameters) == 2  # itself, and that


@torch.no_grad()
def _agree(layer: nn.Module, x: Tensor, meant: Tensor) -> bool:
    found = layer(x)
    return isinstance(found, Tensor) and torch.allclose(found, meant, atol=TOLERANCE, rtol=TOLERANCE)
