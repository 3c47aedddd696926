"""RMSNorm, SwiGLU, RoPE and attention of one new token, each by one kernel on a CPU.

Functions return None if there are no kernels or a tensor is not fp32 on a CPU. The caller then uses torch.
Axes: N rows, H query heads, K key-value heads, T tokens, C columns of the KV cache, d numbers per head.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .kernels import LANES, are_fp32_on_cpu, kernels

NUMBERS_PER_THREAD = 2**18  # minimum, because starting a thread takes as long as reading a tenth of these numbers
MAX_HEAD, MAX_GROUP = 256, 16
ANY_HEADS = LANES, 1
Forward = Callable[..., tuple[Tensor, ...]]
Backward = Callable[..., tuple[Tensor | None, ...]]


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor | None:
    """Return weight x / sqrt(mean(x^2) + epsilon), with means over the last axis (RMSNorm, arXiv:1910.07467, eq. 4)."""
    if weight.shape != x.shape[-1:] or len(weight) % LANES or not can_run(x, weight):
        return None
    return run(_rms_norm, _rms_norm_backward, x.contiguous(), weight, epsilon)


def swiglu(gate: Tensor, up: Tensor) -> Tensor | None:
    """Return silu(gate) * up, elementwise: SwiGLU (arXiv:2002.05202, eq. 6) without its matmuls."""
    if gate.shape != up.shape or gate.numel() % LANES or not can_run(gate, up):
        return None
    return run(_swiglu, _swiglu_backward, gate.contiguous(), up.contiguous())


def rope(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor | None:
    """Apply the rotary position embedding to the two halves of each head (RoPE, arXiv:2104.09864, eq. 34).

    x: [N, H, T, d], contiguous as [N, T, H, d]; cosine, sine: [N or 1, T, d], without gradients.
    """
    num_rows, _, num_tokens, width = x.shape
    is_laid_out = x.transpose(1, 2).is_contiguous() and cosine.is_contiguous() and sine.is_contiguous()
    are_angles = cosine.shape == sine.shape and cosine.shape in ((num_rows, num_tokens, width), (1, num_tokens, width))
    if width % 2 or not (is_laid_out and are_angles and can_run(x, cosine, sine)):
        return None
    return run(_rope, _rope_backward, x, cosine, sine)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float) -> Tensor | None:
    """Return softmax(scale q k^T + mask) v [N, 1, H, d] for one new token per row, without a gradient.

    query: [N, H, 1, d]; key, value: [N, K, C, d]; mask: [N, 1, 1, C]. The output of a fully masked row is 0.
    """
    num_rows, num_heads, num_tokens, width = query.shape
    num_kept, num_columns = key.shape[1:3]
    steps, (group, rest) = key.stride(), divmod(num_heads, num_kept)
    is_laid_out = steps[2:] == (width, 1) and value.stride() == steps and mask.stride(3) == 1
    if num_tokens > 1 or torch.is_grad_enabled() or not is_laid_out or value.shape != key.shape or rest:
        return None
    heads = width, group
    if width % LANES or width > MAX_HEAD or group > MAX_GROUP or not can_run(query, key, value, mask, heads=heads):
        return None
    output = torch.empty(num_rows, 1, num_heads, width)
    sizes = num_rows, num_kept, num_columns, *steps[:2], mask.stride(0)
    given = query.reshape(-1, width), key, value, mask, output
    _call("attend", *given, *sizes, scale, _num_threads(2 * key.numel()), heads=heads)
    return output


def run(forward: Forward, backward: Backward, *given: Any) -> Tensor:
    """Call `forward` as an autograd function with the gradient `backward`, and return the first result.

    `forward` returns a result and tensors to save. `backward` returns the gradients of the leading arguments.
    """
    if torch.is_grad_enabled() and any(isinstance(each, Tensor) and each.requires_grad for each in given):
        result: Tensor = _Function.apply(forward, backward, *given)  # type: ignore[no-untyped-call]
        return result
    return forward(*given)[0]


def can_run(*tensors: Tensor, heads: tuple[int, int] = ANY_HEADS) -> bool:
    """Return True if there are kernels for these tensors, and no dispatch mode or compiler records the operations."""
    is_watched = torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0
    return not is_watched and are_fp32_on_cpu(*tensors) and kernels(*heads) is not None


def _rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, ...]:
    normal, shrink = torch.empty_like(x), torch.empty(x.numel() // len(weight))
    _call("rms_norm", x, weight, normal, shrink, len(shrink), len(weight), epsilon, _num_threads(x.numel()))
    return normal, x, weight, shrink


def _rms_norm_backward(wanted: Any, slope: Tensor, x: Tensor, weight: Tensor, shrink: Tensor) -> tuple[Tensor, ...]:
    slope, by_x, threads = slope.contiguous(), torch.empty_like(x), _num_threads(x.numel())
    by_weight = torch.empty(threads, len(weight))
    _call("rms_norm_backward", slope, x, weight, shrink, by_x, by_weight, len(shrink), len(weight), threads)
    return by_x, by_weight.sum(dim=0)


def _swiglu(gate: Tensor, up: Tensor) -> tuple[Tensor, ...]:
    opened, size = torch.empty_like(gate), gate.numel()
    _call("swiglu", gate, up, opened, size // LANES, _num_threads(size))
    return opened, gate, up


def _swiglu_backward(wanted: Any, slope: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, ...]:
    by_gate, by_up, size = torch.empty_like(gate), torch.empty_like(up), gate.numel()
    _call("swiglu_backward", slope.contiguous(), gate, up, by_gate, by_up, size // LANES, _num_threads(size))
    return by_gate, by_up


def _rope(x: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, ...]:
    num_rows, heads, num_tokens, width = x.shape
    turned = torch.empty(num_rows, num_tokens, heads, width).transpose(1, 2)
    sizes = num_rows * num_tokens, heads, width, cosine.shape[0] * num_tokens
    _call("rope", x, cosine, sine, turned, *sizes, _num_threads(x.numel()))
    return turned, cosine, sine


def _rope_backward(wanted: Any, slope: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, ...]:
    slope = slope.transpose(1, 2).contiguous().transpose(1, 2)
    return _rope(slope, cosine, -sine.roll(sine.shape[-1] // 2, dims=-1))[:1]  # gradient: the transposed rotation


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, forward: Forward, backward: Backward, *given: Any) -> Tensor:
        result, *saved = forward(*given)
        ctx.save_for_backward(*saved)
        ctx.gradients = backward
        # Autograd forbids in-place operations on views that a function returns. `_unsafe_view` hides the view.
        return torch.ops.aten._unsafe_view(result, result.shape)  # type: ignore[no-any-return]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad[2:]
        found = ctx.gradients(wanted, slope, *ctx.saved_tensors)
        return (None, None, *found, *[None] * (len(wanted) - len(found)))


def _call(name: str, *given: Tensor | float, heads: tuple[int, int] = ANY_HEADS) -> None:
    getattr(kernels(*heads), name)(*(each.data_ptr() if isinstance(each, Tensor) else each for each in given))


def _num_threads(size: int) -> int:
    return min(torch.get_num_threads(), 1 + size // NUMBERS_PER_THREAD)
