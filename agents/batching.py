"""Micro-batches, padding, and copies to the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def default_max_tokens(device: torch.device) -> int:
    return 2_048 if device.type == "cpu" else 16_384  # a CPU's cache holds the activations of 2,048 tokens


def micro_batches(sizes: Sequence[int], items: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Divide items (indices into `sizes`, the numbers of tokens) into micro-batches of items with similar sizes.

    A micro-batch has at most `max_tokens` tokens, including padding. A single item may exceed this limit.
    """
    batch: list[int] = []
    for item in sorted(items, key=lambda i: sizes[i]):
        if batch and (len(batch) + 1) * sizes[item] > max_tokens:
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


def padded(rows: Sequence[NDArray[np.int64]], device: torch.device) -> Tensor:
    """Pad R rows of token ids on the right to a tensor [R, L]. Causal attention then needs no mask."""
    ids = np.zeros((len(rows), max(len(row) for row in rows)), dtype=np.int64)
    for target, row in zip(ids, rows, strict=True):
        target[: len(row)] = row
    return sent(ids, device)


def sent(values: NDArray[Any] | Tensor, device: torch.device) -> Tensor:
    """Copy an array or tensor to a device asynchronously."""
    tensor = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
    if device.type == "cuda" and tensor.device != device:
        tensor = tensor.pin_memory()  # copies from pageable memory are synchronous
    return tensor.to(device, non_blocking=True)
