"""Process group of the ranks that torchrun starts, with heartbeats that detect lost ranks.

NCCL does not report a rank that dies while other ranks wait for it. No backend reports a rank that hangs.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from hashlib import sha256

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # public, but hidden from checkers

from ..._errors import UserError
from .group import Group, LostRankError, Ranks, current, member

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # Environment variables that torchrun sets
BEATS = 8  # Heartbeats per `patience_s`
_DONE = b"done"
_REPORTS = "collm/said"


@contextmanager
def joined(patience_s: float = 40.0) -> Iterator[Group]:
    """Context manager: join the process group of torchrun's ranks. Without torchrun, the group is one process.

    Raises:
        UserError: if only some of torchrun's variables are set.
        LostRankError: if a rank ends early, or sends no heartbeat for `patience_s`. Raised on one rank; others exit.
    """
    if current().size > 1 or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield current()
        return
    if missing := [name for name in VARIABLES if name not in os.environ]:
        raise UserError(
            f"WORLD_SIZE={os.environ['WORLD_SIZE']} needs the environment variables {', '.join(missing)}; start all "
            "ranks with torchrun, or unset WORLD_SIZE to train in one process"
        )
    # Ranks may reach the same collective minutes apart. `RankWatch` detects lost ranks earlier than the timeout.
    backend = _backend()
    # With a device, NCCL connects the ranks here, and not in the first collective operation.
    device = torch.device("cuda", torch.cuda.current_device()) if "nccl" in backend else None
    dist.init_process_group(backend, timeout=timedelta(hours=2), device_id=device)
    ranks = Ranks()
    watch = RankWatch(ranks.rank, ranks.size, patience_s)
    try:
        with member(ranks), watch:
            yield ranks
            ranks.gather(None)  # barrier: another rank may still wait for data of this rank
    except Exception as error:
        # Only one rank reports an error that all ranks raise. A lost rank is reported only if no cause was reported.
        if not watch.is_first_report("" if isinstance(error, LostRankError) else str(error)):
            raise SystemExit(1) from error
        raise
    finally:
        dist.destroy_process_group()


def ranks_on(device: torch.device) -> int:
    """Return the number of ranks of this machine that use the same device."""
    here = 1 if current().size == 1 else int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return here if device.type == "cpu" else -(-here // max(1, torch.cuda.device_count()))


def _backend() -> str:
    if not torch.cuda.is_available():
        return "gloo"
    local_rank, count = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    torch.cuda.set_device(local_rank % count)
    # NCCL refuses two ranks on one GPU.
    return "cpu:gloo,cuda:nccl" if int(os.environ.get("LOCAL_WORLD_SIZE", "1")) <= count else "gloo"


class RankWatch:
    """Thread that sends heartbeats. It ends this process if the heartbeats of another rank stop."""

    def __init__(self, rank: int, size: int, patience_s: float):
        self._rank = rank
        self._others = [other for other in range(size) if other != rank]
        self._patience_s = patience_s
        # Two connections, because a call blocks while another thread uses the same connection.
        self._beats = _connection()
        self._reports = _connection()
        self._is_over = threading.Event()
        self._has_failed = False
        self._thread = threading.Thread(target=self._watch, name="collm-watch", daemon=True)

    def __enter__(self) -> RankWatch:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._has_failed = error is not None
        self._is_over.set()
        self._thread.join(self._patience_s)

    def is_first_report(self, line: str) -> bool:
        """Return True if no rank has reported `line` yet. For an empty line: True if no rank has reported any line."""
        try:
            is_first = int(self._reports.add(_REPORTS, 1)) == 1
            if line:
                is_first = int(self._reports.add(f"{_REPORTS}/{sha256(line.encode()).hexdigest()}", 1)) == 1
            return is_first
        except RuntimeError:  # the process of the store has ended
            return True

    def _watch(self) -> None:
        seen: dict[int, bytes] = {}
        # Counted in heartbeats of this rank, so that a suspended process does not treat the other ranks as lost.
        missed = dict.fromkeys(self._others, 0)
        beat = 0
        while not self._is_over.wait(self._patience_s / BEATS):
            beat += 1
            try:
                self._beats.set(_key(self._rank), str(beat))
                for other in self._others:
                    name = _key(other)
                    found = bytes(self._beats.get(name)) if self._beats.check([name]) else b""
                    missed[other] = missed[other] + 1 if found == seen.get(other, b"") and found != _DONE else 0
                    seen[other] = found
            except RuntimeError:  # the process of the store has ended: the launcher, or rank 0
                if self._is_over.wait(self._patience_s / BEATS):
                    return
                self._exit("the process of torchrun's store")
            lost = [other for other in self._others if missed[other] > BEATS]
            if lost:
                self._exit(f"rank {', '.join(map(str, lost))}")
        if not self._has_failed:  # after an error, ranks that wait for this rank must detect that it is lost
            with suppress(RuntimeError):  # the process of the store has ended
                self._beats.set(_key(self._rank), _DONE.decode())

    def _exit(self, lost: str) -> None:
        if self.is_first_report(""):
            print(
                f"error: no heartbeat from {lost} for {self._patience_s:.0f} s; all ranks stop, and saved files are "
                "kept",
                file=sys.stderr,
                flush=True,
            )
        os._exit(1)


def _connection() -> TCPStore:
    return TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)


def _key(rank: int) -> str:
    return f"collm/beats/{rank}"
