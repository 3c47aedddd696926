"""Which items share a forward pass, how rows of different lengths lie in one, and how they get to the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def default_max_tokens(device: torch.device) -> int:
    """Tokens per pass where no setting says: on a CPU what its cache bears, elsewhere what keeps the device busy."""
    return 2_048 if device.type == "cpu" else 16_384


def micro_batches(sizes: Sequence[int], items: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Items of like size together, so that no pass pads much or exceeds the budget; at least one item per pass.

    Args:
        sizes: tokens of every item there is.
        items: those to be divided, by number.
        max_tokens: tokens per pass, padding included.
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
    """[R, L] rows padded on the right; with causal attention nothing before it reads the padding."""
    ids = np.zeros((len(rows), max(len(row) for row in rows)), dtype=np.int64)
    for target, row in zip(ids, rows, strict=True):
        target[: len(row)] = row
    return sent(ids, device)


def sent(values: NDArray[Any] | Tensor, device: torch.device) -> Tensor:
    """Values of the host on a device. The copy is queued there, so that the host does not wait for earlier work."""
    tensor = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
    if device.type == "cuda" and tensor.device != device:
        tensor = tensor.pin_memory()  # a copy from pageable memory is not queued, whatever is asked for
    return tensor.to(device, non_blocking=True)
