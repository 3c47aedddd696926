"""Numbers of the system calls that a run may make, for each machine that is supported.

The list is an allow list: whatever it does not name is refused. It is what CPython needs to compute, to import a
module, to run an asyncio loop with no file and no address to talk to, and to end. It holds no call that creates a
process, names a socket address, writes a path, signals, or changes a limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


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
