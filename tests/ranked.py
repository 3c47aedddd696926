"""Some processes of one group, as torchrun would start them, that each call a function of a test module."""

from __future__ import annotations

import os
import socket
import traceback
from multiprocessing import get_context
from typing import Any

TIMEOUT_S = 300


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start(function, size, *args, patience_s=40.0):
    """Processes that join a group and call the function, and the queue that (rank, is_fine, result) come in."""
    context = get_context("spawn")
    queue: Any = context.Queue()
    port = free_port()
    processes = [
        context.Process(target=_life, args=(function, rank, size, port, patience_s, args, queue), daemon=True)
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    return processes, queue


def results(function, size, *args, patience_s=40.0):
    """What the function returns on each of these ranks."""
    processes, queue = start(function, size, *args, patience_s=patience_s)
    found = {}
    try:
        for _ in processes:
            rank, is_fine, result = queue.get(timeout=TIMEOUT_S)
            assert is_fine, f"rank {rank}: {result}"
            found[rank] = result
    finally:
        for process in processes:
            process.join(5)
            process.kill()
    return [found[rank] for rank in range(size)]


def _life(function, rank, size, port, patience_s, args, queue):
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    import torch  # here, so that a process that only starts others is small

    from collm.algorithms.distribution.launch import joined

    torch.set_num_threads(1)
    try:
        with joined(patience_s) as group:
            result = function(group, *args)
        queue.put((rank, True, result))
    except BaseException:
        queue.put((rank, False, traceback.format_exc()))
