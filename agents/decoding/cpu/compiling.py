"""Kernels in C++, made by the machine's compiler when they are first needed and kept in the user's cache folder.

Without a compiler there are none, and torch does what they would.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
import warnings
from functools import cache
from pathlib import Path

from .processor import processor

SOURCES = Path(__file__).parent
SHARED = "vectors.h"
SWITCH = "COLLM_KERNEL"
"""The environment variable that leaves everything to torch if it is 0."""
COMPILE_S = 120.0
LANES = 16
"""Numbers that the kernels compute with at a time: rows and heads come in multiples of these."""

pointer, whole, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
"""Types of the kernels' arguments."""


@cache
def kernels(source: str, **sizes: int) -> ctypes.CDLL | None:
    """The functions of `source`.cpp, compiled for these sizes; None: there are none.

    A compiler that fails is told of in a warning.
    """
    found = compiler()
    if found is None:
        return None
    try:
        return ctypes.CDLL(str(_library(found, source, sizes)))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # RuntimeError: the user has no home
        said = str(getattr(error, "stderr", None) or "").strip() or str(error)
        warnings.warn(
            f"a model on this CPU is slower, as torch does all of it: {found} made no kernels of {source}.cpp "
            f"({said.splitlines()[0]}); name another compiler in CXX or another folder in XDG_CACHE_HOME, "
            f"or set {SWITCH}=0",
            RuntimeWarning,
            stacklevel=3,
        )
        return None


def compiler() -> str | None:
    """The C++ compiler of the environment's CXX, or the machine's; None without one, on Windows, or if not wanted."""
    if os.environ.get(SWITCH) == "0" or os.name == "nt":
        return None
    named = os.environ.get("CXX")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)


def cache_folder() -> Path:
    """Where kernels are kept, by the XDG convention."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "collm" / "kernels"


def _library(compiler: str, source: str, sizes: dict[str, int]) -> Path:
    """The compiled file.

    Raises:
        OSError: if it cannot be written, or others can write to its folder.
        subprocess.SubprocessError: if the compiler fails.
    """
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    flags = [
        "-std=c++17",
        "-O3",
        "-ffp-contract=fast",
        "-march=native" if is_x86 else "-mcpu=native",
        "-fPIC",
        "-shared",
        "-pthread",
        *(f"-D{name.upper()}={size}" for name, size in sizes.items()),
    ]
    path = SOURCES / f"{source}.cpp"
    texts = [each.read_text("utf-8") for each in (path, SOURCES / SHARED)]
    made_of = [*texts, *flags, compiler, str(Path(compiler).stat().st_mtime_ns), processor()]
    digest = hashlib.sha256(chr(0).join(made_of).encode()).hexdigest()[:24]
    name = "_".join([source, *map(str, sizes.values()), digest]) + ".so"
    folder = cache_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _refuse_shared(folder)
    kept = folder / name
    if not _is_private(kept):  # missing, or somebody else's
        with tempfile.TemporaryDirectory(dir=folder) as building:
            made = Path(building) / name
            subprocess.run(
                [compiler, *flags, str(path), "-o", str(made)],
                check=True,
                capture_output=True,
                text=True,
                timeout=COMPILE_S,
            )
            made.chmod(0o700)  # whatever the umask
            os.replace(made, kept)  # other processes find all of it or nothing
    return kept


def _refuse_shared(folder: Path) -> None:
    """Refuse a cache folder that others can write to: what is loaded from it runs with the user's rights.

    Raises:
        PermissionError: naming the folder and the command that repairs it.
    """
    if not _is_private(folder.resolve()):
        raise PermissionError(
            f"{folder} belongs to another user, or others can write to it, so nothing is loaded from it: "
            f"chmod 700 {shlex.quote(str(folder))}"
        )


def _is_private(path: Path) -> bool:
    """Whether a file or folder is there, is no link, belongs to this user, and only this user can write to it."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    is_writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return not stat.S_ISLNK(found.st_mode) and found.st_uid == os.geteuid() and not is_writable
