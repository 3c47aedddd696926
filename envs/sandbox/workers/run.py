"""Runs of untrusted code. A `ChildRun` exchanges messages with the child process of one run until the child ends."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from .. import values
from ..runtime import frames, protocol
from ..settings import Limits, SandboxError

_GRACE_S: Final = 30.0  # time after a run's limits until a silent worker process (zygote) counts as broken
_PATIENCE_MS: Final = 20
_CHUNK: Final = 1 << 16
_PAUSE_S: Final = 0.001  # a child that writes single bytes must not wake this process for each byte
_BYTES_PER_PART: Final = 4  # as an exponent of 2: one part per 16 bytes of the output limit
_REMEDIES: Final = {
    errno.EMFILE: "this process has too many open files; increase `ulimit -n`, or close files",
    errno.ENFILE: "the machine has too many open files; increase sysctl fs.file-max",
    errno.EAGAIN: "the machine, user or container has too many processes; increase `ulimit -u` or the pids limit",
    errno.ENOMEM: "the machine is out of memory; decrease num_workers",
}


def explained(what: str, error: OSError) -> str:
    """Return an error message: `what` could not be created, the reason, and the fix."""
    return f"{what} could not be created: {_REMEDIES.get(error.errno or 0, str(error))}"


class Broken(SandboxError):
    """Raised if a worker process is unusable. Another worker process may succeed."""


class Closed(Exception):
    """Raised if the child process of a run has closed its channel."""


class Flooded(Exception):
    """Raised if the child process of a run has sent more than the output limit."""


@dataclass(frozen=True)
class Ending:
    """End of a child process: cause, wait status and CPU seconds, as reported by the worker process, its parent."""

    cause: int
    wait_status: int
    cpu_s: float

    @property
    def is_orderly(self) -> bool:
        """True if the child exited with status 0 within its limits."""
        return self.cause == protocol.BY_ITSELF and self.wait_status == 0

    @property
    def was_stopped(self) -> bool:
        return self.cause == protocol.STOPPED

    @property
    def description(self) -> str:
        if os.WIFSIGNALED(self.wait_status):
            return f"ended by {signal.Signals(os.WTERMSIG(self.wait_status)).name}"
        return f"left with exit status {os.WEXITSTATUS(self.wait_status)}"


class ChildRun:
    """Child process of one run. Call `finish` or `collect` for every run: the worker process then accepts a new run."""

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
            raise Broken(f"the worker process (zygote) has ended: {error}") from error
        finally:
            theirs.close()

    def __enter__(self) -> ChildRun:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the channel to the child. Call this method after the child has ended: its later writes would fail."""
        self._channel.close()

    def send(self, message: Any) -> None:
        """Send a message to the child. A closed channel is ignored here, because `receive` detects it."""
        data = frames.pack(message)
        try:
            with suppress(BlockingIOError):
                data = data[self._channel.send(data, socket.MSG_DONTWAIT) :]
            if data:
                self._channel.settimeout(self._time_left_s())
                self._channel.sendall(data)
        except TimeoutError as error:
            raise Broken("a run's process did not read its input and was not killed at its limits") from error
        except OSError:
            return

    def _time_left_s(self) -> float:
        return max(0.001, self._deadline - time.monotonic())

    def _fill(self, num_bytes: int) -> None:
        while len(self._received) < num_bytes:
            self._channel.settimeout(self._time_left_s())
            try:
                chunk = self._channel.recv(_CHUNK)
            except TimeoutError as error:
                raise Broken("a run's process did not reply and was not killed at its limits") from error
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                raise Closed
            self._received += chunk

    def receive(self) -> list[Any]:
        """Return the child's next message. Raise Closed, Flooded (above the output limit) or MalformedValue."""
        if not self._is_sealed:
            self._fill(1)
            self._unseal()
        self._fill(frames.HEADER.size)
        (length,) = frames.HEADER.unpack_from(self._received)
        if length > self._max_bytes:
            raise Flooded
        end = frames.HEADER.size + length
        self._fill(end)
        body = bytes(self._received[frames.HEADER.size : end])
        del self._received[:end]
        self.last_length = length
        return values.parse(body, max(values.MAX_PARTS, self._max_bytes >> _BYTES_PER_PART))

    def _unseal(self) -> None:
        if self._received[:1] != frames.SEALED:
            raise Broken("a run's process could not install its limits and its system call filter")
        del self._received[:1]
        self._is_sealed = True

    def finish(self, *, patience_s: float | None = None) -> Ending:
        """Wait until the child ends. Kill it after `patience_s` seconds (None: at its limits). Drop unread messages."""
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        if patience_s is not None and not poller.poll(patience_s * 1000):
            self._stop()
        if not poller.poll(self._time_left_s() * 1000):
            raise Broken("the worker process (zygote) did not end a run at its limits")
        return self._ending()

    def _stop(self) -> None:
        try:
            self._control.send(protocol.STOP)
        except OSError as error:
            raise Broken(f"the worker process (zygote) has ended: {error}") from error

    def _ending(self) -> Ending:
        try:
            message = self._control.recv(protocol.ENDING.size + 1)
        except OSError as error:
            raise Broken(f"the worker process (zygote) does not reply: {error}") from error
        if len(message) != protocol.ENDING.size:
            raise Broken("the worker process (zygote) died")
        ending = Ending(*protocol.ENDING.unpack(message))
        if ending.cause == protocol.NOT_STARTED:
            cause = OSError(ending.wait_status, os.strerror(ending.wait_status))
            raise Broken(explained("a process for a run", cause))
        is_killed = ending.cause == protocol.BY_ITSELF and ending.wait_status == signal.SIGKILL
        if is_killed and not self._can_kill_itself:  # killed by the system, so the code is not the cause
            raise Broken("a run was killed by the host, possibly for lack of memory; decrease num_workers")
        return ending

    def collect(self, max_messages: int) -> tuple[Ending, list[bytes], bool]:
        """Wait until the child ends. Return its `Ending`, its messages, and True if it sent bytes after these messages.

        The channel is not read in the first 20 ms, so that most runs wake this process once, not once per message.
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
                    raise Broken("the worker process (zygote) did not end a run at its limits")
                if self._control.fileno() in ready:
                    break
                if self._read_available() == 0 or is_stopped:
                    poller.unregister(self._channel)
                time.sleep(_PAUSE_S)
                if self.has_sent_too_much and not is_stopped:
                    self._stop()
                    is_stopped = True
        return self._ending()

    def _read_available(self) -> int:
        """Read the channel without waiting. Return the number of bytes, -1 if none are available, 0 if it is closed."""
        try:
            chunk = self._channel.recv(_CHUNK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return -1
        except ConnectionResetError:
            return 0
        self._received += chunk
        return len(chunk)

    def _drain(self) -> None:
        while self._read_available() == _CHUNK and not self.has_sent_too_much:
            pass

    @property
    def has_sent_too_much(self) -> bool:
        return len(self._received) > self._max_bytes
