"""Functions for system calls that the standard library lacks. They raise OSError if a call fails."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
RLIMIT_FSIZE, RLIMIT_STACK, RLIMIT_CORE, RLIMIT_NPROC, RLIMIT_NOFILE, RLIMIT_MEMLOCK, RLIMIT_AS = 1, 3, 4, 6, 7, 8, 9
UNLIMITED = (1 << 64) - 1

_SECCOMP = {"x86_64": 317, "aarch64": 277}
_libc = ctypes.CDLL(None, use_errno=True)
Operand = int | bytes | None


def _checked(result: int, name: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def _word(value: Operand) -> object:
    return ctypes.c_long(value) if isinstance(value, int) else ctypes.c_char_p(value)


def syscall(name: str, number: int, *operands: Operand) -> int:
    """Make a system call. Integers are passed as machine words, bytes as pointers."""
    return _checked(_libc.syscall(ctypes.c_long(number), *map(_word, operands)), name)


def prctl(option: int, value: int = 0) -> None:
    zero = ctypes.c_ulong(0)
    _checked(_libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero), f"prctl({option})")


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), f"unshare({flags:#x})")


def set_host_name(name: str) -> None:
    text = os.fsencode(name)
    _checked(_libc.sethostname(text, ctypes.c_size_t(len(text))), "sethostname")
    _checked(_libc.setdomainname(text, ctypes.c_size_t(len(text))), "setdomainname")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    text = [None if item is None else os.fsencode(item) for item in (source, target, kind, data)]
    _checked(_libc.mount(text[0], text[1], text[2], ctypes.c_ulong(flags), text[3]), f"mount({target})")


def detach(target: str) -> None:
    """Unmount a path lazily, so that open files do not prevent the unmount."""
    _checked(_libc.umount2(os.fsencode(target), 2), f"umount2({target})")


def limits(what: int) -> tuple[int, int]:
    """Return the soft and the hard limit of a resource. Importing the module `resource` would make forks slower."""
    pair = (ctypes.c_ulong * 2)()
    _checked(_libc.getrlimit(what, pair), f"getrlimit({what})")
    return pair[0], pair[1]


def set_limits(what: int, soft: int, hard: int) -> None:
    pair = (ctypes.c_ulong * 2)(soft, hard)
    _checked(_libc.setrlimit(what, pair), f"setrlimit({what})")


def filter_installer(program: bytes) -> Callable[[], None]:
    """Return a function that installs a compiled seccomp filter. The ctypes objects are created once, for all runs."""
    code = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(code)))
    set_mode_filter, keep_speculation = ctypes.c_long(1), ctypes.c_long(4)
    number = ctypes.c_long(_SECCOMP[os.uname().machine])
    call = ctypes.PyDLL(None).syscall

    def install(_: object = code) -> None:  # keeps `code` alive: the header points into it
        if call(number, set_mode_filter, keep_speculation, header) != 0:
            raise OSError("the kernel refused a seccomp filter")

    return install
