"""Linear layers that use oneDNN, for CPUs on which oneDNN's fp32 matmuls are faster than MKL, torch's default."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeGuard

import torch
from torch import Tensor, nn

from .fused_ops import run
from .kernels import SWITCH, are_fp32_on_cpu, processor

MIN_ROWS = 2  # minimum for oneDNN, because memory bandwidth limits a matmul of one row
MIN_PRODUCTS = 2**23  # rows x inputs x outputs of the smallest matmul that oneDNN speeds up
MIN_PACKED = 2**16  # inputs x outputs of the smallest weights for which packing saves time


class Linear(nn.Linear):
    """`nn.Linear` with oneDNN for large fp32 matmuls on a CPU."""

    packed: Tensor | None = None  # the weights in oneDNN's layout, inside `packed_weights`

    def forward(self, input: Tensor) -> Tensor:
        packed = None if torch.is_grad_enabled() else self.packed
        if (packed is None and not _is_large(input, self.weight)) or not _may_multiply(input, self.weight):
            return super().forward(input)
        return run(_product, _product_backward, input, self.weight if packed is None else packed, self.bias)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, ...]:
    return multiply(x, weight, bias), x, weight


def _product_backward(wanted: Sequence[bool], slope: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor | None, ...]:
    rows = slope.reshape(-1, slope.shape[-1]).contiguous()
    by_x = multiply(rows, weight.T, None).view(x.shape) if wanted[0] else None
    by_weight = rows.T @ x.reshape(-1, x.shape[-1]) if wanted[1] else None  # here MKL is as fast as oneDNN
    return by_x, by_weight, rows.sum(dim=0) if wanted[2] else None


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x W^T + b, computed by oneDNN without a gradient. The weights W may be packed."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


@contextmanager
def packed_weights(model: nn.Module) -> Iterator[None]:
    """Context manager with copies of large weights in oneDNN's layout, which save time after about 10 matmuls."""
    linear = (layer for layer in model.modules() if type(layer) is Linear)
    layers = [layer for layer in linear if layer.weight.numel() >= MIN_PACKED and _may_multiply(layer.weight)]
    try:
        for layer in layers:
            vars(layer)["packed"] = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach())
        yield
    finally:
        for layer in layers:
            vars(layer).pop("packed", None)


def is_plain_linear(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """Return True if the layer is `nn.Linear` or this module's `Linear`, not another subclass."""
    return type(layer) in (nn.Linear, Linear)


def is_onednn_faster() -> bool:
    # Measured on AMD processors. Intel processors keep MKL. Other processors have no MKL.
    is_amd = "AuthenticAMD" in processor()
    return is_amd and torch.backends.mkldnn.is_available() and os.environ.get(SWITCH) != "0"


def _is_large(x: Tensor, weight: Tensor) -> bool:
    num_rows = x.numel() // max(weight.shape[1], 1)
    return num_rows >= MIN_ROWS and num_rows * weight.numel() >= MIN_PRODUCTS


def _may_multiply(*tensors: Tensor) -> bool:
    return are_fp32_on_cpu(*tensors) and bool(torch.backends.mkldnn.enabled) and not torch.is_autocast_enabled("cpu")
