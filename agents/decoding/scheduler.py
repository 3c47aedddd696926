"""Who is in the batch: admission, refill and compaction, one decoding step after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from .adapters import Valuer
from .base import hidden_states_of
from .engine import Engine
from .samples import DrawRecorder
from .sampling import Sampling, draw
from .slots import Claim, SlotTable


class Scheduler:
    """Runs claims through an engine, at most `max_slots` at a time, and keeps parked rows between runs."""

    def __init__(self, engine: Engine, is_stop: NDArray[np.bool_], max_slots: int, max_parked: int) -> None:
        self._engine = engine
        self._is_stop = is_stop
        self._max_slots = max_slots
        self._table = SlotTable(max_slots + max_parked)

    def fix_shapes(self, num_rows: int) -> None:
        """Decode as many rows in every step, free ones among them; prompts must not be parked."""
        self._max_slots = self._engine.num_fixed = num_rows
        self._table = SlotTable(num_rows)

    def run(self, claims: Sequence[Claim], sampling: Sampling, recorder: DrawRecorder, valuer: Valuer | None) -> None:
        """Complete every claim and record it."""
        try:
            self._run(claims, sampling, recorder, valuer)
        except BaseException:
            self.forget()  # rows in the middle of a completion are of no use to anyone
            raise

    def remember(self, key: Hashable, ids: NDArray[np.int64]) -> None:
        """Say what the row parked under this key holds."""
        self._table.remember(key, ids)

    def forget(self) -> None:
        """Drop every parked row."""
        self._table.clear()

    def _run(self, claims: Sequence[Claim], sampling: Sampling, recorder: DrawRecorder, valuer: Valuer | None) -> None:
        table, engine = self._table, self._engine
        # Rows of similar length side by side waste the least padding and the fewest masked columns.
        queue = deque(sorted(claims, key=lambda claim: len(claim.prompt.ids), reverse=True))
        adapters = {claim.owner: claim.prompt.adapter for claim in claims}
        columns_needed = max(len(claim.prompt.ids) + claim.prompt.max_new_tokens for claim in claims)
        least_free = max(1, self._max_slots // 8)  # a pass over the prompt of a single row wastes the hardware
        with hidden_states_of(engine.base) as hidden:
            while queue or table.num_active:
                if queue and self._max_slots - table.num_active >= min(least_free, len(queue)):
                    self._admit(queue, columns_needed)
                count = table.num_active
                num_rows = self._engine.num_fixed or count
                table.column[count:num_rows] = table.token[count:num_rows] = 0
                owners, columns = table.owner[:count].copy(), table.column[:count].copy()
                names = [adapters[owner] for owner in owners.tolist()] if engine.bank is not None else ()
                logits = engine.step(table.token[:num_rows].copy(), table.column[:num_rows].copy(), names)
                steps = columns - table.start[:count]
                if valuer is not None and (steps == 0).any():
                    rows = np.flatnonzero(steps == 0)
                    states = hidden[0][torch.from_numpy(rows).to(logits.device), -1]
                    size = 1 if self._engine.num_fixed else len(rows)
                    for some in np.split(np.arange(len(rows)), range(size, len(rows), size)):
                        own = owners[rows[some]]
                        recorder.record_values(own, valuer(states[some], [adapters[owner] for owner in own]))
                noise = recorder.noise(owners, steps)
                if noise is not None:
                    noise = functional.pad(noise, (0, num_rows - count)).to(logits.device)
                drawn = draw(logits, sampling, noise)
                if num_rows > count:
                    drawn = drawn.of(torch.arange(count, device=logits.device))
                tokens = drawn.tokens.cpu().numpy()
                recorder.record(owners, tokens, drawn)
                table.token[:count] = tokens
                table.column[:count] += 1
                done = np.flatnonzero(self._is_stop[tokens] | (table.column[:count] == table.end[:count]))
                if len(done):
                    table.retire(done.tolist())
                    engine.move(table.take_moves())

    def _admit(self, queue: deque[Claim], columns_needed: int) -> None:
        table, engine = self._table, self._engine
        claims = [queue.popleft() for _ in range(min(len(queue), self._max_slots - table.num_active))]
        seats = table.admit(claims, {claim.prompt.key for claim in queue})
        engine.arena.reserve(max(table.num_used, engine.num_fixed), columns_needed)
        engine.move(table.take_moves())
        engine.prefill(seats)
