"""The system call filter of a run: an allow list compiled to classic BPF.

The program is a decision tree over call numbers rather than a list of comparisons. The kernel evaluates a new filter
once for every number it knows, at install time and so in every run, and a tree makes that several times cheaper.
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
    """One instruction set as the kernel's filter sees it."""

    audit_arch: int
    """AUDIT_ARCH_* of the native system call table; calls through any other table kill the caller."""
    numbers: dict[str, int]
    """Name to number; older calls that a newer one replaces exist on x86_64 only."""


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
"""What the zygote needs, besides what a run may do, to start runs, watch them and end them."""


_ALLOW = 0x7FFF0000
_KILL_PROCESS = 0x80000000
_ERRNO = 0x00050000
_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_JUMP, _JUMP_EQUAL, _JUMP_AT_LEAST = 0x05, 0x15, 0x35
_LONGEST_JUMP = 255

_TCGETS, _FIONBIO, _FIOCLEX = 0x5401, 0x5421, 0x5451
_F_DUPFD, _F_GETFD, _F_SETFD, _F_GETFL, _F_DUPFD_CLOEXEC = 0, 1, 2, 3, 1030
_SOL_SOCKET, _SO_TYPE, _SO_ERROR, _SO_PROTOCOL, _SO_DOMAIN = 1, 3, 4, 38, 39
_THREAD_FLAGS = 0x100 | 0x800 | 0x10000  # CLONE_VM | CLONE_SIGHAND | CLONE_THREAD


@dataclass(frozen=True)
class Refuse:
    """Fail with this errno."""

    error: int = errno.EPERM


@dataclass(frozen=True)
class Allow:
    """Let the call through."""


@dataclass(frozen=True)
class OneOf:
    """The low word of an argument, all that the kernel reads of it, is one of these values."""

    argument: int
    values: tuple[int, ...]


@dataclass(frozen=True)
class Null:
    """A pointer argument is null."""

    argument: int


@dataclass(frozen=True)
class AllBits:
    """All of these bits of an argument are set."""

    argument: int
    bits: int


Condition = OneOf | Null | AllBits
Rule = Refuse | Allow | tuple[Condition, ...]
"""A tuple lets the call through if every condition holds."""


def rules(machine: Machine, *, allow_paths: bool, allow_threads: bool, allow_uname: bool) -> dict[int, Rule]:
    """Rule of each call number that is not plainly refused."""
    numbers = machine.numbers
    allowed = ALWAYS_ALLOWED | (PATH_CALLS if allow_paths else frozenset())
    by_number: dict[int, Rule] = {numbers[name]: Allow() for name in allowed if name in numbers}
    by_number[numbers["ioctl"]] = (OneOf(1, (_TCGETS, _FIONBIO, _FIOCLEX)),)
    # Not F_SETFL: the flags of an open file outlive the run where the zygote holds the same file.
    by_number[numbers["fcntl"]] = (OneOf(1, (_F_DUPFD, _F_GETFD, _F_SETFD, _F_GETFL, _F_DUPFD_CLOEXEC)),)
    by_number[numbers["prlimit64"]] = (OneOf(0, (0,)), Null(2))  # read its own: lowering one could look like our kill
    by_number[numbers["socketpair"]] = (OneOf(0, (1,)),)  # AF_UNIX, which asyncio wakes itself through
    by_number[numbers["sendto"]] = (Null(4),)  # no address, so only to the other end of such a pair
    # Not the peer's: its identity is that of the trusted process, and a handle on that process is to be had as well.
    kinds = (_SO_TYPE, _SO_ERROR, _SO_PROTOCOL, _SO_DOMAIN)
    by_number[numbers["getsockopt"]] = (OneOf(1, (_SOL_SOCKET,)), OneOf(2, kinds))
    if allow_uname:  # where the host's name is not the real one
        by_number[numbers["uname"]] = Allow()
    if allow_threads:
        by_number[numbers["clone"]] = (AllBits(0, _THREAD_FLAGS),)
    by_number[numbers["clone3"]] = Refuse(errno.ENOSYS)  # its flags lie in memory; libc then falls back to clone
    return by_number


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, operand)


def _argument_offset(argument: int) -> int:
    return 16 + 8 * argument


def _test(condition: Condition, num_following: int) -> list[bytes]:
    """Falls through if the condition holds; else jumps over what follows up to the refusal at the end of the leaf."""
    offset = _argument_offset(condition.argument)
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
    allow = _instruction(_RETURN, _ALLOW)
    if isinstance(rule, Allow):
        return [allow]
    if isinstance(rule, Refuse):
        return [_instruction(_RETURN, _ERRNO | rule.error)]
    code = [allow]
    for condition in reversed(rule):
        code = [*_test(condition, len(code)), *code]
    return [*code, *_leaf(Refuse())]


def _tree(segments: list[tuple[int, Rule]]) -> list[bytes]:
    """Decision tree over segments (first number, rule), each reaching to the next segment's first number."""
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
    """BPF program: the rules, the default for every other number, and death to callers of a foreign call table."""
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
    """Two programs, of which a run is subject to both."""

    zygote: bytes
    """Allows what a run may do and what the zygote needs; everything else is refused."""
    run: bytes
    """Refuses what only the zygote needs. It is short, and each run pays for its length when it installs it."""


def filters(*, allow_paths: bool, allow_threads: bool, allow_uname: bool) -> Filters:
    """Filters for this machine.

    Raises:
        SandboxUnavailable: if there is no system call table for it.
    """
    architecture = os.uname().machine
    if architecture not in MACHINES:
        raise SandboxUnavailable(f"no system call table for {architecture}; there is one for each of {list(MACHINES)}")
    machine = MACHINES[architecture]
    of_run = rules(machine, allow_paths=allow_paths, allow_threads=allow_threads, allow_uname=allow_uname)
    supervision = [machine.numbers[name] for name in SUPERVISION_CALLS]
    of_zygote = of_run | {number: Allow() for number in supervision}
    taken_back = {number: of_run.get(number, Refuse()) for number in supervision}
    return Filters(program(machine, of_zygote, Refuse()), program(machine, taken_back, Allow()))
