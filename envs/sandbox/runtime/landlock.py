"""Landlock: from here on this process and its children reach only the paths named."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence

from . import kernel

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # the same numbers on every machine
_ASK_VERSION = 1
_PATH_BENEATH = 1
_WRITE_FILE, _READ_FILE, _READ_DIRECTORY = 1 << 1, 1 << 2, 1 << 3
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_LATEST_FILE_RIGHTS = (1 << 16) - 1
_TCP_BIND_AND_CONNECT = 3
_ABSTRACT_SOCKETS_AND_SIGNALS = 3


def version() -> int:
    """Landlock's ABI here; 0 where the kernel has none or it is switched off."""
    try:
        return kernel.syscall("landlock_create_ruleset", _CREATE, None, 0, _ASK_VERSION)
    except OSError:
        return 0


def _rule(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:  # a link to something that this jail does not show
        return
    try:
        body = struct.pack("=Qi", rights, descriptor)
        kernel.syscall("landlock_add_rule", _ADD_RULE, ruleset, _PATH_BENEATH, body, 0)
    finally:
        os.close(descriptor)


def restrict(trees: Sequence[str], files: Sequence[str], listable: Sequence[str], devices: Sequence[str]) -> None:
    """Leave only: reading below `trees`, reading `files`, listing `listable`, reading and writing `devices`.

    Raises:
        OSError: if the kernel refuses; nothing is restricted then.
    """
    abi = version()
    handled = _FILE_RIGHTS.get(abi, _LATEST_FILE_RIGHTS)
    fields = [handled, _TCP_BIND_AND_CONNECT, _ABSTRACT_SOCKETS_AND_SIGNALS]
    num_fields = (
        1 if abi < 4 else 2 if abi < 6 else 3
    )  # an older kernel refuses a longer struct with bits it does not know
    attributes = struct.pack(f"{num_fields}Q", *fields[:num_fields])
    ruleset = kernel.syscall("landlock_create_ruleset", _CREATE, attributes, len(attributes), 0)
    try:
        for path in trees:
            _rule(ruleset, path, _READ_FILE | _READ_DIRECTORY)
        for path in files:
            _rule(ruleset, path, _READ_FILE)
        for path in listable:
            _rule(ruleset, path, _READ_DIRECTORY)
        for path in devices:
            _rule(ruleset, path, _READ_FILE | _WRITE_FILE)
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        kernel.syscall("landlock_restrict_self", _RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)
