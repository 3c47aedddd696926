"""Between the host and the steps on a device: which rows there are, and what was drawn.

The tokens that a step draws are the next one's input as they are. The host reads them a step later, while the device is
busy, to see which completions have ended; on a CPU, where nothing runs meanwhile, it reads them at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..sampling import Draw
from ..slots import SlotTable


def steps_ahead(device: torch.device) -> int:
    """Steps that are queued before the host looks at what an earlier one drew."""
    return 0 if device.type == "cpu" else 1


class Steps(ABC):
    """Steps of one run, each of which feeds every row of the batch a token and draws the next."""

    states: Tensor  # [N, d] last hidden states of the newest step

    @abstractmethod
    def follow(self, table: SlotTable, adapters: Sequence[int]) -> None:
        """Take over which rows there are, and in what order.

        While no row comes or goes, nothing is copied to the device.

        Args:
            adapters: of the active rows, by number; empty where there is only one.
        """

    @abstractmethod
    def step(self, width: int) -> Draw:
        """Draw for N rows, of which the active ones are the first, and go on to the next column.

        Args:
            width: more than any column of an active row.
        """


def rows_of(table: SlotTable, adapters: Sequence[int], num_rows: int) -> NDArray[np.int64]:
    """What a step must know of its rows; those behind the active ones stay in column 0.

    Args:
        adapters: of the active rows, by number; empty where there is only one.
        num_rows: rows of the step, N.

    Returns:
        [7, N]: row of the newest step that drew the token (-1: none did), token if none did, column, column of the
        request's last prompt token, number of the request, columns to go on by, number of the adapter.
    """
    count = table.num_active
    rows = np.zeros((7, num_rows), np.int64)
    rows[0, count:] = -1
    for row, of_active in enumerate((table.previous, table.token, table.column, table.start, table.owner)):
        rows[row, :count] = of_active[:count]
    rows[5, :count] = 1
    rows[6, : len(adapters)] = adapters
    return rows


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
