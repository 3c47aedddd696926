"""Attention to kept keys and values on a CPU, by a kernel of our own that the machine's C++ compiler makes when needed.

torch's attention multiplies matrices of as many rows as query heads share a head: one to seven where tokens are
decoded one by one, for which a product of matrices is the wrong tool. `kernel.cpp` reads every key and value once, at
1.7 to 2.5 times the speed, and none that no query sees.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from .processor import processor

SOURCE = Path(__file__).with_name("kernel.cpp")
LANES = 16  # numbers of a head come in multiples of these
MAX_HEAD, MAX_GROUP = 256, 16
READ_BY_THREAD = 2**17
"""Keys per thread at least, in numbers: to start one takes as long as to read a tenth of them."""
SWITCH = "COLLM_KERNEL"
"""The environment variable that leaves attention to torch if it is 0."""
COMPILE_S = 120.0


def attended(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float) -> Tensor | None:
    """softmax(scale q k^T + mask) v, for one new token per row; None: torch must do it.

    Axes: N rows, H query heads, K heads of keys and values, W columns, d numbers of a head.

    Args:
        query: [N, H, 1, d].
        key: [N, K, W, d], as values.
        mask: [N, 1, 1, W].

    Returns:
        [N, 1, H, d]; zeros for a row that sees nothing. None without a compiler, and for anything but plain fp32
        tensors on a CPU of heads of a multiple of 16 numbers, outside of a gradient.
    """
    num_rows, num_heads, num_tokens, width = query.shape
    num_kept, num_columns = key.shape[1:3]
    are_plain = all(
        type(each) is Tensor and each.dtype == torch.float32 and each.device.type == "cpu"
        for each in (query, key, value, mask)
    )
    if not are_plain or num_tokens > 1 or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return None
    steps = key.stride()
    is_laid_out = steps[2:] == (width, 1) and value.stride() == steps and mask.stride(3) == 1
    group, rest = divmod(num_heads, num_kept)
    if not is_laid_out or value.shape != key.shape or rest or group > MAX_GROUP or width % LANES or width > MAX_HEAD:
        return None
    kernel = kernel_for(width, group)
    if kernel is None:
        return None
    query = query.reshape(num_rows, num_heads, width)
    output = torch.empty(num_rows, 1, num_heads, width)
    threads = min(torch.get_num_threads(), num_rows, 1 + key.numel() // READ_BY_THREAD)
    pointers = (each.data_ptr() for each in (query, key, value, mask, output))
    kernel(*pointers, num_rows, num_kept, num_columns, *steps[:2], mask.stride(0), scale, threads)
    return output


@cache
def kernel_for(width: int, group: int) -> Callable[..., None] | None:
    """`attend` of kernel.cpp for heads of `width` numbers shared by `group` query heads each; None: there is none.

    It is compiled once on a machine, and lies in the user's cache folder afterwards. A compiler that fails is told of
    in a warning.
    """
    found = compiler()
    if found is None:
        return None
    try:
        library = ctypes.CDLL(str(_library(found, width, group)))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # RuntimeError: the user has no home
        said = str(getattr(error, "stderr", None) or "").strip() or str(error)
        warnings.warn(
            f"attention stays torch's, which decodes more slowly: {found} made no kernel of {SOURCE.name} "
            f"({said.splitlines()[0]}); name another compiler in CXX or another folder in XDG_CACHE_HOME, "
            f"or set {SWITCH}=0",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    kernel: Callable[..., None] = library.attend
    # ctypes lets other threads run meanwhile.
    library.attend.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_int64] * 6 + [ctypes.c_float, ctypes.c_int64]
    library.attend.restype = None
    return kernel


def compiler() -> str | None:
    """The C++ compiler of the environment's CXX, or the machine's; None without one, on Windows, or if not wanted."""
    if os.environ.get(SWITCH) == "0" or os.name == "nt":
        return None
    named = os.environ.get("CXX")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)


def cache_folder() -> Path:
    """Where kernels are kept, by the XDG convention."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "collm" / "kernels"


def _library(compiler: str, width: int, group: int) -> Path:
    """The compiled kernel's file.

    Raises:
        OSError: if it cannot be written.
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
        f"-DHEAD={width}",
        f"-DGROUP={group}",
    ]
    made_of = [SOURCE.read_text("utf-8"), *flags, compiler, str(Path(compiler).stat().st_mtime_ns), processor()]
    name = f"attention_{width}_{group}_{hashlib.sha256(chr(0).join(made_of).encode()).hexdigest()[:24]}.so"
    folder = cache_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / name
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as building:
            made = Path(building) / name
            subprocess.run(
                [compiler, *flags, str(SOURCE), "-o", str(made)],
                check=True,
                capture_output=True,
                text=True,
                timeout=COMPILE_S,
            )
            os.replace(made, path)  # other processes find all of it or nothing
    return path
