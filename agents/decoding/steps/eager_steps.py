"""Eager decoding steps, and the base class of all steps.

The tokens that a step draws are the input of the next step. On a GPU the host reads them one step later, while the
device computes, to find the completions that have ended. On a CPU the host reads them immediately.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...batching import sent
from ..engine import Engine
from ..sampling import Draw, Sampling, draw
from ..slots import SlotTable


def steps_ahead(device: torch.device) -> int:
    """Return how many steps are queued before the host reads the tokens of the oldest one."""
    return 0 if device.type == "cpu" else 1


class Steps(ABC):
    """Decoding steps of one run. Each step runs the model on one token per row and draws the next one."""

    states: Tensor  # [N, d] last hidden states of the newest step

    @abstractmethod
    def follow(self, table: SlotTable, adapters: Sequence[int]) -> None:
        """Copy the table of rows to the device. Called only if the active rows have changed.

        Args:
            adapters: numbers of the active rows' adapters; empty if there is only one.
        """

    @abstractmethod
    def step(self, width: int) -> Draw:
        """Draw one token for each of N rows, the active ones first, and advance to the next column.

        Args:
            width: more than any column of an active row.
        """


def rows_of(table: SlotTable, adapters: Sequence[int], num_rows: int) -> NDArray[np.int64]:
    """Return the inputs of a step by row. Inactive rows stay in column 0.

    Args:
        adapters: numbers of the active rows' adapters; empty if there is only one.
        num_rows: rows of the step, N.

    Returns:
        [7, N]: row of the last step that drew the token (-1: none), token if none did, column, column of the last
        prompt token, number of the request, columns to advance by, number of the adapter.
    """
    count = table.num_active
    rows = np.zeros((7, num_rows), np.int64)
    rows[0, count:] = -1
    for row, of_active in enumerate((table.previous, table.token, table.column, table.start, table.owner)):
        rows[row, :count] = of_active[:count]
    rows[5, :count] = 1
    rows[6, : len(adapters)] = adapters
    return rows


class HostCopy:
    """Asynchronous copy of a device tensor to the host."""

    def __init__(self, numbers: Tensor) -> None:
        self._numbers = numbers
        self._is_there: torch.cuda.Event | None = None
        if numbers.device.type == "cuda":
            self._numbers = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
            self._numbers.copy_(numbers, non_blocking=True)
            self._is_there = torch.cuda.current_stream(numbers.device).record_event()

    def numbers(self) -> NDArray[np.int64]:
        """Wait for the copy and return it."""
        if self._is_there is not None:
            self._is_there.synchronize()
        found: NDArray[np.int64] = self._numbers.cpu().numpy()
        return found


class EagerSteps(Steps):
    """Steps in the shapes of the active rows.

    Args:
        engine: the model with its arena.
        noise: [requests, steps] random numbers; None if greedy.
        sampling: sampling parameters.
        hidden: its first element is the last hidden states of the newest pass.
    """

    def __init__(
        self, engine: Engine, noise: NDArray[np.float64] | None, sampling: Sampling, hidden: Sequence[Tensor]
    ) -> None:
        self._engine = engine
        self._device = engine.base.device
        self._noise = None if noise is None else sent(noise, self._device)
        self._sampling = sampling
        self._hidden = hidden
        self._tokens = torch.zeros(1, dtype=torch.int64, device=self._device)

    def follow(self, table: SlotTable, adapters: Sequence[int]) -> None:
        rows = sent(rows_of(table, adapters, self._engine.num_fixed or table.num_active), self._device)
        previous, token, self._columns, self._start, self._owner, self._pace, self._adapters = rows
        self._tokens = torch.where(previous >= 0, self._tokens[previous.clamp(min=0)], token)

    def step(self, width: int) -> Draw:
        logits = self._engine.step(self._tokens, self._columns, width, self._adapters)
        self.states = self._hidden[0][:, -1]
        noise = None if self._noise is None else self._noise[self._owner, self._columns - self._start]
        drawn = draw(logits, self._sampling, noise)
        self._tokens = drawn.tokens
        self._columns = self._columns + self._pace
        return drawn
