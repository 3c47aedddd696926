"""Eager decoding steps, and the base class of all steps."""

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


class Steps(ABC):
    """Decoding steps. Each step runs the model on one token per row and samples the next token."""

    states: Tensor  # [N, d] last hidden states of the newest step

    @abstractmethod
    def follow(self, table: SlotTable, adapters: Sequence[int]) -> None:
        """Copy the rows' state to the device, after the active rows have changed. `adapters`: see `rows_of`."""

    @abstractmethod
    def step(self, width: int) -> Draw:
        """Sample one token per row, and advance active rows by one column. `width`: number of columns to read."""


def rows_of(table: SlotTable, adapters: Sequence[int], num_rows: int) -> NDArray[np.int64]:
    """Return the inputs [7, num_rows] of a decoding step. `adapters`: adapter numbers of the active rows, or empty.

    The 7 inputs are: row that sampled the input token in the last step (-1: none), the input token if none, column,
    column of the last prompt token, index of the prompt, columns to advance by, number of the adapter.
    """
    count = table.num_active
    rows = np.zeros((7, num_rows), np.int64)  # inactive rows stay in column 0
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
        if self._is_there is not None:
            self._is_there.synchronize()
        found: NDArray[np.int64] = self._numbers.cpu().numpy()
        return found


class EagerSteps(Steps):
    """Eager decoding steps of the active rows (after `fix_shapes`: of all rows).

    `noise`: uniform random numbers [prompts, steps], or None if greedy. `hidden`: list of `hidden_states_of`.
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
