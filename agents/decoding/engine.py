"""Forward passes through the KV cache: prefill of prompts, and decoding steps of one token per row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from ..._errors import UserError
from ..._progress import advance, expect, phase
from ..batching import padded, sent
from .adapters import AdapterBank
from .base import CastWeights, backbone_of, computing_type
from .kv_cache import Arena, Placement, StopForward, own_attention, visibility
from .slots import Moves, Seat

MASK_BLOCK = 8  # widths of masks are multiples of this, for aligned kernels
FIXED_BLOCK = 64  # replaces MASK_BLOCK after `fix_shapes`, so that attention always sums in the same order
SHARE_OF_FREE = 0.4  # default fraction of a GPU's free memory for one model's KV cache; two such caches fit
GIB = 2**30


class Engine:
    """Causal language model with its KV cache.

    Args:
        prefill_tokens: maximum number of tokens per prefill pass, including padding.
        kv_memory: memory of the KV cache in GiB. None: `SHARE_OF_FREE` of a GPU's free memory; no limit on a CPU.
    """

    def __init__(self, base: PreTrainedModel, prefill_tokens: int, kv_memory: float | None = None) -> None:
        self.base = base
        self._backbone = backbone_of(base)
        self.kept_per_position = 0  # number of elements in the keys and values of one token; 0: unknown
        self._kv_memory = kv_memory
        self.arena = Arena(base.config.get_text_config(decoder=True).num_hidden_layers)
        self.bank: AdapterBank | None = None  # set if rows use different adapters
        self.casts: CastWeights | None = None  # set if autocast is on
        self._prefill_tokens = prefill_tokens
        self.num_fixed = 0  # number of rows of every step after `fix_shapes`; 0: only the active rows
        self.num_scratch = 0  # extra rows at the end of the KV cache, which store the padding of recorded steps
        self._numbers = torch.empty(0, dtype=torch.int64)  # 0, 1, 2, … on the device

    def max_rows(self, length: int) -> int | None:
        """Return the number of sequences of this length that fit into the KV cache. None: no limit."""
        allowed = self._allowed_bytes()
        row = self.arena.columns_for(length) * self.kept_per_position * computing_type(self.base).itemsize
        if allowed is None or row == 0:
            return None
        least = max(1, self.num_fixed) + self.num_scratch
        if allowed // row < least:
            what = f"{self.num_fixed} sequences (deterministic=True)" if self.num_fixed else "one sequence"
            spare = " and of a spare row" if self.num_scratch else ""
            setting = "" if self._kv_memory is None else f" (kv_memory={self._kv_memory:g})"
            raise UserError(
                f"the KV cache of {what} of {length} tokens{spare} takes {least * row / GIB:.3g} GiB, "
                f"but only {allowed / GIB:.3g} GiB are allowed{setting}; raise kv_memory, or lower max_new_tokens"
            )
        return allowed // row - self.num_scratch

    def reserve(self, num_rows: int, length: int, max_rows: int | None = None) -> None:
        """Allocate rows of the KV cache, and scratch rows for padding."""
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
        """Context manager in which weights for autocast are cast once, instead of in every forward pass."""
        dtype = computing_type(self.base)
        if not torch.is_autocast_enabled(self.base.device.type):
            self.casts = None
        elif self.casts is None or self.casts.dtype != dtype:
            self.casts = CastWeights(self.base, dtype)
        with nullcontext() if self.casts is None else self.casts.acting():
            yield

    def release(self) -> None:
        self.arena.release()
        self.casts = None

    def prefill(self, seats: Sequence[Seat]) -> None:
        """Store the keys and values of each prompt without its last token, which is the first input of decoding."""
        copies: list[tuple[int, Seat]] = []
        leaders: dict[tuple[str | None, bytes], Seat] = {}  # equal prompts are computed once and copied
        fresh: list[Seat] = []
        grown: list[Seat] = []
        for seat in seats:
            if _num_missing(seat) == 0:  # the prompt has one token, or all its keys are in the parked row
                continue
            if seat.num_kept:
                grown.append(seat)
                continue
            leader = leaders.setdefault((seat.claim.prompt.adapter, seat.claim.ids.tobytes()), seat)
            if leader is seat:
                fresh.append(seat)
            else:
                copies.append((leader.row, seat))
        with phase("read prompts", "batches", is_apart=True):
            works = [*((self._begin, batch) for batch in self._batches(fresh))]
            works += [(self._extend, batch) for batch in self._batches(grown)]
            expect(len(works))
            for work, batch in works:
                self._select(batch)
                work(batch)
                advance()
        if copies:
            targets, sources = np.array([(seat.row, row) for row, seat in copies]).T
            self.move(Moves(targets, sources, max(len(seat.claim.prompt.ids) - 1 for _, seat in copies)))

    def step(self, tokens: Tensor, columns: Tensor, width: int, adapters: Tensor | None = None) -> Tensor:
        """Run the model on one token for each of the first N cache rows. Return the logits [N, V] of the next tokens.

        Args:
            tokens: int64 [N], on the device.
            columns: int64 [N], positions of the tokens.
            width: number of cache columns to read, larger than each entry of `columns`.
            adapters: int64 [N], number of each row's adapter in the `AdapterBank`. Ignored without a bank.
        """
        block = FIXED_BLOCK if self.num_fixed else MASK_BLOCK
        width = min(-(-width // block) * block, self.arena.capacity)
        return self.forward(tokens, columns, self._first(len(tokens)), width, adapters)

    def forward(
        self, tokens: Tensor, columns: Tensor, rows: Tensor, width: int, adapters: Tensor | None = None
    ) -> Tensor:
        """Run `step` with given rows and width. Calls with equal N and width differ only in tensor values.

        Keys and values are stored in the cache rows `rows` [N]. Attention reads the first N rows and `width` columns.
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
        if moves is not None:
            targets, sources = sent(np.stack([moves.targets, moves.sources]), self.base.device)
            self.arena.move(targets, sources, moves.width)

    def adapter_numbers(self, names: Sequence[str | None]) -> list[int]:
        return [] if self.bank is None else [self.bank.numbers[name] for name in names]

    def _first(self, count: int) -> Tensor:
        """Return the numbers [0, …, count - 1] on the model's device, without allocating a tensor in each step."""
        if len(self._numbers) < count or self._numbers.device != self.base.device:
            self._numbers = torch.arange(2 * count, device=self.base.device)
        return self._numbers[:count]

    def _select(self, batch: Sequence[Seat]) -> None:
        if self.bank is not None:
            numbers = self.adapter_numbers([seat.claim.prompt.adapter for seat in batch])
            self.bank.select(sent(np.array(numbers), self.base.device))

    def _batches(self, seats: Sequence[Seat]) -> Iterator[list[Seat]]:
        """Yield batches of prompts of similar length, with at most `prefill_tokens` tokens or one prompt."""
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
        # Without a mask, attention is causal: real tokens do not attend to the padding on their right.
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
        # The positions of padding are clamped, because they may exceed the model's last position.
        self._fill(ids, positions.clamp(max=last - 1), mask)

    def _fill(self, ids: Tensor, positions: Tensor, mask: Tensor | None) -> None:
        # `StopForward` skips the last layer after its keys and values: a sixth of the pass in a model with 4 layers.
        with suppress(StopForward), nullcontext() if mask is None else own_attention(self.base):
            self._backbone(
                input_ids=ids, position_ids=positions, attention_mask=mask, past_key_values=self.arena, use_cache=True
            )

    def _rows(self, batch: Sequence[Seat]) -> slice | Tensor:
        """Return the cache rows of a batch. A slice is returned if possible, because it indexes without a copy."""
        rows = [seat.row for seat in batch]
        if rows == list(range(rows[0], rows[0] + len(rows))):
            return slice(rows[0], rows[0] + len(rows))
        return sent(np.array(rows), self.base.device)


def _num_missing(seat: Seat) -> int:
    return len(seat.claim.prompt.ids) - 1 - seat.num_kept
