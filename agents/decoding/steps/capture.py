"""Recording what a device is given to do, so that it can be given again at once: CUDA graphs.

A replay starts the same kernels on the same addresses; no line of Python runs. What changes from one replay to the next
must therefore lie in memory that both find under the same address.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, TypeAlias

import torch

from ...._errors import UserError

Work: TypeAlias = Callable[[], None]
_ONE_AT_A_TIME = threading.Lock()  # torch records one graph per process at a time; agents may decode side by side


class Capture(Protocol):
    """Records work on a device."""

    def warm_up(self, work: Work) -> None:
        """Do the work, with whatever libraries do on first use and must not do while something is recorded."""

    def capture(self, work: Work) -> Work:
        """Record the work without doing it; returns the replay, which does it."""

    def release(self) -> None:
        """Wait until all replays are done: they will be dropped, with the memory that they share."""


class CudaGraphs:
    """CUDA graphs that share one pool of memory: a replay may overwrite what another one left outside of its outputs.

    Args:
        device: a GPU.

    Raises:
        UserError: if the device has no CUDA graphs.
    """

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
        """Record the work.

        Raises:
            UserError: if it asks for what cannot be recorded, such as a number on the host.
        """
        graph = torch.cuda.CUDAGraph()
        # The stream is set here too: torch does not set it back when it finds at the end that a capture has failed.
        with _ONE_AT_A_TIME, torch.cuda.stream(self._stream):
            try:
                # Other threads go on allocating and waiting meanwhile.
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
    """Refuse a device without CUDA graphs.

    Raises:
        UserError: naming the device.
    """
    if device.type != "cuda":
        raise UserError(f"sampler='graphs' needs a GPU with CUDA, but the model is on {device.type}; use 'arena'")
