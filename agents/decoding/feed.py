"""What a step reads and draws, on the device: the host neither carries tokens to and fro nor waits for them.

The tokens that a step draws are the next one's input as they are. The host reads them a step later, while the device is
busy, to see which completions have ended; on a CPU, where nothing runs meanwhile, it reads them at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..batching import sent
from .slots import SlotTable


def steps_ahead(device: torch.device) -> int:
    """Steps that are queued before the host looks at what an earlier one drew."""
    return 0 if device.type == "cpu" else 1


class Feed:
    """The next step's tokens, columns, adapters and random numbers, one for each row of the batch.

    While no row comes or goes, nothing is copied to the device.

    Args:
        device: the model's.
        noise: [requests, steps] random numbers; None when greedy.
    """

    tokens: Tensor  # int64 [N]
    columns: Tensor  # int64 [N]
    adapters: Tensor  # int64 [N], by number

    def __init__(self, device: torch.device, noise: NDArray[np.float64] | None) -> None:
        self._device = device
        self._noise = None if noise is None else sent(noise, device)
        self._drawn = torch.zeros(1, dtype=torch.int64, device=device)

    def follow(self, table: SlotTable, num_rows: int, adapters: Sequence[int]) -> None:
        """Take over which rows there are, and in what order.

        Args:
            num_rows: rows of the batch, those behind the active ones without a meaning.
            adapters: of the active rows; empty where there is only one.
        """
        count = table.num_active
        rows = np.zeros((6, num_rows), np.int64)
        rows[0, count:] = -1
        for row, column in enumerate((table.previous, table.token, table.column, table.start, table.owner)):
            rows[row, :count] = column[:count]
        rows[5, : len(adapters)] = adapters
        previous, token, self.columns, self._start, self._owner, self.adapters = sent(rows, self._device)
        self.tokens = torch.where(previous >= 0, self._drawn[previous.clamp(min=0)], token)

    def noise(self) -> Tensor | None:
        """Each row's random number in this step: float64 [N]; None when greedy."""
        return None if self._noise is None else self._noise[self._owner, self.columns - self._start]

    def advance(self, drawn: Tensor) -> None:
        """Go on with the tokens [N] that were drawn."""
        self.tokens = self._drawn = drawn
        self.columns = self.columns + 1


class Reading:
    """Numbers on their way to the host.

    Args:
        numbers: on the device.
    """

    def __init__(self, numbers: Tensor) -> None:
        self._numbers = numbers
        self._is_there: torch.cuda.Event | None = None
        if numbers.device.type == "cuda":
            self._numbers = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
            self._numbers.copy_(numbers, non_blocking=True)
            self._is_there = torch.cuda.current_stream(numbers.device).record_event()

    def numbers(self) -> NDArray[np.int64]:
        """The numbers, once they are there."""
        if self._is_there is not None:
            self._is_there.synchronize()
        found: NDArray[np.int64] = self._numbers.cpu().numpy()
        return found
