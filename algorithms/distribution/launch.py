"""Joining and leaving the processes that torchrun started, and signs of life between them.

A rank that waits for another inside NCCL is not told that the other has died, and no one is told that another hangs.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from hashlib import sha256
from types import TracebackType

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # public, but hidden from checkers

from ..._errors import UserError
from .group import Group, current, member
from .ranks import LostRankError, Ranks

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun tells each process that it starts."""
TIMEOUT = timedelta(hours=2)
"""Longest wait for a rank that is alive: shares of an update may differ by minutes. `RankWatch` finds lost ranks."""
PATIENCE_S = 40.0
BEATS = 8
"""Signs of life within the patience."""
_DONE = b"done"
_SAID = "collm/said"


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
    watch = RankWatch(ranks.rank, ranks.size, patience_s)
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


class RankWatch:
    """Tells the other ranks that this one lives, and ends this process when another one is lost.

    Args:
        rank: as of the group.
        size: likewise.
        patience_s: seconds without a sign of life after which a rank counts as lost.
    """

    def __init__(self, rank: int, size: int, patience_s: float):
        self._rank = rank
        self._others = [other for other in range(size) if other != rank]
        self._patience_s = patience_s
        # A connection of its own: torch's may be waiting for something.
        self._store = _connection()
        self._told = _connection()
        self._is_over = threading.Event()
        self._has_failed = False
        self._thread = threading.Thread(target=self._look, name="collm-watch", daemon=True)

    def __enter__(self) -> RankWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._has_failed = error is not None
        self._is_over.set()
        self._thread.join(self._patience_s)

    def is_first_to_say(self, line: str) -> bool:
        """Whether no other rank has said this line; of the empty one, whether none has said anything."""
        try:
            is_first = int(self._told.add(_SAID, 1)) == 1
            if line:
                is_first = int(self._told.add(f"{_SAID}/{sha256(line.encode()).hexdigest()}", 1)) == 1
            return is_first
        except RuntimeError:  # who kept the notes is gone
            return True

    def _look(self) -> None:
        """Beat until told to leave off, or until another rank has not for too long, counted in own beats: a process
        that was stopped for a while must not take the others for dead."""
        seen: dict[int, bytes] = {}
        missed = dict.fromkeys(self._others, 0)
        beat = 0
        while not self._is_over.wait(self._patience_s / BEATS):
            beat += 1
            try:
                self._store.set(_beats(self._rank), str(beat))
                for other in self._others:
                    name = _beats(other)
                    found = bytes(self._store.get(name)) if self._store.check([name]) else b""
                    missed[other] = missed[other] + 1 if found == seen.get(other, b"") and found != _DONE else 0
                    seen[other] = found
            except RuntimeError:  # who keeps the notes is gone: the launcher, or rank 0
                if self._is_over.wait(self._patience_s / BEATS):
                    return
                self._end("the process that torchrun keeps its notes in")
            lost = [other for other in self._others if missed[other] > BEATS]
            if lost:
                self._end(f"rank {', '.join(map(str, lost))}")
        if self._has_failed:
            return  # the others are to miss this rank: some may wait for it where nothing else would tell them
        try:
            self._store.set(_beats(self._rank), _DONE.decode())
        except RuntimeError:
            return  # and nobody is left to be told

    def _end(self, who: str) -> None:
        if self.is_first_to_say(""):
            print(
                f"error: no sign of life from {who} for {self._patience_s:.0f} s; all ranks end here, and what is "
                "saved stays",
                file=sys.stderr,
                flush=True,
            )
        os._exit(1)


def _connection() -> TCPStore:
    return TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)


def _beats(rank: int) -> str:
    return f"collm/beats/{rank}"
