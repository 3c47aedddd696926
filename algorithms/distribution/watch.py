"""Signs of life between ranks, so that the loss of one ends all within a minute.

A rank that waits for another inside NCCL is not told that the other has died, and no one is told that another hangs.
"""

from __future__ import annotations

import os
import sys
import threading
from hashlib import sha256
from types import TracebackType

from torch.distributed import TCPStore  # type: ignore[attr-defined]  # public, but hidden from checkers

PATIENCE_S = 40.0
BEATS = 8
"""Signs of life within the patience."""
_DONE = b"done"
_SAID = "collm/said"


class Watch:
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

    def __enter__(self) -> Watch:
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
            if line:
                self._told.add(_SAID, 1)
                return int(self._told.add(f"{_SAID}/{sha256(line.encode()).hexdigest()}", 1)) == 1
            return int(self._told.add(_SAID, 1)) == 1
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
                    found = self._beat_of(other)
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

    def _beat_of(self, rank: int) -> bytes:
        """The last sign of life; empty before the first."""
        name = _beats(rank)
        return bytes(self._store.get(name)) if self._store.check([name]) else b""

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
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(host, port, is_master=False)


def _beats(rank: int) -> str:
    return f"collm/beats/{rank}"
