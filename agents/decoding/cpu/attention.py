"""Attention to kept keys and values on a CPU, by a kernel of our own.

torch's attention multiplies matrices of as many rows as query heads share a head: one to seven where tokens are
decoded one by one, for which a product of matrices is the wrong tool. `attention.cpp` reads every key and value once,
at two to three times the speed, and none that no query sees.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from .compiling import LANES, kernels, number, pointer, whole
from .layers import are_plain

MAX_HEAD, MAX_GROUP = 256, 16
READ_BY_THREAD = 2**17
"""Keys per thread at least, in numbers: to start one takes as long as to read a tenth of them."""


def attended(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float) -> Tensor | None:
    """softmax(scale q k^T + mask) v, for one new token per row; None: torch must do it.

    Axes: N rows, H query heads, K heads of keys and values, W columns, d numbers of a head.

    Args:
        query: [N, H, 1, d].
        key: [N, K, W, d], as values.
        mask: [N, 1, 1, W].

    Returns:
        [N, 1, H, d]; zeros for a row that sees nothing. None without a compiler, and for anything but plain fp32
        tensors on a CPU of heads of a multiple of 16 numbers, outside of a gradient.
    """
    num_rows, num_heads, num_tokens, width = query.shape
    num_kept, num_columns = key.shape[1:3]
    if num_tokens > 1 or torch.is_grad_enabled() or not are_plain(query, key, value, mask):
        return None
    steps = key.stride()
    is_laid_out = steps[2:] == (width, 1) and value.stride() == steps and mask.stride(3) == 1
    group, rest = divmod(num_heads, num_kept)
    if not is_laid_out or value.shape != key.shape or rest or group > MAX_GROUP or width % LANES or width > MAX_HEAD:
        return None
    kernel = kernel_for(width, group)
    if kernel is None:
        return None
    query = query.reshape(num_rows, num_heads, width)
    output = torch.empty(num_rows, 1, num_heads, width)
    threads = min(torch.get_num_threads(), num_rows, 1 + key.numel() // READ_BY_THREAD)
    pointers = (each.data_ptr() for each in (query, key, value, mask, output))
    kernel(*pointers, num_rows, num_kept, num_columns, *steps[:2], mask.stride(0), scale, threads)
    return output


@cache
def kernel_for(width: int, group: int) -> Callable[..., None] | None:
    """`attend` of attention.cpp for heads of `width` numbers, shared by `group` query heads each; None: none."""
    library = kernels("attention", head=width, group=group)
    if library is None:
        return None
    kernel: Callable[..., None] = library.attend
    # ctypes lets other threads run meanwhile.
    library.attend.argtypes = [pointer] * 5 + [whole] * 6 + [number, whole]
    library.attend.restype = None
    return kernel
