"""One forward pass at a time through the arena: prefill what a row lacks, then one token for every active row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from ..batching import padded
from .adapters import AdapterBank
from .arena import Arena, Placement, StopForward, visibility
from .slots import Moves, Seat

MASK_BLOCK = 8  # widths of masks are multiples of this, for aligned kernels
FIXED_BLOCK = 64  # the same in fixed shapes: attention then sums over hidden columns, which add 0, in the same order


class Engine:
    """A causal model with its arena. Nothing is known here of requests and sampling."""

    def __init__(self, base: PreTrainedModel, prefill_tokens: int) -> None:
        self.base = base
        self.arena = Arena(base.config.get_text_config(decoder=True).num_hidden_layers)
        self.bank: AdapterBank | None = None  # set where rows have adapters of their own
        self._prefill_tokens = prefill_tokens
        self.num_fixed = 0  # rows of every step, however many are active; 0: as many as are active

    def prefill(self, seats: Sequence[Seat]) -> None:
        """Keep the keys and values of every prompt, but for its last token, which is the first to be decoded.

        No logits are computed here. Equal prompts are computed once and copied.
        """
        copies: list[tuple[int, Seat]] = []
        leaders: dict[tuple[str | None, bytes], Seat] = {}
        fresh: list[Seat] = []
        grown: list[Seat] = []
        for seat in seats:
            if _num_missing(seat) == 0:  # a prompt of one token, or one that is parked whole
                continue
            if seat.num_kept:
                grown.append(seat)
                continue
            leader = leaders.setdefault((seat.claim.prompt.adapter, seat.claim.ids.tobytes()), seat)
            if leader is seat:
                fresh.append(seat)
            else:
                copies.append((leader.row, seat))
        for batch in self._batches(fresh):
            self._select([seat.claim.prompt.adapter for seat in batch])
            self._begin(batch)
        for batch in self._batches(grown):
            self._select([seat.claim.prompt.adapter for seat in batch])
            self._extend(batch)
        if copies:
            self.move(
                Moves(
                    np.array([seat.row for _, seat in copies]),
                    np.array([row for row, _ in copies]),
                    max(len(seat.claim.prompt.ids) - 1 for _, seat in copies),
                )
            )

    def step(
        self, tokens: NDArray[np.int64], columns: NDArray[np.int64], adapters: Sequence[str | None] = ()
    ) -> Tensor:
        """Feed one token to each of the first rows and return the logits [N, V] that follow it.

        Args:
            adapters: the rows' adapters by name, where there is a bank.
        """
        self._select(adapters)
        device, count = self.base.device, len(tokens)
        block = FIXED_BLOCK if self.num_fixed else MASK_BLOCK
        width = min(-(-(int(columns.max()) + 1) // block) * block, self.arena.capacity)
        positions = torch.from_numpy(columns).to(device)[:, None]
        rows = torch.arange(count, device=device)
        self.arena.placement = Placement(slice(0, count), width, rows, torch.zeros_like(rows), rows, positions[:, 0])
        output = self.base(
            input_ids=torch.from_numpy(tokens).to(device)[:, None],
            position_ids=positions,
            attention_mask=visibility(positions, width, self.base.dtype),
            past_key_values=self.arena,
            use_cache=True,
        )
        logits: Tensor = output.logits[:, -1]
        return logits

    def move(self, moves: Moves | None) -> None:
        """Copy rows, if there is anything to copy."""
        if moves is None:
            return
        device = self.base.device
        targets, sources = torch.from_numpy(moves.targets).to(device), torch.from_numpy(moves.sources).to(device)
        self.arena.move(targets, sources, moves.width)

    def _select(self, adapters: Sequence[str | None]) -> None:
        if self.bank is not None:
            self.bank.select(adapters, self.base.device)

    def _batches(self, seats: Sequence[Seat]) -> Iterator[list[Seat]]:
        """Seats of similar length together, as many as the token budget allows, in the order of their rows."""
        batch: list[Seat] = []
        for seat in sorted(seats, key=_num_missing, reverse=True):
            if batch and (self.num_fixed or (len(batch) + 1) * _num_missing(batch[0]) > self._prefill_tokens):
                yield sorted(batch, key=lambda seat: seat.row)
                batch = []
            batch.append(seat)
        if batch:
            yield sorted(batch, key=lambda seat: seat.row)

    def _begin(self, batch: Sequence[Seat]) -> None:
        ids = padded([seat.claim.ids[:-1] for seat in batch], self.base.device)
        empty = ids[:0, 0]
        self.arena.placement = Placement(self._rows(batch), 0, empty, empty, empty, empty, is_filling=True)
        positions = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)
        # Without a mask attention is causal, and causal attention never looks at padding on the right.
        self._fill(ids, positions, None)

    def _extend(self, batch: Sequence[Seat]) -> None:
        ids = padded([seat.claim.ids[seat.num_kept : -1] for seat in batch], self.base.device)
        rows, kept, missing = torch.tensor(
            [(seat.row, seat.num_kept, _num_missing(seat)) for seat in batch], device=ids.device
        ).T
        steps = torch.arange(ids.shape[1], device=ids.device)
        positions = kept[:, None] + steps
        batch_index, token_index = torch.nonzero(steps < missing[:, None], as_tuple=True)
        last = max(len(seat.claim.prompt.ids) - 1 for seat in batch)
        width = min(-(-last // MASK_BLOCK) * MASK_BLOCK, self.arena.capacity)
        columns = positions[batch_index, token_index]
        found = batch_index, token_index, rows[batch_index], columns
        self.arena.placement = Placement(self._rows(batch), width, *found, is_filling=True)
        # Padding must not ask for a position that the model does not have.
        self._fill(ids, positions.clamp(max=last - 1), visibility(positions, width, self.base.dtype))

    def _fill(self, ids: Tensor, positions: Tensor, mask: Tensor | None) -> None:
        # The rest of the last layer would be thrown away: a sixth of the pass in a model of four layers.
        with suppress(StopForward):
            self.base.base_model(
                input_ids=ids,
                position_ids=positions,
                attention_mask=mask,
                past_key_values=self.arena,
                use_cache=True,
            )

    def _rows(self, batch: Sequence[Seat]) -> slice | Tensor:
        """The arena's rows of a batch; a slice where it can be, since that is a view."""
        rows = [seat.row for seat in batch]
        if rows == list(range(rows[0], rows[0] + len(rows))):
            return slice(rows[0], rows[0] + len(rows))
        return torch.tensor(rows, device=self.base.device)


def _num_missing(seat: Seat) -> int:
    return len(seat.claim.prompt.ids) - 1 - seat.num_kept
