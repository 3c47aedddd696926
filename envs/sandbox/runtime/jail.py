"""Confinement of a worker process (parent of the runs): namespaces, root directory, Landlock, user and limits."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence

from . import kernel

_NEW_MOUNTS, _NEW_CGROUP, _NEW_HOST_NAME, _NEW_IPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
_NEW_USERS, _NEW_PROCESSES, _NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000
_READ_ONLY, _NO_SETUID, _NO_DEVICES, _NO_EXECUTE = 1, 2, 4, 8
_REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 32, 4096, 16384, 1 << 18
_LOCKED_FLAGS = {
    os.ST_NOSUID: _NO_SETUID,
    os.ST_NODEV: _NO_DEVICES,
    os.ST_NOEXEC: _NO_EXECUTE,
    os.ST_NOATIME: 1024,
    os.ST_RELATIME: 1 << 21,
}
_CAPSET = {"x86_64": 126, "aarch64": 91}
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPABILITY_VERSION_3 = 0x20080522
_NUM_CAPABILITIES = 64
_LANDLOCK_CREATE, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT = 444, 445, 446  # on every architecture
_ASK_VERSION = 1
_PATH_BENEATH = 1
_WRITE_FILE, _READ_FILE, _READ_DIRECTORY = 1 << 1, 1 << 2, 1 << 3
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_LATEST_FILE_RIGHTS = (1 << 16) - 1
_TCP_BIND_AND_CONNECT = 3
_ABSTRACT_SOCKETS_AND_SIGNALS = 3


def enter_namespaces() -> None:
    """Enter new namespaces for users, mounts, processes (from the next fork), network, IPC, host name and cgroups."""
    kernel.unshare(
        _NEW_USERS | _NEW_MOUNTS | _NEW_PROCESSES | _NEW_NETWORK | _NEW_IPC | _NEW_HOST_NAME | _NEW_CGROUP,
    )


def _bind_read_only(source: str, target: str) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb"):
            pass
    kernel.mount(source, target, None, _BIND | _RECURSIVE)
    # The flags of the outer mount are locked: the kernel refuses a remount without them.
    present = os.statvfs(target).f_flag
    kept = sum(flag for seen, flag in _LOCKED_FLAGS.items() if present & seen)
    kernel.mount(None, target, None, _BIND | _REMOUNT | _READ_ONLY | _NO_SETUID | kept)


def build_root(visible: list[str], hidden: list[str]) -> None:
    """Replace the root directory by a read-only one with `visible` and /dev/null. `hidden` folders appear empty."""
    base = "/tmp"  # any directory; it is covered in this mount namespace only
    kernel.mount(None, "/", None, _RECURSIVE | _PRIVATE)
    kernel.mount("jail", base, "tmpfs", _NO_SETUID | _NO_DEVICES, "size=1m,mode=755")
    for path in visible:
        if os.path.islink(path):
            os.makedirs(base + os.path.dirname(path), exist_ok=True)
            os.symlink(os.readlink(path), base + path)
        else:
            _bind_read_only(path, base + path)
    for path in hidden:
        kernel.mount("hidden", base + path, "tmpfs", _READ_ONLY | _NO_SETUID | _NO_DEVICES, "size=4k,mode=555")
    os.makedirs(base + "/dev", exist_ok=True)
    with open(base + "/dev/null", "wb"):
        pass
    kernel.mount("/dev/null", base + "/dev/null", None, _BIND)
    os.chdir(base)
    kernel.syscall("pivot_root", _PIVOT_ROOT[os.uname().machine], b".", b".")
    kernel.detach(".")
    os.chdir("/")
    kernel.mount(None, "/", None, _REMOUNT | _BIND | _READ_ONLY | _NO_SETUID | _NO_DEVICES)


def landlock_version() -> int:
    """Return the kernel's Landlock ABI version, or 0 if Landlock is missing or disabled."""
    try:
        return kernel.syscall("landlock_create_ruleset", _LANDLOCK_CREATE, None, 0, _ASK_VERSION)
    except OSError:
        return 0


def _rule(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:  # a link to a path outside of the jail
        return
    try:
        body = struct.pack("=Qi", rights, descriptor)
        kernel.syscall("landlock_add_rule", _LANDLOCK_ADD_RULE, ruleset, _PATH_BENEATH, body, 0)
    finally:
        os.close(descriptor)


def restrict_paths(trees: Sequence[str], files: Sequence[str], listable: Sequence[str], devices: Sequence[str]) -> None:
    """Restrict this process by Landlock: it can read `trees` and `files`, list `listable`, and use `devices`."""
    abi = landlock_version()
    handled = _FILE_RIGHTS.get(abi, _LATEST_FILE_RIGHTS)
    fields = [handled, _TCP_BIND_AND_CONNECT, _ABSTRACT_SOCKETS_AND_SIGNALS]
    num_fields = 1 if abi < 4 else 2 if abi < 6 else 3  # older kernels refuse unknown bits
    attributes = struct.pack(f"{num_fields}Q", *fields[:num_fields])
    ruleset = kernel.syscall("landlock_create_ruleset", _LANDLOCK_CREATE, attributes, len(attributes), 0)
    try:
        for paths, rights in (
            (trees, _READ_FILE | _READ_DIRECTORY),
            (files, _READ_FILE),
            (listable, _READ_DIRECTORY),
            (devices, _READ_FILE | _WRITE_FILE),
        ):
            for path in paths:
                _rule(ruleset, path, rights)
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        kernel.syscall("landlock_restrict_self", _LANDLOCK_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


def become(user: int) -> None:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def drop_bounding_set() -> None:
    """Drop all capabilities of the bounding set. Call before `drop_capabilities`, because CAP_SETPCAP is needed."""
    for capability in range(_NUM_CAPABILITIES):
        try:
            kernel.prctl(kernel.PR_CAPBSET_DROP, capability)
        except OSError:  # EINVAL after the kernel's last capability, EPERM without capabilities
            break


def drop_capabilities() -> None:
    header, none = struct.pack("Ii", _CAPABILITY_VERSION_3, 0), bytes(24)
    kernel.syscall("capset", _CAPSET[os.uname().machine], header, none)


def seal(*, die_with_parent: bool) -> None:
    """Prevent this process from gaining privileges, and processes of the same user from debugging this process."""
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    if die_with_parent:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, 9)  # last, because a change of user clears this setting


def num_tasks(user: int) -> int:
    """Return the number of threads of a user, in all visible processes."""
    found = 0
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.stat(f"/proc/{entry}").st_uid == user:
                found += len(os.listdir(f"/proc/{entry}/task"))
        except OSError:  # the process has ended
            continue
    return found


def limit(what: int, value: int) -> None:
    """Set the soft and the hard limit of resource `what` to `value`, or to a lower hard limit that is already set."""
    _, hard = kernel.limits(what)
    kernel.set_limits(what, min(value, hard), min(value, hard))
