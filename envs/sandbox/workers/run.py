"""One run: the channel to its child, and how the child ended."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import struct
import time
from dataclasses import dataclass
from typing import Any, Final

from .. import values
from ..runtime import frames, protocol
from ..settings import Limits, SandboxError

_GRACE_S: Final = 30.0
"""How much later than its own limits the zygote must have spoken; past that it is broken."""
_PATIENCE_MS: Final = 20
_CHUNK: Final = 1 << 16
_PAUSE_S: Final = 0.001  # who writes byte by byte must not wake the trusted side for each
_BYTES_PER_PART: Final = 4  # as a power of 2: who may send more may also send more parts


_REMEDIES: Final = {
    errno.EMFILE: "this process has too many open files: raise `ulimit -n`, or close some",
    errno.ENFILE: "the machine has too many open files: raise sysctl fs.file-max",
    errno.EAGAIN: "the process table is full, or this user's or container's share: raise `ulimit -u` or the pids limit",
    errno.ENOMEM: "the machine is out of memory: allow fewer workers (num_workers)",
}


def explained(what: str, error: OSError) -> str:
    """A fault of the host, and what to do about it."""
    return f"{what} could not be had, {_REMEDIES.get(error.errno or 0, str(error))}"


class Broken(SandboxError):
    """This worker is of no more use; another one may be."""


class Closed(Exception):
    """The child has closed the channel."""


class Flooded(Exception):
    """The child has announced more than it may send."""


@dataclass(frozen=True)
class Ending:
    """How a child ended, in the zygote's words."""

    cause: int
    wait_status: int
    cpu_s: float

    @property
    def is_orderly(self) -> bool:
        """Whether it left by itself with exit status 0, within its limits."""
        return self.cause == protocol.BY_ITSELF and self.wait_status == 0

    @property
    def was_stopped(self) -> bool:
        """Whether it was ended because the trusted side asked for it."""
        return self.cause == protocol.STOPPED

    @property
    def description(self) -> str:
        """Exit status or signal, for a person."""
        if os.WIFSIGNALED(self.wait_status):
            return f"ended by {signal.Signals(os.WTERMSIG(self.wait_status)).name}"
        return f"left with exit status {os.WEXITSTATUS(self.wait_status)}"


