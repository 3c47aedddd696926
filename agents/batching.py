"""Which items share a forward pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch


def default_max_tokens(device: torch.device) -> int:
    """Tokens of one pass where nobody says: on a CPU what its cache bears, elsewhere what keeps the device busy."""
    return 2_048 if device.type == "cpu" else 16_384


def micro_batches(sizes: Sequence[int], items: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Items of like size together, so that no pass pads much or exceeds the budget; at least one item a pass.

    Args:
        sizes: tokens of every item there is.
        items: those to be divided, by number.
        max_tokens: of a pass, padding included.
    """
    batch: list[int] = []
    for item in sorted(items, key=lambda i: sizes[i]):
        if batch and (len(batch) + 1) * sizes[item] > max_tokens:
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch
