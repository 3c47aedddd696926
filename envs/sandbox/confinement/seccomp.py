"""Seccomp filters, which are lists of allowed system calls, compiled to classic BPF.

A compiled filter is a binary search over call numbers. When a filter is installed, the kernel evaluates the filter for
all call numbers. A binary search makes this several times faster than a list of comparisons.
"""

from __future__ import annotations

import errno
import os
import struct
from dataclasses import dataclass
from typing import Final

from ..settings import SandboxUnavailable


@dataclass(frozen=True)
class Machine:
    """System call table of a processor architecture."""

    audit_arch: int  # AUDIT_ARCH_* constant of the native call table. A call through another table kills the process.
    numbers: dict[str, int]  # numbers of the system calls, by name


# name: (x86_64, aarch64)
_SHARED: Final = {
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67), "pwrite64": (18, 68),
    "close": (3, 57), "fstat": (5, 80), "lseek": (8, 62), "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215),
    "brk": (12, 214), "mremap": (25, 216), "madvise": (28, 233), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139), "sigaltstack": (131, 132), "dup": (32, 23), "dup3": (292, 24), "pipe2": (293, 59),
    "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178), "getuid": (102, 174), "geteuid": (107, 175),
    "getgid": (104, 176), "getegid": (108, 177), "exit": (60, 93), "exit_group": (231, 94),
    "gettimeofday": (96, 169), "getrusage": (98, 165), "times": (100, 153), "futex": (202, 98),
    "sched_yield": (24, 124), "sched_getaffinity": (204, 123), "set_tid_address": (218, 96),
    "set_robust_list": (273, 99), "rseq": (334, 293), "restart_syscall": (219, 128), "clock_gettime": (228, 113),
    "clock_getres": (229, 114), "clock_nanosleep": (230, 115), "nanosleep": (35, 101), "getitimer": (36, 102),
    "setitimer": (38, 103), "getcpu": (309, 168), "getrandom": (318, 278), "pselect6": (270, 72), "ppoll": (271, 73),
    "epoll_create1": (291, 20), "epoll_ctl": (233, 21), "epoll_pwait": (281, 22), "epoll_pwait2": (441, 441),
    "recvfrom": (45, 207), "shutdown": (48, 210), "getsockname": (51, 204),
}  # fmt: skip
_SHARED_PATHS: Final = {
    "openat": (257, 56), "newfstatat": (262, 79), "statx": (332, 291), "faccessat": (269, 48),
    "faccessat2": (439, 439), "readlinkat": (267, 78), "getdents64": (217, 61), "getcwd": (79, 17),
}  # fmt: skip
_FILTERED: Final = {
    "ioctl": (16, 29), "fcntl": (72, 25), "prlimit64": (302, 261), "socketpair": (53, 199), "sendto": (44, 206),
    "clone": (56, 220), "clone3": (435, 435), "getsockopt": (55, 209), "uname": (63, 160),
}  # fmt: skip
_SUPERVISION: Final = {
    "wait4": (61, 260), "kill": (62, 129), "pidfd_open": (434, 434), "recvmsg": (47, 212), "prctl": (157, 167),
    "seccomp": (317, 277),
}  # fmt: skip
_X86_64_ONLY: Final = {
    "poll": 7, "select": 23, "dup2": 33, "pause": 34, "alarm": 37, "time": 201, "epoll_wait": 232, "epoll_create": 213,
}  # fmt: skip
_X86_64_ONLY_PATHS: Final = {"open": 2, "stat": 4, "lstat": 6, "access": 21, "readlink": 89}


def _column(table: dict[str, tuple[int, int]], column: int) -> dict[str, int]:
    return {name: numbers[column] for name, numbers in table.items()}


_EVERY: Final = {**_SHARED, **_SHARED_PATHS, **_FILTERED, **_SUPERVISION}
MACHINES: Final = {
    "x86_64": Machine(0xC000003E, {**_column(_EVERY, 0), **_X86_64_ONLY, **_X86_64_ONLY_PATHS}),
    "aarch64": Machine(0xC00000B7, _column(_EVERY, 1)),
}
ALWAYS_ALLOWED: Final = frozenset(_SHARED) | frozenset(_X86_64_ONLY)
PATH_CALLS: Final = frozenset(_SHARED_PATHS) | frozenset(_X86_64_ONLY_PATHS)
SUPERVISION_CALLS: Final = frozenset(_SUPERVISION) | {"clone", "prlimit64"}
"""Additional system calls that a worker process needs to start, watch and end runs."""

ALLOW = 0x7FFF0000
_KILL_PROCESS = 0x80000000
_ERRNO = 0x00050000
REFUSE = _ERRNO | errno.EPERM
_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_JUMP, _JUMP_EQUAL, _JUMP_AT_LEAST = 0x05, 0x15, 0x35
_LONGEST_JUMP = 255

_TCGETS, _FIONBIO, _FIOCLEX = 0x5401, 0x5421, 0x5451
_F_DUPFD, _F_GETFD, _F_SETFD, _F_GETFL, _F_DUPFD_CLOEXEC = 0, 1, 2, 3, 1030
_SOL_SOCKET, _SO_TYPE, _SO_ERROR, _SO_PROTOCOL, _SO_DOMAIN = 1, 3, 4, 38, 39
_THREAD_FLAGS = 0x100 | 0x800 | 0x10000  # CLONE_VM | CLONE_SIGHAND | CLONE_THREAD


@dataclass(frozen=True)
class OneOf:
    """Condition: the low 32 bits of a system call argument are in `values`. The kernel ignores the high 32 bits."""

    argument: int
    values: tuple[int, ...]


@dataclass(frozen=True)
class Null:
    """Condition: a pointer argument of a system call is null."""

    argument: int


@dataclass(frozen=True)
class AllBits:
    """Condition: all bits of `bits` are set in a system call argument."""

    argument: int
    bits: int


Condition = OneOf | Null | AllBits
Rule = int | tuple[Condition, ...]  # return value of the filter, or conditions that must all hold


def rules(machine: Machine, *, allow_paths: bool, allow_threads: bool, allow_uname: bool) -> dict[int, Rule]:
    """Return the filter rules by system call number. System calls without a rule are refused."""
    numbers = machine.numbers
    allowed = ALWAYS_ALLOWED | (PATH_CALLS if allow_paths else frozenset())
    by_number: dict[int, Rule] = {numbers[name]: ALLOW for name in allowed if name in numbers}
    by_number[numbers["ioctl"]] = (OneOf(1, (_TCGETS, _FIONBIO, _FIOCLEX)),)
    # F_SETFL is refused: it changes flags of files that the worker process also has open, and so affects later runs.
    by_number[numbers["fcntl"]] = (OneOf(1, (_F_DUPFD, _F_GETFD, _F_SETFD, _F_GETFL, _F_DUPFD_CLOEXEC)),)
    by_number[numbers["prlimit64"]] = (
        OneOf(0, (0,)),
        Null(2),
    )  # only reads limits: a process that lowers its limit could be killed as if by the worker process
    by_number[numbers["socketpair"]] = (OneOf(0, (1,)),)  # AF_UNIX, used by asyncio
    by_number[numbers["sendto"]] = (Null(4),)  # no address: data goes only to the other end of a socket pair
    # SO_PEERCRED and SO_PEERPIDFD are refused, because they reveal the host process.
    kinds = (_SO_TYPE, _SO_ERROR, _SO_PROTOCOL, _SO_DOMAIN)
    by_number[numbers["getsockopt"]] = (OneOf(1, (_SOL_SOCKET,)), OneOf(2, kinds))
    if allow_uname:  # the process is in a namespace with another host name
        by_number[numbers["uname"]] = ALLOW
    if allow_threads:
        by_number[numbers["clone"]] = (AllBits(0, _THREAD_FLAGS),)
    by_number[numbers["clone3"]] = _ERRNO | errno.ENOSYS  # a filter cannot read its flags; libc then uses clone
    return by_number


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, operand)


def _test(condition: Condition, num_following: int) -> list[bytes]:
    """Compile a condition to BPF. If the condition does not hold, the BPF code skips `num_following` instructions."""
    offset = 16 + 8 * condition.argument
    load = _instruction(_LOAD, offset)
    if isinstance(condition, OneOf):
        *others, last = condition.values
        hits = [_instruction(_JUMP_EQUAL, value, if_true=len(others) - i) for i, value in enumerate(others)]
        return [load, *hits, _instruction(_JUMP_EQUAL, last, if_false=num_following)]
    if isinstance(condition, Null):
        high = [_instruction(_LOAD, offset + 4), _instruction(_JUMP_EQUAL, 0, if_false=num_following)]
        return [load, _instruction(_JUMP_EQUAL, 0, if_false=num_following + len(high)), *high]
    masked = _instruction(_AND, condition.bits)
    return [load, masked, _instruction(_JUMP_EQUAL, condition.bits, if_false=num_following)]


def _leaf(rule: Rule) -> list[bytes]:
    if isinstance(rule, int):
        return [_instruction(_RETURN, rule)]
    code = [_instruction(_RETURN, ALLOW)]
    for condition in reversed(rule):
        code = [*_test(condition, len(code)), *code]
    return [*code, _instruction(_RETURN, REFUSE)]


def _tree(segments: list[tuple[int, Rule]]) -> list[bytes]:
    """Compile a binary search over ranges of system call numbers to BPF. Each segment is (first number, rule)."""
    if len(segments) == 1:
        return _leaf(segments[0][1])
    middle = len(segments) // 2
    below, above = _tree(segments[:middle]), _tree(segments[middle:])
    first = segments[middle][0]
    if len(below) <= _LONGEST_JUMP:
        return [_instruction(_JUMP_AT_LEAST, first, if_true=len(below)), *below, *above]
    over = [_instruction(_JUMP_AT_LEAST, first, if_false=1), _instruction(_JUMP, len(below))]
    return [*over, *below, *above]


def program(machine: Machine, by_number: dict[int, Rule], default: Rule) -> bytes:
    """Compile filter rules to BPF. `default` is the rule of system calls that are not in `by_number`."""
    segments: list[tuple[int, Rule]] = []
    for number in range(max(by_number) + 2):
        rule = by_number.get(number, default)
        if not segments or segments[-1][1] != rule:
            segments.append((number, rule))
    prologue = [
        _instruction(_LOAD, 4),
        _instruction(_JUMP_EQUAL, machine.audit_arch, if_true=1),
        _instruction(_RETURN, _KILL_PROCESS),
        _instruction(_LOAD, 0),
    ]
    return b"".join([*prologue, *_tree(segments)])


@dataclass(frozen=True)
class Filters:
    """Compiled seccomp filters of system calls: one for the worker process (zygote), and one that each run adds."""

    zygote: bytes  # allows the system calls that runs or the worker process need, and refuses other calls
    run: bytes  # refuses the system calls that only the worker process needs. Short, because each run installs it.


def filters(*, allow_paths: bool, allow_threads: bool, allow_uname: bool) -> Filters:
    """Return the filters for this machine. Raise SandboxUnavailable if the machine's architecture is not supported."""
    architecture = os.uname().machine
    if architecture not in MACHINES:
        raise SandboxUnavailable(f"the machine's architecture {architecture} must be one of {list(MACHINES)}")
    machine = MACHINES[architecture]
    of_run = rules(machine, allow_paths=allow_paths, allow_threads=allow_threads, allow_uname=allow_uname)
    supervision = [machine.numbers[name] for name in SUPERVISION_CALLS]
    of_zygote = of_run | dict.fromkeys(supervision, ALLOW)
    taken_back = {number: of_run.get(number, REFUSE) for number in supervision}
    return Filters(program(machine, of_zygote, REFUSE), program(machine, taken_back, ALLOW))
