"""Namespaces, the jail's own root directory, identities and limits: all that is set up once, in the zygote."""

from __future__ import annotations

import os
import struct

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


def enter_namespaces() -> None:
    """Own users, mounts, processes (from the next fork), network, IPC, host name and cgroup view."""
    kernel.unshare(
        _NEW_USERS | _NEW_MOUNTS | _NEW_PROCESSES | _NEW_NETWORK | _NEW_IPC | _NEW_HOST_NAME | _NEW_CGROUP,
    )


def rename_host() -> None:
    """Give the host, in this namespace, a name that tells nothing of the real one."""
    kernel.set_host_name("sandbox")


def _bind_read_only(source: str, target: str) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb"):
            pass
    kernel.mount(source, target, None, _BIND | _RECURSIVE)
    # Flags that the outer mount has are locked: a remount that leaves one out is refused.
    present = os.statvfs(target).f_flag
    kept = sum(flag for seen, flag in _LOCKED_FLAGS.items() if present & seen)
    kernel.mount(None, target, None, _BIND | _REMOUNT | _READ_ONLY | _NO_SETUID | kept)


def build_root(visible: list[str], hidden: list[str]) -> None:
    """Replace the root directory by a read-only one that holds `visible` and /dev/null; `hidden` appear empty."""
    base = "/tmp"  # any directory will do: it is covered only in this mount namespace
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


def become(user: int) -> None:
    """Turn into this user and group, with no supplementary groups."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def drop_bounding_set() -> None:
    """No program executed later can bring a capability back. Needs CAP_SETPCAP, so it comes before the rest."""
    for capability in range(_NUM_CAPABILITIES):
        try:
            kernel.prctl(kernel.PR_CAPBSET_DROP, capability)
        except OSError:  # EINVAL past the last one that this kernel knows, EPERM where there is nothing to give up
            break


def drop_capabilities() -> None:
    """Give up every capability of this process."""
    header, none = struct.pack("Ii", _CAPABILITY_VERSION_3, 0), bytes(24)
    kernel.syscall("capset", _CAPSET[os.uname().machine], header, none)


def seal(*, die_with_parent: bool) -> None:
    """No new privileges ever, no peeking by processes of the same user, and no life after the parent's, if asked."""
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    if die_with_parent:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, 9)  # last: a change of user would clear it


def num_tasks(user: int) -> int:
    """Threads of all processes of a user that can be seen."""
    found = 0
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.stat(f"/proc/{entry}").st_uid == user:
                found += len(os.listdir(f"/proc/{entry}/task"))
        except OSError:  # it has ended meanwhile
            continue
    return found


def limit(what: int, value: int) -> None:
    """Lower a resource limit, soft and hard, to `value` or to the hard limit in force if that is lower."""
    _, hard = kernel.limits(what)
    kernel.set_limits(what, min(value, hard), min(value, hard))
