"""Decoding steps with static shapes and preallocated buffers, recorded as CUDA graphs.

A replay runs the same kernels on the same addresses, so values that change between steps are read from buffers. To
record fewer steps, the numbers of rows and columns are rounded up to a few sizes (buckets). Padding rows stay in
column 0 and are stored in a scratch row. The first step in a bucket runs eagerly, the second step is recorded.

Axes: R rows of the buffers, N rows of a step's bucket.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...._errors import UserError
from ...batching import sent
from ..base import computing_type
from ..engine import Engine
from ..sampling import Draw, Sampling, draw
from ..slots import SlotTable
from .eager_steps import Steps, rows_of

Work: TypeAlias = Callable[[], None]
_CAPTURE_LOCK = threading.Lock()  # torch records one graph per process at a time; agents decode in several threads


class Capture(Protocol):
    """Recorder of a function's work on a device (kernel launches), for example by CUDA graphs."""

    def warm_up(self, work: Work) -> None:
        """Run the work once before it is recorded, so that libraries such as cuBLAS initialize."""

    def capture(self, work: Work) -> Work:
        """Record the work without running it, and return a function that replays it."""

    def release(self) -> None:
        """Wait until all replays have ended, so that recordings can be deleted."""


class CudaGraphs:
    """CUDA graphs that share one memory pool. A replay may overwrite temporary tensors of other graphs."""

    def __init__(self, device: torch.device) -> None:
        check_graphs(device)
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def warm_up(self, work: Work) -> None:
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            work()
        current.wait_stream(self._stream)

    def capture(self, work: Work) -> Work:
        graph = torch.cuda.CUDAGraph()
        # The stream is also set here, because torch does not restore it if a capture fails at its end.
        with _CAPTURE_LOCK, torch.cuda.stream(self._stream):
            try:
                # "thread_local", because other threads may allocate memory or synchronize during the capture.
                with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                    work()
            except RuntimeError as error:
                raise UserError(
                    f"a decoding step of this model cannot be recorded as a CUDA graph ({str(error).splitlines()[0]}); "
                    "use sampler='arena'"
                ) from error
        return graph.replay

    def release(self) -> None:
        torch.cuda.synchronize(self._device)
        self._pool = torch.cuda.graph_pool_handle()


def check_graphs(device: torch.device) -> None:
    """Raise `UserError` if the device is not a CUDA GPU."""
    if device.type != "cuda":
        raise UserError(
            f"sampler='graphs' needs a GPU with CUDA, but the model is on {device.type}; use sampler='arena'"
        )


WIDTH_BLOCK = 128  # widths are multiples of this: fewer recordings, but up to 127 unused columns per step
MAX_RECORDED = 128  # maximum number of recorded steps; the oldest are dropped first


def bucket(count: int) -> int:
    """Return the smallest of 1, 2, 3, 4, 6, 8, 12, 16, 24, … that is at least `count`."""
    power = 1 << (count - 1).bit_length()
    return 3 * power // 4 if power >= 4 and count <= 3 * power // 4 else power


@dataclass(frozen=True, slots=True)
class StepKind:
    """Settings of a decoding step that a recording fixes, in addition to the numbers of rows and columns."""

    sampling: Sampling
    keeps_states: bool  # True if a value head reads the hidden states
    adapter: str | None  # adapter of all rows; None: no adapter, or one per row


class StepBuffers:
    """Tensors that a decoding step reads and writes, except weights, keys and values."""

    def __init__(self, num_rows: int, device: torch.device) -> None:
        self.num_rows = num_rows
        self.tokens = torch.zeros(num_rows, dtype=torch.int64, device=device)  # input of the step, then its samples
        # For each row: column, index of the random number, columns to advance by, cache row to write, adapter.
        self.numbers = torch.zeros(5, num_rows, dtype=torch.int64, device=device)
        self.noise = torch.zeros(1, dtype=torch.float64, device=device)  # random numbers of all prompts, joined
        self.facts = torch.zeros(2, num_rows, device=device)  # log-probabilities and entropies of the samples
        self.states: Tensor | None = None  # [R, d] last hidden states


