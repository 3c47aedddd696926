"""Compilation of the C++ kernels in `kernels.cpp` into the user's cache folder at their first use."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
import warnings
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from ...._ownership import is_private

SWITCH = "COLLM_KERNEL"  # environment variable; 0 turns off all CPU kernels
SOURCE = Path(__file__).with_name("kernels.cpp")
LANES = 16  # numbers per vector: row and head sizes must be multiples of it
TYPES = {"const float*": ctypes.c_void_p, "float*": ctypes.c_void_p, "int64_t": ctypes.c_int64, "float": ctypes.c_float}


@cache
def kernels(head: int, group: int) -> ctypes.CDLL | None:
    """Load the kernels for heads of size `head` and `group` query heads per key-value head. None: unavailable."""
    found = compiler()
    if found is None:
        return None
    try:
        library = ctypes.CDLL(str(_compiled(found, head, group)))  # calls release Python's GIL
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # RuntimeError: no home folder
        said = str(getattr(error, "stderr", None) or "").strip() or str(error)
        warnings.warn(
            f"models on this CPU are slower, because {found} did not compile {SOURCE.name} ({said.splitlines()[0]}); "
            f"set CXX to another compiler, XDG_CACHE_HOME to another folder, or {SWITCH}=0 to stop this warning",
            RuntimeWarning,
            stacklevel=3,
        )
        return None
    _, _, exported = SOURCE.read_text("utf-8").partition('extern "C"')
    for name, given in re.findall(r"^void (\w+)\((.*?)\)", exported, re.MULTILINE | re.DOTALL):
        types = [TYPES[each.strip().rpartition(" ")[0]] for each in given.split(",")]
        getattr(library, name).argtypes, getattr(library, name).restype = types, None
    return library


def compiler() -> str | None:
    """Return the path of the C++ compiler: CXX, or the system's. None: not found, on Windows, or if kernels are off."""
    if os.environ.get(SWITCH) == "0" or os.name == "nt":
        return None
    named = os.environ.get("CXX")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "collm" / "kernels"


@cache
def processor() -> str:
    """Return vendor, model and instruction sets of the CPU on Linux, or Python's `platform` data on other systems."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text("utf-8").splitlines() if known.exists() else []
    told = [next((line for line in lines if line.startswith(key)), "") for key in ("vendor_id", "model name", "flags")]
    return "\n".join([platform.machine(), platform.processor(), *told])


def are_fp32_on_cpu(*tensors: Tensor) -> bool:
    """Return True if all tensors are fp32 and on the CPU. False for sharded tensors and other subclasses."""
    return all(
        type(each) in (Tensor, nn.Parameter) and each.dtype == torch.float32 and each.device.type == "cpu"
        for each in tensors
    )


def _compiled(compiler: str, head: int, group: int) -> Path:
    """Return the path of the compiled library, and compile it if necessary."""
    native = "-march=native" if platform.machine().lower() in ("x86_64", "amd64") else "-mcpu=native"
    flags = ["-std=c++17", "-O3", "-ffp-contract=fast", native, "-fPIC", "-shared", "-pthread"]
    flags += [f"-DHEAD={head}", f"-DGROUP={group}"]
    made_of = [SOURCE.read_text("utf-8"), *flags, compiler, str(Path(compiler).stat().st_mtime_ns), processor()]
    digest = hashlib.sha256(chr(0).join(made_of).encode()).hexdigest()[:24]
    folder = cache_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_private(folder.resolve()):  # a loaded library runs with the user's rights
        raise PermissionError(
            f"kernels are not loaded from {folder}: the folder belongs to another user, or others can write to it; run "
            f"chmod 700 {shlex.quote(str(folder))}"
        )
    kept = folder / f"kernels_{head}_{group}_{digest}.so"
    if not is_private(kept):  # missing, or writable by others
        with tempfile.TemporaryDirectory(dir=folder) as building:
            made = Path(building) / kept.name
            command = [compiler, *flags, str(SOURCE), "-o", str(made)]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
            made.chmod(0o700)  # independent of the umask
            os.replace(made, kept)  # atomic: other processes never load a partial file
    return kept
