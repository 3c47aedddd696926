"""NCCL and CUDA IPC weight transfer to vLLM: communicators, and memory handles for other processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import reduce_tensor


def unique_id() -> bytes:
    """The name of a new group of GPUs, which its members are told."""
    identity: bytes = torch.cuda.nccl.unique_id()
    return identity


class Group:
    """This process as rank 0 of a group of GPUs, each with a process of its own.

    It comes about when all its members join.

    Args:
        identity: the group's name.
        size: its members, this process among them.
        device: this process's.
    """

    def __init__(self, identity: bytes, size: int, device: torch.device):
        self._device = device
        with torch.cuda.device(device):
            self._communicator = torch.cuda.nccl.init_rank(size, identity, 0)
            one = torch.zeros(1, device=device)
            torch.cuda.nccl.all_reduce([one], comms=[self._communicator])  # vLLM's workers begin with it
            torch.cuda.current_stream().synchronize()

    def broadcast(self, weights: Iterable[Tensor]) -> Callable[[], bool]:
        """Begin to send weights to the other members, one after the other.

        Returns:
            Tells whether all are sent; weights live until it goes.
        """
        stream = torch.cuda.Stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        kept = []
        with torch.cuda.device(self._device), torch.cuda.stream(stream):
            for weight in weights:
                torch.cuda.nccl.broadcast([weight], 0, comms=[self._communicator])
                kept.append(weight)
            done = stream.record_event()
        return lambda: bool(kept) and bool(done.query())


def handle(weight: Tensor) -> dict[str, tuple[Any, ...]]:
    """Where a weight lies, for another process on the same GPU: by the GPU's name, the arguments that open it."""
    gpu = str(torch.cuda.get_device_properties(weight.device).uuid)
    return {gpu: reduce_tensor(weight)[1]}


def let_go() -> None:
    """Free memory that other processes no longer read."""
    torch.cuda.ipc_collect()