class GraphSteps(Steps):
    """Decoding steps recorded as CUDA graphs, and reused in later runs. The KV cache gets a scratch row for padding."""

    def __init__(self, engine: Engine, capture: Capture) -> None:
        engine.num_scratch = 1
        self._engine = engine
        self._capture = capture
        self._buffers: StepBuffers | None = None
        self._recorded: dict[tuple[int, int, StepKind], Work | None] = {}  # None: warmed up, not recorded
        self._recorded_at: tuple[object, ...] = ()  # addresses of weights, keys and values in the recordings
        self._addresses: tuple[object, ...] = ()

    def begin(self, noise: NDArray[np.float64] | None, hidden: Sequence[Tensor], kind: StepKind, num_rows: int) -> None:
        """Prepare buffers for a run with up to `num_rows` active rows. `noise`, `hidden`: see `EagerSteps`."""
        base = self._engine.base
        if self._buffers is None or self._buffers.tokens.device != base.device or num_rows > self._buffers.num_rows:
            self.drop()
            self._buffers = StepBuffers(num_rows, base.device)
        self._hidden = hidden
        self._kind = kind
        self._stride = 0 if noise is None else noise.shape[1]
        if noise is not None:
            if noise.size > len(self._buffers.noise):
                self._forget_recorded()
                self._buffers.noise = self._buffers.noise.new_zeros(bucket(noise.size))
            self._buffers.noise[: noise.size] = sent(noise.reshape(-1), base.device)
        # Addresses of all model tensors that a recording reads. Another address makes the recording invalid.
        weights = [weight.data_ptr() for weight in (*base.parameters(), *base.buffers())]
        self._addresses = self._engine.bank, self._engine.casts, computing_type(base), *weights

    def follow(self, table: SlotTable, adapters: Sequence[int]) -> None:
        engine, buffers = self._engine, self._held()
        most = min(buffers.num_rows, engine.arena.num_rows)
        self._num_rows = count = engine.num_fixed or min(bucket(table.num_active), most)
        previous, token, column, start, owner, pace, adapter = rows_of(table, adapters, count)
        place = np.where(pace, owner * self._stride + column - start, 0)
        row = np.where(pace, np.arange(count), engine.arena.num_rows - 1)
        rows = sent(np.stack([previous, token, column, place, pace, row, adapter]), engine.base.device)
        buffers.tokens[:count] = torch.where(rows[0] >= 0, buffers.tokens[rows[0].clamp(min=0)], rows[1])
        buffers.numbers[:, :count] = rows[2:]

    def step(self, width: int) -> Draw:
        buffers, count = self._held(), self._num_rows
        addresses = (*self._addresses, self._engine.arena.num_layouts)
        if addresses != self._recorded_at:
            self._forget_recorded()
            self._recorded_at = addresses
        width = min(-(-width // WIDTH_BLOCK) * WIDTH_BLOCK, self._engine.arena.capacity)
        key = count, width, self._kind
        if key not in self._recorded:
            self._capture.warm_up(partial(self._work, count, width))
            self._recorded[key] = None
        else:
            replay = self._recorded[key]
            if replay is None:
                replay = self._capture.capture(partial(self._work, count, width))
                while len(self._recorded) > MAX_RECORDED:
                    del self._recorded[next(iter(self._recorded))]
                self._recorded[key] = replay
            replay()
        if buffers.states is not None:
            self.states = buffers.states[:count]
        facts = buffers.facts[:, :count].clone()  # the next step overwrites the buffer
        return Draw(buffers.tokens[:count].clone(), facts[0], facts[1])

    def drop(self) -> None:
        self._forget_recorded()
        self._recorded_at = self._addresses = ()
        self._buffers = None

    def _work(self, count: int, width: int) -> None:
        """Run a decoding step that reads only the buffers, the KV cache and the model."""
        buffers, kind = self._held(), self._kind
        columns, places, paces, rows, adapters = buffers.numbers[:, :count]
        device = self._engine.base.device.type
        is_enabled = torch.is_autocast_enabled(device)
        # Without autocast's weight cache, because a recording does not own the memory of this cache.
        with torch.autocast(device, enabled=is_enabled, cache_enabled=False):
            logits = self._engine.forward(buffers.tokens[:count], columns, rows, width, adapters)
        if kind.keeps_states:
            states = self._hidden[0][:, -1]
            if buffers.states is None:
                buffers.states = states.new_zeros(buffers.num_rows, states.shape[1])
            buffers.states[:count] = states
        drawn = draw(logits, kind.sampling, None if kind.sampling.greedy else buffers.noise[places])
        buffers.tokens[:count] = drawn.tokens
        buffers.facts[0, :count] = drawn.logprobs
        buffers.facts[1, :count] = drawn.entropies
        buffers.numbers[:2, :count].add_(paces)

    def _forget_recorded(self) -> None:
        if any(self._recorded.values()):
            self._capture.release()
        self._recorded.clear()

    def _held(self) -> StepBuffers:
        assert self._buffers is not None, "call `begin` before `step`"
        return self._buffers
