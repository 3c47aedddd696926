"""One forward pass at a time through the arena: prefill what a row lacks, then one token for every active row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from ..._errors import UserError
from ..batching import padded, sent
from .adapters import AdapterBank
from .base import CastWeights, computing_type
from .kv_cache import Arena, Placement, StopForward, own_attention, visibility
from .slots import Moves, Seat

MASK_BLOCK = 8  # widths of masks are multiples of this, for aligned kernels
FIXED_BLOCK = 64  # the same in fixed shapes: attention then sums over hidden columns, which add 0, in the same order
SHARE_OF_FREE = 0.4
"""Share of a GPU's free memory for one model's keys and values where no setting says: two models have room."""
GIB = 2**30


class Engine:
    """A causal model with its arena. Nothing is known here of requests and sampling.

    Args:
        base: the model.
        prefill_tokens: most tokens in one pass over prompts.
        kv_memory: GiB that keys and values may take; None: `SHARE_OF_FREE` on a GPU, no limit elsewhere.
    """

    def __init__(self, base: PreTrainedModel, prefill_tokens: int, kv_memory: float | None = None) -> None:
        self.base = base
        self.kept_per_position = 0  # numbers that one token's keys and values are; 0 where nobody has counted
        self._kv_memory = kv_memory
        self.arena = Arena(base.config.get_text_config(decoder=True).num_hidden_layers)
        self.bank: AdapterBank | None = None  # set where rows have adapters of their own
        self.casts: CastWeights | None = None  # where autocast computes in another type than the weights'
        self._prefill_tokens = prefill_tokens
        self.num_fixed = 0  # rows of every step, however many are active; 0: as many as are active
        self.num_scratch = 0  # rows behind all others, into which steps write what is nobody's
        self._numbers = torch.empty(0, dtype=torch.int64)  # 0, 1, 2, … on the device

    def max_rows(self, length: int) -> int | None:
        """Rows of sequences of this length that there is memory for; None: any number.

        Raises:
            UserError: if there is not enough for one.
        """
        allowed = self._allowed_bytes()
        row = self.arena.columns_for(length) * self.kept_per_position * computing_type(self.base).itemsize
        if allowed is None or row == 0:
            return None
        least = max(1, self.num_fixed) + self.num_scratch
        if allowed // row < least:
            what = f"{self.num_fixed} sequences, as deterministic=True decodes," if self.num_fixed else "one sequence"
            spare = " and of a spare row" if self.num_scratch else ""
            setting = "" if self._kv_memory is None else f" (kv_memory={self._kv_memory:g})"
            raise UserError(
                f"the keys and values of {what} of {length} tokens{spare} take {least * row / GIB:.3g} GiB, "
                f"but may take {allowed / GIB:.3g}{setting}; raise kv_memory, or lower max_new_tokens"
            )
        return allowed // row - self.num_scratch

    def reserve(self, num_rows: int, length: int, max_rows: int | None = None) -> None:
        """Make room in the arena, as `Arena.reserve`; scratch rows come on top."""
        limit = None if max_rows is None else max_rows + self.num_scratch
        self.arena.reserve(num_rows + self.num_scratch, length, limit)

    def _allowed_bytes(self) -> int | None:
        device = self.base.device
        if self._kv_memory is not None:
            return int(self._kv_memory * GIB)
        if device.type != "cuda":
            return None
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        free = torch.cuda.mem_get_info(device)[0] + unused + self.arena.num_bytes
        return int(SHARE_OF_FREE * free)

    @contextmanager
    def casting(self) -> Iterator[None]:
        """Cast the weights once, and not in every pass inside the block; the copies stay until `release`."""
        dtype = computing_type(self.base)
        if not torch.is_autocast_enabled(self.base.device.type):
            self.casts = None
        elif self.casts is None or self.casts.dtype != dtype:
            self.casts = CastWeights(self.base, dtype)
        if self.casts is None:
            yield
            return
        with self.casts.acting():
            yield

    def release(self) -> None:
        """Give back the memory of keys, values and cast weights."""
        self.arena.release()
        self.casts = None

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
            self._select(batch)
            self._begin(batch)
        for batch in self._batches(grown):
            self._select(batch)
            self._extend(batch)
        if copies:
            self.move(
                Moves(
                    np.array([seat.row for _, seat in copies]),
                    np.array([row for row, _ in copies]),
                    max(len(seat.claim.prompt.ids) - 1 for _, seat in copies),
                )
            )

    def step(self, tokens: Tensor, columns: Tensor, width: int, adapters: Tensor | None = None) -> Tensor:
        """Feed one token to each of the first rows and return the logits [N, V] that follow it.

        Args:
            tokens: int64 [N], on the device.
            columns: int64 [N], where they belong.
            width: more than any of the columns.
            adapters: int64 [N], the rows' adapters by number, where there is a bank.
        """
        block = FIXED_BLOCK if self.num_fixed else MASK_BLOCK
        width = min(-(-width // block) * block, self.arena.capacity)
        return self.forward(tokens, columns, self._first(len(tokens)), width, adapters)

    def forward(
        self, tokens: Tensor, columns: Tensor, rows: Tensor, width: int, adapters: Tensor | None = None
    ) -> Tensor:
        """`step`, of which rows and width are all that the host says.

        Args:
            rows: int64 [N], where keys and values are written; read are those of the first N rows.
            width: columns that are read, all of which there are.
        """
        if self.bank is not None and adapters is not None:
            self.bank.select(adapters)
        self.arena.placement = Placement(slice(0, len(tokens)), width, rows, rows, rows, columns)
        positions = columns[:, None]
        with own_attention(self.base):
            output = self.base(
                input_ids=tokens[:, None],
                position_ids=positions,
                attention_mask=visibility(positions, width, computing_type(self.base)),
                past_key_values=self.arena,
                use_cache=True,
            )
        logits: Tensor = output.logits[:, -1]
        return logits

    def move(self, moves: Moves | None) -> None:
        """Copy rows, if there is anything to copy."""
        if moves is not None:
            targets, sources = sent(np.stack([moves.targets, moves.sources]), self.base.device)
            self.arena.move(targets, sources, moves.width)

    def adapter_numbers(self, names: Sequence[str | None]) -> list[int]:
        """The numbers of adapters in the bank; nothing where there is none."""
        return [] if self.bank is None else [self.bank.number(name) for name in names]

    def _first(self, count: int) -> Tensor:
        """0 … count - 1, on the device."""
        if len(self._numbers) < count or self._numbers.device != self.base.device:
            self._numbers = torch.arange(2 * count, device=self.base.device)
        return self._numbers[:count]

    def _select(self, batch: Sequence[Seat]) -> None:
        if self.bank is not None:
            numbers = self.adapter_numbers([seat.claim.prompt.adapter for seat in batch])
            self.bank.select(sent(np.array(numbers), self.base.device))

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
        device = self.base.device
        ids = padded([seat.claim.ids[seat.num_kept : -1] for seat in batch], device)
        rows, kept, missing = np.array([(seat.row, seat.num_kept, _num_missing(seat)) for seat in batch]).T
        steps = np.arange(ids.shape[1])
        places = kept[:, None] + steps
        batch_index, token_index = np.nonzero(steps < missing[:, None])
        last = max(len(seat.claim.prompt.ids) - 1 for seat in batch)
        width = min(-(-last // MASK_BLOCK) * MASK_BLOCK, self.arena.capacity)
        found = np.stack([batch_index, token_index, rows[batch_index], places[batch_index, token_index]])
        real_rows, real_tokens, kept_rows, kept_columns = sent(found, device)
        self.arena.placement = Placement(
            self._rows(batch), width, real_rows, real_tokens, kept_rows, kept_columns, is_filling=True
        )
        positions = sent(places, device)
        mask = visibility(positions, width, computing_type(self.base))
        # Padding must not ask for a position that the model does not have.
        self._fill(ids, positions.clamp(max=last - 1), mask)

    def _fill(self, ids: Tensor, positions: Tensor, mask: Tensor | None) -> None:
        # The rest of the last layer would be thrown away: a sixth of the pass in a model of four layers.
        with suppress(StopForward), nullcontext() if mask is None else own_attention(self.base):
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
        return sent(np.array(rows), self.base.device)


def _num_missing(seat: Seat) -> int:
    return len(seat.claim.prompt.ids) - 1 - seat.num_kept
