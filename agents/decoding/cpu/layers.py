"""What a layer does beside products and attention, each in one pass over memory, where torch makes five to ten.

Functions return None, or False, where torch must do it: without a compiler, and for all but plain fp32 tensors on a
CPU.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .compiling import LANES, kernels, number, pointer, whole
from .processor import are_here

WORK_BY_THREAD = 2**18
"""Numbers per thread at least: to start one takes as long as to read a tenth of them."""


def normalised(x: Tensor, weight: Tensor, epsilon: float) -> Tensor | None:
    """weight x / sqrt(mean(x^2) + epsilon), the mean over the last axis (RMSNorm, Zhang and Sennrich 2019, eq. 4)."""
    if not are_plain(x, weight) or weight.shape != x.shape[-1:] or len(weight) % LANES or _functions() is None:
        return None
    normal: Tensor
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        normal = _Normalised.apply(x, weight, epsilon)  # type: ignore[no-untyped-call]
    else:
        normal, _ = _normalise(x.contiguous(), weight, epsilon)
    return normal


def gated(gate: Tensor, up: Tensor) -> Tensor | None:
    """silu(gate) * up, elementwise (SwiGLU, Shazeer 2020, eq. 6, between its products)."""
    if not are_plain(gate, up) or gate.shape != up.shape or gate.numel() % LANES or _functions() is None:
        return None
    opened: Tensor
    if torch.is_grad_enabled() and (gate.requires_grad or up.requires_grad):
        opened = _Gated.apply(gate, up)  # type: ignore[no-untyped-call]
    else:
        opened = _gate_up(gate.contiguous(), up.contiguous())
    return opened


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor | None:
    """Pairs of numbers of each head turned by their position's angles (RoPE, Su et al. 2021, eq. 34, of halves).

    Axes: N rows, H heads, T tokens, d numbers of a head.

    Args:
        x: [N, H, T, d], of which tokens lie one after the other in memory, as layers make it.
        cosine: [N, T, d] or [1, T, d], as sine; no gradient flows there.
    """
    num_rows, _, num_tokens, width = x.shape
    is_laid_out = x.transpose(1, 2).is_contiguous() and cosine.is_contiguous() and sine.is_contiguous()
    are_angles = cosine.shape == sine.shape and cosine.shape in ((num_rows, num_tokens, width), (1, num_tokens, width))
    if width % 2 or not (is_laid_out and are_angles and are_plain(x, cosine, sine)) or _functions() is None:
        return None
    turned: Tensor
    if torch.is_grad_enabled() and x.requires_grad:
        turned = _Rotated.apply(x, cosine, sine)  # type: ignore[no-untyped-call]
    else:
        turned = _rotate(x, cosine, sine, False)
    return turned


def keep(keys: Tensor, values: Tensor, kept_keys: Tensor, kept_values: Tensor, rows: Tensor, columns: Tensor) -> bool:
    """Write the key and the value of row i's new token into row rows[i], column columns[i] of a store.

    Axes: N rows, K heads, d numbers of a head, S rows of the store, C columns.

    Args:
        keys: [N, K, 1, d], as values.
        kept_keys: [S, K, C, d], whole and in order, as kept_values.
        rows: int64 [N], as columns.

    Returns:
        Whether it is done.
    """
    count, heads, num_tokens, width = keys.shape
    is_laid_out = keys.stride(3) == values.stride(3) == 1 and kept_keys.is_contiguous() and kept_values.is_contiguous()
    are_places = all(
        each.dtype == torch.int64 and each.is_contiguous() and len(each) == count for each in (rows, columns)
    )
    if num_tokens > 1 or not (is_laid_out and are_places and are_plain(keys, values, kept_keys, kept_values)):
        return False
    library = _functions()
    if library is None:
        return False
    given = (keys, values, kept_keys, kept_values, rows, columns)
    steps = (*keys.stride()[:2], *values.stride()[:2], *kept_keys.stride()[:2])
    library.keep(*(each.data_ptr() for each in given), count, heads, width, *steps)
    return True


def are_plain(*tensors: Tensor) -> bool:
    """Whether these are fp32 numbers in memory, and nobody watches what torch does, among which kernels are not."""
    is_watched = torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0
    return not is_watched and are_here(*tensors)


class _Normalised(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        x = x.contiguous()
        normal, shrink = _normalise(x, weight, epsilon)
        ctx.save_for_backward(x, weight, shrink)
        return normal

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, shrink = ctx.saved_tensors
        slope, by_x = slope.contiguous(), torch.empty_like(x)
        threads = _num_threads(x)
        by_weight = torch.empty(threads, len(weight))
        given = (slope, x, weight, shrink, by_x, by_weight)
        _made().normalise_backward(*(each.data_ptr() for each in given), len(shrink), len(weight), threads)
        return by_x, by_weight.sum(dim=0) if ctx.needs_input_grad[1] else None, None


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        gate, up = gate.contiguous(), up.contiguous()
        ctx.save_for_backward(gate, up)
        return _gate_up(gate, up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        slope, by_gate, by_up = slope.contiguous(), torch.empty_like(gate), torch.empty_like(up)
        given = (slope, gate, up, by_gate, by_up)
        _made().gate_up_backward(*(each.data_ptr() for each in given), gate.numel() // LANES, _num_threads(gate))
        return by_gate, by_up


class _Rotated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        ctx.save_for_backward(cosine, sine)
        return _rotate(x, cosine, sine, False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        slope = slope.transpose(1, 2).contiguous().transpose(1, 2)
        cosine, sine = ctx.saved_tensors
        return _rotate(slope, cosine, sine, True), None, None


def _rotate(x: Tensor, cosine: Tensor, sine: Tensor, is_backwards: bool) -> Tensor:
    num_rows, heads, num_tokens, width = x.shape
    turned = torch.empty(num_rows, num_tokens, heads, width).transpose(1, 2)
    sizes = num_rows * num_tokens, heads, width, cosine.shape[0] * num_tokens
    given = (x, cosine, sine, turned)
    _made().rotate(*(each.data_ptr() for each in given), *sizes, is_backwards, _num_threads(x))
    return turned


def _normalise(x: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    width = len(weight)
    normal, shrink = torch.empty_like(x), torch.empty(x.numel() // width)
    given = (x, weight, normal, shrink)
    _made().normalise(*(each.data_ptr() for each in given), len(shrink), width, epsilon, _num_threads(x))
    return normal, shrink


def _gate_up(gate: Tensor, up: Tensor) -> Tensor:
    opened = torch.empty_like(gate)
    given = (gate, up, opened)
    _made().gate_up(*(each.data_ptr() for each in given), gate.numel() // LANES, _num_threads(gate))
    return opened


def _num_threads(x: Tensor) -> int:
    return min(torch.get_num_threads(), 1 + x.numel() // WORK_BY_THREAD)


def _made() -> ctypes.CDLL:
    library = _functions()
    assert library is not None  # or there would be no call of it
    return library


@cache
def _functions() -> ctypes.CDLL | None:
    library = kernels("layers")
    if library is None:
        return None
    # ctypes lets other threads run meanwhile.
    library.normalise.argtypes = [pointer] * 4 + [whole] * 2 + [number, whole]
    library.normalise_backward.argtypes = [pointer] * 6 + [whole] * 3
    library.gate_up.argtypes = [pointer] * 3 + [whole] * 2
    library.gate_up_backward.argtypes = [pointer] * 5 + [whole] * 2
    library.rotate.argtypes = [pointer] * 4 + [whole] * 6
    library.keep.argtypes = [pointer] * 6 + [whole] * 9
    for name in ("normalise", "normalise_backward", "gate_up", "gate_up_backward", "rotate", "keep"):
        library[name].restype = None
    return library
