"""The filter programs follow the rules for every call number, in a small BPF interpreter."""

import errno
import struct
import unittest.mock

import pytest

from collm.envs.sandbox.confinement import seccomp
from collm.envs.sandbox.confinement.seccomp import MACHINES, Machine, filters, program, rules

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
REFUSED = ERRNO | errno.EPERM


def outcome(code: bytes, arch: int, number: int, arguments: tuple[int, ...] = (0,) * 6) -> int:
    data = struct.pack("<IIQ6Q", number, arch, 0, *arguments)
    position, accumulator = 0, 0
    while True:
        kind, if_true, if_false, operand = struct.unpack_from("<HBBI", code, 8 * position)
        position += 1
        if kind == 0x06:
            return operand
        if kind == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, operand)
        elif kind == 0x54:
            accumulator &= operand
        elif kind == 0x05:
            position += operand
        else:
            holds = accumulator == operand if kind == 0x15 else accumulator >= operand
            position += if_true if holds else if_false


def both(machine: Machine, **options: bool) -> tuple[bytes, bytes]:
    options = {"allow_paths": True, "allow_threads": False, "allow_uname": True} | options
    name = next(name for name, known in MACHINES.items() if known is machine)
    with unittest.mock.patch("os.uname", lambda: unittest.mock.Mock(machine=name)):
        made = filters(**options)
    return made.zygote, made.run


def run_outcome(machine: Machine, number: int, arguments: tuple[int, ...] = (0,) * 6, **options: bool) -> int:
    results = [outcome(code, machine.audit_arch, number, arguments) for code in both(machine, **options)]
    return next((result for result in results if result != ALLOW), ALLOW)


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> Machine:
    return MACHINES[request.param]


def test_only_named_calls_are_allowed_and_what_the_zygote_needs_is_taken_back(machine: Machine) -> None:
    allowed = {number for number in range(600) if run_outcome(machine, number, (1, 0, 0, 0, 0, 0)) == ALLOW}
    assert {machine.numbers["read"], machine.numbers["openat"]} <= allowed <= set(machine.numbers.values())
    for name in ("kill", "wait4", "pidfd_open", "recvmsg", "prctl", "seccomp", "clone"):
        assert outcome(both(machine)[0], machine.audit_arch, machine.numbers[name]) == ALLOW, name
        assert run_outcome(machine, machine.numbers[name]) == REFUSED, name


def test_arguments_decide_where_a_call_has_two_faces(machine: Machine) -> None:
    calls = [
        ("socketpair", (1, 1, 0, 0, 0, 0), (2, 1, 0, 0, 0, 0)),
        ("sendto", (3, 9, 1, 0, 0, 0), (3, 9, 1, 0, 1 << 40, 16)),
        ("prlimit64", (0, 7, 0, 9, 0, 0), (0, 7, 9, 0, 0, 0), (1, 7, 0, 9, 0, 0)),
        ("fcntl", (1, 3, 0, 0, 0, 0), (1, 4, 0, 0, 0, 0)),
        # SO_PEERCRED, SO_PEERPIDFD, ...
        ("getsockopt", (3, 1, 4, 0, 0, 0), *((3, *o, 0, 0, 0) for o in ((1, 17), (1, 77), (1, 59), (6, 4), (41, 3)))),
    ]
    for name, allowed, *refused in calls:
        assert run_outcome(machine, machine.numbers[name], allowed) == ALLOW
        assert all(run_outcome(machine, machine.numbers[name], each) == REFUSED for each in refused)
    assert run_outcome(machine, machine.numbers["clone3"]) == ERRNO | errno.ENOSYS


def test_threads_and_paths_are_options_and_foreign_calls_kill(machine: Machine) -> None:
    clone, thread = machine.numbers["clone"], 0x100 | 0x800 | 0x10000
    assert run_outcome(machine, clone, (thread | 0x400, 0, 0, 0, 0, 0), allow_threads=True) == ALLOW
    assert run_outcome(machine, clone, (17, 0, 0, 0, 0, 0), allow_threads=True) == REFUSED
    assert run_outcome(machine, clone, (thread, 0, 0, 0, 0, 0)) == REFUSED
    assert run_outcome(machine, machine.numbers["openat"], allow_paths=False) == REFUSED
    assert run_outcome(machine, machine.numbers["uname"]) == ALLOW
    assert run_outcome(machine, machine.numbers["uname"], allow_uname=False) == REFUSED
    run_rules = rules(machine, allow_paths=True, allow_threads=False, allow_uname=True)
    by_rules = program(machine, run_rules, seccomp.REFUSE)
    assert outcome(by_rules, 0x40000003, 3) == KILL
    for number in (0x40000000, 0x40000029, 1 << 20, (1 << 32) - 1):
        assert outcome(by_rules, machine.audit_arch, number) == REFUSED