class ChildRun:
    """A child from its start to its end. Unless it is finished or collected, its worker is of no more use."""

    def __init__(self, control: socket.socket, limits: Limits, *, can_kill_itself: bool) -> None:
        self._control = control
        self._can_kill_itself = can_kill_itself
        self._max_bytes = limits.output_kb << 10
        self._deadline = time.monotonic() + limits.wall_s + _GRACE_S
        self._received = bytearray()
        self._is_sealed = False
        self.last_length = 0
        try:
            self._channel, theirs = socket.socketpair()
        except OSError as error:
            raise Broken(explained("a channel to a run", error)) from error
        request = protocol.REQUEST.pack(limits.cpu_s, limits.wall_s, limits.memory_mb << 20)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", theirs.fileno()))]
        try:
            control.sendmsg([request], rights)
        except OSError as error:
            self._channel.close()
            raise Broken(f"the zygote is gone: {error}") from error
        finally:
            theirs.close()

    def __enter__(self) -> ChildRun:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close our end of the channel. Not before the child's end: its last words would break its pipe."""
        self._channel.close()

    def send(self, message: Any) -> None:
        """Send one message; that nobody reads it any more shows when an answer is missing."""
        data = frames.pack(message)
        try:
            sent = self._send_at_once(data)
            if sent < len(data):
                self._channel.settimeout(self._time_left_s())
                self._channel.sendall(data[sent:])
        except TimeoutError as error:
            raise Broken("a child neither read its input nor was ended at its limits") from error
        except OSError:
            return

    def _send_at_once(self, data: bytes) -> int:
        try:
            return self._channel.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def _time_left_s(self) -> float:
        return max(0.001, self._deadline - time.monotonic())

    def _fill(self, num_bytes: int) -> None:
        while len(self._received) < num_bytes:
            self._channel.settimeout(self._time_left_s())
            try:
                chunk = self._channel.recv(_CHUNK)
            except TimeoutError as error:
                raise Broken("a child neither answered nor was ended at its limits") from error
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                raise Closed
            self._received += chunk

    def receive(self) -> list[Any]:
        """Next message of the child, whenever it comes.

        Raises:
            Closed: if there is none.
            Flooded: if it is longer than the limit on output.
            MalformedValue: if it is no message.
        """
        if not self._is_sealed:
            self._fill(1)
            self._unseal()
        self._fill(frames.HEADER.size)
        (length,) = frames.HEADER.unpack_from(self._received)
        if length > self._max_bytes:
            raise Flooded
        self._fill(frames.HEADER.size + length)
        return self._next_message()

    def _unseal(self) -> None:
        if self._received[:1] != frames.SEALED:
            raise Broken("a child could not confine itself")
        del self._received[:1]
        self._is_sealed = True

    def _next_message(self) -> list[Any]:
        (length,) = frames.HEADER.unpack_from(self._received)
        end = frames.HEADER.size + length
        body = bytes(self._received[frames.HEADER.size : end])
        del self._received[:end]
        self.last_length = length
        return values.parse(body, max(values.MAX_PARTS, self._max_bytes >> _BYTES_PER_PART))

    def finish(self, *, patience_s: float | None = None) -> Ending:
        """End of the child; anything still unread is dropped.

        Args:
            patience_s: how long to wait before the child is ended; None leaves that to its limits.
        """
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        if patience_s is not None and not poller.poll(patience_s * 1000):
            self._stop()
        if not poller.poll(self._time_left_s() * 1000):
            raise Broken("the zygote let a run go on past its limits")
        return self._ending()

    def _stop(self) -> None:
        try:
            self._control.send(protocol.STOP)
        except OSError as error:
            raise Broken(f"the zygote is gone: {error}") from error

    def _ending(self) -> Ending:
        try:
            message = self._control.recv(protocol.ENDING.size + 1)
        except OSError as error:
            raise Broken(f"the zygote does not answer: {error}") from error
        if len(message) != protocol.ENDING.size:
            raise Broken("the zygote died")
        ending = Ending(*protocol.ENDING.unpack(message))
        if ending.cause == protocol.NOT_STARTED:
            cause = OSError(ending.wait_status, os.strerror(ending.wait_status))
            raise Broken(explained("a process for a run", cause))
        is_killed = ending.cause == protocol.BY_ITSELF and ending.wait_status == signal.SIGKILL
        if is_killed and not self._can_kill_itself:  # then the host did it, which is no verdict on the code
            raise Broken(
                "a run was killed from outside, as by the kernel for lack of memory; allow fewer or smaller runs"
            )
        return ending

    def collect(self, max_messages: int) -> tuple[Ending, list[bytes], bool]:
        """Everything up to the end of the child: its end, its messages, and whether something is left besides.

        The channel is looked at only if the child has not ended soon: as a rule the trusted side then wakes up once,
        not once for each message.
        """
        ending = self._wait()
        self._drain()
        if not self._is_sealed:
            self._unseal()
        messages: list[bytes] = []
        start, header = 0, frames.HEADER
        while len(self._received) - start >= header.size and len(messages) < max_messages:
            (length,) = header.unpack_from(self._received, start)
            end = start + header.size + length
            if end > len(self._received):
                break
            messages.append(bytes(self._received[start + header.size : end]))
            start = end
        return ending, messages, start != len(self._received)

    def _wait(self) -> Ending:
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        if not poller.poll(_PATIENCE_MS):
            poller.register(self._channel, select.POLLIN)
            is_stopped = False
            while True:
                ready = {descriptor for descriptor, _ in poller.poll(self._time_left_s() * 1000)}
                if not ready:
                    raise Broken("the zygote let a run go on past its limits")
                if self._control.fileno() in ready:
                    break
                if self._read_available() == 0 or is_stopped:
                    poller.unregister(self._channel)
                time.sleep(_PAUSE_S)
                if len(self._received) > self._max_bytes and not is_stopped:
                    self._stop()
                    is_stopped = True
        return self._ending()

    def _read_available(self) -> int:
        """Take what is there; the number of bytes, -1 if there was nothing yet, 0 if the other end is closed."""
        try:
            chunk = self._channel.recv(_CHUNK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return -1
        except ConnectionResetError:
            return 0
        self._received += chunk
        return len(chunk)

    def _drain(self) -> None:
        """Take what the child left behind when it ended, up to what it may send."""
        while self._read_available() == _CHUNK and len(self._received) <= self._max_bytes:
            pass

    @property
    def has_sent_too_much(self) -> bool:
        """Whether more arrived than the limit on output allows."""
        return len(self._received) > self._max_bytes
