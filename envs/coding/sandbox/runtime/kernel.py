"""System calls that the standard library does not offer, with errors raised as OSError."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_KEEPCAPS = 8
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38

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
    """Result of a raw system call; integers are passed as machine words, bytes as a pointer to them."""
    return _checked(_libc.syscall(ctypes.c_long(number), *map(_word, operands)), name)


def prepared(number: int, *operands: Operand) -> Callable[[], int]:
    """A raw system call to make later, and cheaply: what ctypes builds for a call is built now."""
    words = [ctypes.c_long(number), *map(_word, operands)]
    return functools.partial(ctypes.PyDLL(None).syscall, *words)


def prctl(option: int, value: int = 0) -> None:
    zero = ctypes.c_ulong(0)
    _checked(_libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero), f"prctl({option})")


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), f"unshare({flags:#x})")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    text = [None if item is None else os.fsencode(item) for item in (source, target, kind, data)]
    _checked(_libc.mount(text[0], text[1], text[2], ctypes.c_ulong(flags), text[3]), f"mount({target})")


def detach(target: str) -> None:
    """Unmount lazily, so that open files below do not stand in the way."""
    _checked(_libc.umount2(os.fsencode(target), 2), f"umount2({target})")


def address_of(buffer: ctypes.Array[ctypes.c_char]) -> int:
    return ctypes.addressof(buffer)
