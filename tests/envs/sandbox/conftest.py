"""Sandboxes of each tier, and targets outside of them that no attack may reach."""

import os
import secrets
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from collm.envs.sandbox import Case, Limits, Report, Sandbox, SandboxUnavailable

LIMITS = Limits(cpu_s=0.3, wall_s=15, memory_mb=96)


@dataclass(frozen=True)
class Outside:
    canary: Path
    secret: str
    nonce: str
    listener: socket.socket
    abstract: socket.socket

    def header(self) -> str:
        """Python source with the names of the targets."""
        names = {
            "CANARY": str(self.canary),
            "NONCE": self.nonce,
            "PORT": self.listener.getsockname()[1],
            "ABSTRACT": self.abstract.getsockname().decode(),
        }
        return "".join(f"{name} = {value!r}\n" for name, value in names.items())

    def damage(self) -> list[str]:
        """Effects of successful attacks."""
        found = []
        if self.canary.read_text() != self.secret:
            found.append("the canary was overwritten")
        for listener in (self.listener, self.abstract):
            try:
                listener.accept()[0].close()
                found.append(f"a connection to {listener.getsockname()!r}")
            except BlockingIOError:
                continue
        folders = ["/", "/tmp", "/var/tmp", "/dev/shm", "/root", "/etc", os.getcwd(), str(self.canary.parent)]
        found += [str(file) for folder in folders for file in Path(folder).glob(f"*{self.nonce}*")]
        return found


@pytest.fixture(scope="session")
def outside() -> Iterator[Outside]:
    """A world-writable file and two listeners."""
    nonce = secrets.token_hex(8)
    with tempfile.TemporaryDirectory(prefix="outside-") as folder, socket.socket() as listener:
        Path(folder).chmod(0o777)
        canary = Path(folder, "canary")
        secret = "canary " + secrets.token_hex(16)
        canary.write_text(secret)
        canary.chmod(0o666)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        with socket.socket(socket.AF_UNIX) as abstract:
            abstract.bind(f"\0canary-{nonce}")
            abstract.listen()
            abstract.setblocking(False)
            yield Outside(canary, secret, nonce, listener, abstract)


@pytest.fixture(scope="session")
def sandbox_of() -> Iterator[Callable[[str], Sandbox]]:
    """The sandbox of a tier. Skips the test if the machine lacks the tier."""
    made: dict[str, Sandbox] = {}

    def get(tier: str) -> Sandbox:
        if tier not in made:
            made[tier] = Sandbox(1, isolation=tier)
        try:
            made[tier].start()
        except SandboxUnavailable as error:
            pytest.skip(f"tier {tier}: {error}")
        return made[tier]

    yield get
    for sandbox in made.values():
        sandbox.close()


@pytest.fixture(scope="session")
def sandbox(sandbox_of: Callable[[str], Sandbox]) -> Sandbox:
    """A sandbox of the strongest tier of this machine."""
    return sandbox_of("auto")


@pytest.fixture
def attack(sandbox_of: Callable[[str], Sandbox], outside: Outside) -> Callable[..., Report]:
    """Runs an attack in a tier. Asserts that it had no effect and that the same worker still judges correctly."""

    def run(tier: str, code: str, limits: Limits = LIMITS) -> Report:
        sandbox = sandbox_of(tier)
        workers = sandbox.process_ids
        answers = [secrets.token_hex(16) for _ in range(3)]  # nothing but a leak or a forgery can pass
        cases = [Case((number,), answer) for number, answer in enumerate(answers)]
        verdict = sandbox.check(outside.header() + code, "f", cases, limits=limits)
        report = verdict.report
        assert not any(verdict.passed)
        assert not any(secret in repr(report) for secret in (*answers, outside.secret))
        assert outside.damage() == []
        honest = sandbox.check("def f(x):\n    return [x, str(x)]", "f", [Case((7,), [7, "7"]), Case((8,), [8, "8"])])
        assert honest.all_passed
        assert sandbox.process_ids == workers, "the worker had to be replaced"
        return report

    return run
