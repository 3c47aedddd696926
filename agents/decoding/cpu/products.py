"""Linear layers on CPUs that torch multiplies slowly on: by oneDNN, which comes with torch, in place of Intel's MKL.

torch multiplies fp32 matrices by MKL, which is at its best on its maker's processors. On an AMD EPYC oneDNN is 10 to
40 % faster at it, in layers of 200 as of 5,000 units, unless a product is small.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .processor import are_here, processor

MIN_ROWS = 2
"""One row reads every weight once, and no product is faster than memory."""
MIN_PRODUCTS = 2**23
"""Rows x inputs x outputs of the smallest product that gains."""
MIN_PACKED = 2**16
"""Inputs x outputs of the smallest weights that gain by being packed."""


class Linear(nn.Linear):
    """torch's linear layer, whose larger fp32 products on a CPU are oneDNN's."""

    packed: Tensor | None = None
    """The weights in oneDNN's own order, within `packed_weights`."""

    def forward(self, input: Tensor) -> Tensor:
        has_gradient = torch.is_grad_enabled()
        if self.packed is not None and not has_gradient and _may_multiply(input, self.weight):
            return multiplied(input, self.packed, self.bias)
        if not _gains(input, self.weight):
            return super().forward(input)
        if not has_gradient:
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
    """x W^T + b by oneDNN, without a gradient; the weights may be packed, or a view in any order."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


@contextmanager
def packed_weights(model: nn.Module) -> Iterator[None]:
    """Let layers multiply by copies of their larger weights in oneDNN's own order inside the block.

    With some 4 to 32 rows products are 1.5 to 2 times as fast, with many 3 to 15 %; to pack takes as long as is saved
    in some ten products.
    """
    linear = (layer for layer in model.modules() if type(layer) is Linear)
    layers = [layer for layer in linear if layer.weight.numel() >= MIN_PACKED and _may_multiply(layer.weight)]
    try:
        for layer in layers:
            vars(layer)["packed"] = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach())
        yield
    finally:
        for layer in layers:
            vars(layer).pop("packed", None)


def is_plain(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether a layer is a product with its weights and nothing else."""
    return type(layer) in (nn.Linear, Linear)


def is_faster() -> bool:
    """On AMD's processors, by measurement; on Intel's MKL is not known to be slower, and others have neither."""
    return "AuthenticAMD" in processor() and torch.backends.mkldnn.is_available()


def _gains(x: Tensor, weight: Tensor) -> bool:
    num_outputs, num_inputs = weight.shape
    num_rows = x.numel() // max(num_inputs, 1)
    if num_rows < MIN_ROWS or num_rows * num_inputs * num_outputs < MIN_PRODUCTS:
        return False
    return _may_multiply(x, weight)


def _may_multiply(*tensors: Tensor) -> bool:
    return are_here(*tensors) and bool(torch.backends.mkldnn.enabled) and not torch.is_autocast_enabled("cpu")
