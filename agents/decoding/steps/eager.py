"""Steps in the shapes that the rows have, whose kernels the host starts one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...batching import sent
from ..engine import Engine
from ..sampling import Draw, Sampling, draw
from ..slots import SlotTable
from .feed import Steps, rows_of


class EagerSteps(Steps):
    """Steps of one run.

    Args:
        engine: the model with its arena.
        noise: [requests, steps] random numbers; None when greedy.
        sampling: how tokens are drawn.
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
