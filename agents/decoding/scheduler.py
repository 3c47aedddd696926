"""Continuous batching: between decoding steps, ended sequences are removed and waiting prompts are added."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from ..._progress import advance, expect
from ..batching import sent
from .base import hidden_states_of
from .engine import Engine
from .samples import DrawRecorder
from .sampling import Draw, Sampling
from .slots import Claim, SlotTable
from .steps.eager_steps import EagerSteps, HostCopy, Steps
from .steps.graph_steps import Capture, GraphSteps, StepKind


@dataclass(frozen=True, slots=True)
class Step:
    """Decoding step that is queued on the device."""

    owners: NDArray[np.int64]  # index of the prompt of each row; -1: padding
    drawn: Draw
    copied_tokens: HostCopy


class Scheduler:
    """Scheduler of decoding. When a sequence ends, the next prompt (claim) gets the sequence's row of the KV cache.

    Args:
        is_stop: [V] True for tokens that end a completion.
        max_slots: maximum number of active rows, and of parked rows, which stay in the KV cache between runs.
        capture: recorder of decoding steps as CUDA graphs. None: steps run eagerly.
    """

    def __init__(
        self, engine: Engine, is_stop: NDArray[np.bool_], max_slots: int, capture: Capture | None = None
    ) -> None:
        self._engine = engine
        self._is_stop = is_stop
        self._max_slots = max_slots
        self._table = SlotTable(2 * max_slots)
        self._static = None if capture is None else GraphSteps(engine, capture)

    def fix_shapes(self, num_rows: int) -> None:
        """Decode exactly `num_rows` rows in every later step, including free rows. No row is kept between runs."""
        self.release()
        self._max_slots = self._engine.num_fixed = num_rows
        self._table = SlotTable(num_rows)

    def run(
        self, claims: Sequence[Claim], sampling: Sampling, recorder: DrawRecorder, value_head: nn.Module | None
    ) -> None:
        """Complete all prompts (claims) and record the sampled tokens."""
        try:
            self._run(claims, sampling, recorder, value_head)
        except BaseException:
            self._table.clear()  # incomplete rows cannot be reused
            raise

    def remember(self, key: Hashable, ids: NDArray[np.int64]) -> None:
        self._table.remember(key, ids)

    def release(self) -> None:
        self._table.clear()
        if self._static is not None:
            self._static.drop()  # first, because it waits for steps that may still read the KV cache
        self._engine.release()

    def _run(
        self, claims: Sequence[Claim], sampling: Sampling, recorder: DrawRecorder, value_head: nn.Module | None
    ) -> None:
        table, engine = self._table, self._engine
        # Sorted by length: rows of similar length need the least padding and the fewest masked columns.
        queue = deque(sorted(claims, key=lambda claim: len(claim.prompt.ids), reverse=True))
        adapters = {claim.owner: claim.prompt.adapter for claim in claims}
        max_active = self._reserve(claims)
        least_free = max(1, max_active // 8)  # a prefill of one prompt would leave most of the hardware idle
        has_stopped = np.zeros(1 + max(claim.owner for claim in claims), np.bool_)  # per prompt
        ahead = 0 if engine.base.device.type == "cpu" else 1  # number of steps that may run before tokens are read
        queued: deque[Step] = deque()
        has_changed = True  # True if active rows were added or removed since the last step
        with hidden_states_of(engine.base) as hidden:
            steps: Steps
            if self._static is None:
                steps = EagerSteps(engine, recorder.noise, sampling, hidden)
            else:
                adapter = claims[0].prompt.adapter if engine.bank is None else None
                kind = StepKind(sampling, keeps_states=value_head is not None, adapter=adapter)
                self._static.begin(recorder.noise, hidden, kind, self._max_slots)
                steps = self._static
            while queue or table.num_active or queued:
                # 1) Prefill waiting prompts into free rows.
                if queue and max_active - table.num_active >= min(least_free, len(queue)):
                    self._admit(queue, max_active)
                    has_changed = True
                # 2) Queue one step: a forward pass and one sampled token for each active row.
                has_work = table.num_active > 0
                if has_work:
                    if has_changed:
                        own = [adapters[owner] for owner in table.owner[: table.num_active].tolist()]
                        steps.follow(table, engine.adapter_numbers(own))
                    drawn = steps.step(table.width)
                    if value_head is not None:
                        self._value(value_head, steps.states, recorder)
                    queued.append(self._advance(drawn))
                # 3) Read and record the tokens of the oldest step.
                while len(queued) > (ahead if has_work else 0):
                    self._record(queued.popleft(), has_stopped, recorder)
                # 4) Free the rows of completions that have ended.
                active = slice(0, table.num_active)
                done = np.flatnonzero(has_stopped[table.owner[active]] | (table.column[active] == table.end[active]))
                has_changed = len(done) > 0
                advance(table.num_active, f"{table.num_active - len(done) + len(queue)} replies unfinished")
                if has_changed:
                    expect(int((table.column[done] - table.end[done]).sum()))  # tokens that are not sampled
                    table.retire(done.tolist())
                    engine.move(table.take_moves())

    def _reserve(self, claims: Sequence[Claim]) -> int:
        """Allocate rows of the KV cache, and return the maximum number of active rows."""
        table, engine = self._table, self._engine
        length = max(len(claim.prompt.ids) + claim.prompt.max_new_tokens for claim in claims)
        if not table.num_parked and length > engine.arena.capacity:
            engine.arena.release()  # so that the old and the new cache are not in memory at the same time
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

    def _value(self, value_head: nn.Module, states: Tensor, recorder: DrawRecorder) -> None:
        """Compute and record the values of prompts whose last token was the input of this step."""
        table, count = self._table, self._table.num_active
        rows = np.flatnonzero(table.column[:count] == table.start[:count])
        if not len(rows):
            return
        states = states[sent(rows, states.device)]
        size = 1 if self._engine.num_fixed else len(rows)
        for first in range(0, len(rows), size):
            recorder.record_values(table.owner[rows[first : first + size]], value_head(states[first : first + size]))

    def _advance(self, drawn: Draw) -> Step:
        """Advance all active rows by one column, and start to copy the sampled tokens to the host."""
        table, count = self._table, self._table.num_active
        owners = np.full(len(drawn.tokens), -1)
        owners[:count] = table.owner[:count]
        table.previous[:count] = np.arange(count)
        table.column[:count] += 1
        return Step(owners, drawn, HostCopy(drawn.tokens))

    def _record(self, step: Step, has_stopped: NDArray[np.bool_], recorder: DrawRecorder) -> None:
        """Record the tokens sampled in a step, and set `has_stopped` for prompts that sampled a stop token."""
        tokens = step.copied_tokens.numbers()
        owners = np.where(has_stopped[step.owners], -1, step.owners)
        recorder.record(owners, tokens, step.drawn)
        has_stopped[owners[self._is_stop[tokens] & (owners >= 0)]] = True
