"""Joining the processes that torchrun started, and leaving them: together, or with one line where one is lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from ..._errors import UserError
from .group import Group, current, member
from .ranks import LostRankError, Ranks
from .watch import PATIENCE_S, Watch

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun tells each process that it starts."""
TIMEOUT = timedelta(hours=2)
"""Longest wait for a rank that is alive: shares of an update may differ by minutes. Of one that is not, see `Watch`."""


@contextmanager
def joined(patience_s: float = PATIENCE_S) -> Iterator[Group]:
    """Belong to the processes that torchrun started, inside the block; to none but itself without torchrun.

    Args:
        patience_s: seconds without a sign of life after which a rank counts as lost.

    Raises:
        UserError: if torchrun's variables are there in part.
        LostRankError: if another rank ends or hangs, on one of those that are left; the others exit with status 1.
    """
    if current().size > 1 or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield current()
        return
    if missing := [name for name in VARIABLES if name not in os.environ]:
        raise UserError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but {', '.join(missing)} not set; start all ranks by "
            "torchrun, or unset WORLD_SIZE to train alone"
        )
    dist.init_process_group(_backend(), timeout=TIMEOUT)
    ranks = Ranks()
    watch = Watch(ranks.rank, ranks.size, patience_s)
    try:
        with member(ranks), watch:
            yield ranks
            ranks.gather(None)  # no rank leaves while another may still need it
    except Exception as error:
        # What all ranks raise is said once, and that one is gone only where nobody has said why.
        if not watch.is_first_to_say("" if isinstance(error, LostRankError) else str(error)):
            raise SystemExit(1) from error
        raise
    finally:
        dist.destroy_process_group()


def ranks_on(device: torch.device) -> int:
    """Processes of this machine that share a device of it."""
    here = 1 if current().size == 1 else int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return here if device.type == "cpu" else -(-here // max(1, torch.cuda.device_count()))


def _backend() -> str:
    """Choose the device of this process and what moves tensors between the ranks."""
    if not torch.cuda.is_available():
        return "gloo"
    place, count = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    torch.cuda.set_device(place % count)
    # NCCL refuses two ranks on one GPU.
    return "cpu:gloo,cuda:nccl" if int(os.environ.get("LOCAL_WORLD_SIZE", "1")) <= count else "gloo"
