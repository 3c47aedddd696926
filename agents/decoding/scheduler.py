"""Who is in the batch: admission, refill and compaction, one decoding step after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..batching import sent
from .adapters import Valuer
from .base import hidden_states_of
from .engine import Engine
from .samples import DrawRecorder
from .sampling import Draw, Sampling
from .slots import Claim, SlotTable
from .steps.eager_steps import EagerSteps, HostCopy, Steps, steps_ahead
from .steps.graph_steps import Capture, GraphSteps


@dataclass(frozen=True, slots=True)
class Step:
    """A step that is queued on the device."""

    owners: NDArray[np.int64]  # number of the request of each row; -1: nobody's
    drawn: Draw
    reading: HostCopy  # of the tokens


class Scheduler:
    """Runs claims through an engine, at most `max_slots` at a time, and keeps parked rows between runs.

    Args:
        capture: records steps, which then have static shapes; None: steps are eager.
    """

    def __init__(
        self,
        engine: Engine,
        is_stop: NDArray[np.bool_],
        max_slots: int,
        max_parked: int,
        capture: Capture | None = None,
    ) -> None:
        self._engine = engine
        self._is_stop = is_stop
        self._max_slots = max_slots
        self._table = SlotTable(max_slots + max_parked)
        self._static = None if capture is None else GraphSteps(engine, capture)

    def fix_shapes(self, num_rows: int) -> None:
        """Decode as many rows in every step, free ones among them; prompts must not be parked."""
        self.release()
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

    def release(self) -> None:
        """Drop every parked row, and give the memory back."""
        self.forget()
        if self._static is not None:
            self._static.drop()  # first: it waits for what may still read the arena
        self._engine.release()

    def _run(self, claims: Sequence[Claim], sampling: Sampling, recorder: DrawRecorder, valuer: Valuer | None) -> None:
        table, engine = self._table, self._engine
        # Rows of similar length side by side waste the least padding and the fewest masked columns.
        queue = deque(sorted(claims, key=lambda claim: len(claim.prompt.ids), reverse=True))
        adapters = {claim.owner: claim.prompt.adapter for claim in claims}
        max_active = self._reserve(claims)
        least_free = max(1, max_active // 8)  # a pass over the prompt of a single row wastes the hardware
        has_stopped = np.zeros(1 + max(claim.owner for claim in claims), np.bool_)  # by request
        ahead = steps_ahead(engine.base.device)
        queued: deque[Step] = deque()
        is_new = True  # other rows than in the step before
        with self._steps(claims, sampling, recorder, has_values=valuer is not None) as steps:
            while queue or table.num_active or queued:
                if queue and max_active - table.num_active >= min(least_free, len(queue)):
                    self._admit(queue, max_active)
                    is_new = True
                has_work = table.num_active > 0
                if has_work:
                    if is_new:
                        own = [adapters[owner] for owner in table.owner[: table.num_active].tolist()]
                        steps.follow(table, engine.adapter_numbers(own))
                    drawn = steps.step(table.width)
                    if valuer is not None:
                        self._value(valuer, steps.states, adapters, recorder)
                    queued.append(self._queued(drawn))
                while len(queued) > (ahead if has_work else 0):
                    self._settle(queued.popleft(), has_stopped, recorder)
                active = slice(0, table.num_active)
                done = np.flatnonzero(has_stopped[table.owner[active]] | (table.column[active] == table.end[active]))
                is_new = len(done) > 0
                if is_new:
                    table.retire(done.tolist())
                    engine.move(table.take_moves())

    @contextmanager
    def _steps(
        self, claims: Sequence[Claim], sampling: Sampling, recorder: DrawRecorder, *, has_values: bool
    ) -> Iterator[Steps]:
        """The steps of a run."""
        engine = self._engine
        with hidden_states_of(engine.base) as hidden:
            if self._static is None:
                yield EagerSteps(engine, recorder.noise, sampling, hidden)
                return
            adapter = claims[0].prompt.adapter if engine.bank is None else None
            run = self._static.run(
                recorder.noise, sampling, hidden, adapter, num_rows=self._max_slots, keeps_states=has_values
            )
            with run as steps:
                yield steps

    def _reserve(self, claims: Sequence[Claim]) -> int:
        """Make room for what will be active or parked, as far as there is memory; returns the most active rows.

        Raises:
            UserError: if there is no memory for one row.
        """
        table, engine = self._table, self._engine
        length = max(len(claim.prompt.ids) + claim.prompt.max_new_tokens for claim in claims)
        if not table.num_parked and length > engine.arena.capacity:
            engine.arena.release()  # rather than have the old and the new at once
        max_rows = engine.max_rows(length)
        table.limit(max_rows)
        num_kept = sum(claim.prompt.key is not None for claim in claims)
        wanted = max(table.num_used, table.num_parked + num_kept + min(len(claims) - num_kept, self._max_slots))
        engine.reserve(max(min(wanted, table.max_rows), engine.num_fixed), length, table.max_rows)
        return min(self._max_slots, table.max_rows)

    def _admit(self, queue: deque[Claim], max_active: int) -> None:
        table, engine = self._table, self._engine
        claims = [queue.popleft() for _ in range(min(len(queue), max_active - table.num_active))]
        seats = table.admit(claims, {claim.prompt.key for claim in queue})
        engine.reserve(table.num_used, engine.arena.capacity)
        engine.move(table.take_moves())
        engine.prefill(seats)

    def _value(
        self, valuer: Valuer, states: Tensor, adapters: Mapping[int, str | None], recorder: DrawRecorder
    ) -> None:
        """Value the prompts whose last token this step has read, by the hidden states [N, d] there."""
        table, count = self._table, self._table.num_active
        rows = np.flatnonzero(table.column[:count] == table.start[:count])
        if not len(rows):
            return
        states = states[sent(rows, states.device)]
        size = 1 if self._engine.num_fixed else len(rows)
        for first in range(0, len(rows), size):
            own = table.owner[rows[first : first + size]]
            values = valuer(states[first : first + size], [adapters[owner] for owner in own.tolist()])
            recorder.record_values(own, values)

    def _queued(self, drawn: Draw) -> Step:
        """Go on to the next column, and have what was drawn read."""
        table, count = self._table, self._table.num_active
        owners = np.full(len(drawn.tokens), -1)
        owners[:count] = table.owner[:count]
        table.previous[:count] = np.arange(count)
        table.column[:count] += 1
        return Step(owners, drawn, HostCopy(drawn.tokens))

    def _settle(self, step: Step, has_stopped: NDArray[np.bool_], recorder: DrawRecorder) -> None:
        """Read and record what a step drew, and see who has stopped; what was drawn for those before counts not."""
        tokens = step.reading.numbers()
        owners = np.where(has_stopped[step.owners], -1, step.owners)
        recorder.record(owners, tokens, step.drawn)
        has_stopped[owners[self._is_stop[tokens] & (owners >= 0)]] = True
