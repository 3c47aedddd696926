"""Linear layers on CPUs that torch multiplies slowly on: by oneDNN, which comes with torch, in place of Intel's MKL.

torch multiplies fp32 matrices by MKL, which is at its best on its maker's processors. On an AMD EPYC oneDNN is 10 to
40 % faster at it, in layers of 200 as of 5,000 units, unless a product is small.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .processor import processor

MIN_ROWS = 32
"""With fewer rows, to bring the weights into oneDNN's order takes as long as the product."""
MIN_PRODUCTS = 2**23
"""Rows x inputs x outputs of the smallest product that gains."""


class Linear(nn.Linear):
    """torch's linear layer, whose larger fp32 products on a CPU are oneDNN's."""

    def forward(self, input: Tensor) -> Tensor:
        if not _gains(input, self.weight):
            return super().forward(input)
        if not torch.is_grad_enabled():
            return multiplied(input, self.weight, self.bias)
        product: Tensor = _Product.apply(input, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return product


class _Product(torch.autograd.Function):
    """x W^T + b. The gradient by x is a product with the same weights, that by W one of two activations: MKL's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return multiplied(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        rows = slope.reshape(-1, slope.shape[-1]).contiguous()
        by_x = multiplied(rows, weight.T, None).view(x.shape) if wants_x else None
        by_weight = rows.T @ x.reshape(-1, x.shape[-1]) if wants_weight else None
        return by_x, by_weight, rows.sum(dim=0) if wants_bias else None


def multiplied(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x W^T + b by oneDNN, without a gradient; the weights may be a view in any order."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


def multiply_faster(model: nn.Module) -> None:
    """Let a model's plain linear layers multiply by oneDNN, where this machine's processor gains by it."""
    if not _is_faster():
        return
    for layer in model.modules():
        if type(layer) is nn.Linear:
            layer.__class__ = Linear


def is_plain(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether a layer is a product with its weights and nothing else."""
    return type(layer) in (nn.Linear, Linear)


def _gains(x: Tensor, weight: Tensor) -> bool:
    num_outputs, num_inputs = weight.shape
    num_rows = x.numel() // max(num_inputs, 1)
    if num_rows < MIN_ROWS or num_rows * num_inputs * num_outputs < MIN_PRODUCTS:
        return False
    # Tensors that stand for others (a shape alone, a shard) have products of their own.
    are_plain = type(x) in (Tensor, nn.Parameter) and type(weight) in (Tensor, nn.Parameter)
    if not are_plain or x.device.type != "cpu" or not (x.dtype == weight.dtype == torch.float32):
        return False
    return bool(torch.backends.mkldnn.enabled) and not torch.is_autocast_enabled("cpu")


def _is_faster() -> bool:
    """On AMD's processors, by measurement; on Intel's MKL is not known to be slower, and others have neither."""
    return "AuthenticAMD" in processor() and torch.backends.mkldnn.is_available()
