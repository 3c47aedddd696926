"""The golden record: digests of all cells, and the arithmetic that they hold for.

Hashes are equal only if torch and the project's own CPU kernels round alike. Elsewhere metrics are compared with a
tolerance. It is wider after the first update: rounding decides the sign of AdamW's first steps for gradients near 0.
"""

from __future__ import annotations

import hashlib
import json
import math
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from collm.agents.decoding.cpu.fused_ops import rms_norm, swiglu

PATH = Path(__file__).with_name("record.json")
TOLERANCES = (1e-3, 2e-2)
"""Relative, by update, for metrics in another arithmetic. With AVX2 instead of AVX512 and without the project's kernels
they differed by 1e-5 and 3e-5, in float16 by 1e-4 and 2e-3, and in bfloat16 by up to 6e-2 in the second update. The
third update is not compared: other weights may sample another token, so that the episodes differ."""


def load() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PATH.read_text())
    return found


def save(arithmetic: dict[str, Any], cells: dict[str, Any]) -> None:
    lines = [f"{json.dumps(name)}: {json.dumps(cells[name], separators=(',', ':'))}" for name in sorted(cells)]
    text = ",\n".join(lines)
    PATH.write_text(f'{{"arithmetic": {json.dumps(arithmetic)},\n"cells": {{\n{text}\n}}}}\n')


def arithmetic() -> dict[str, Any]:
    """Versions and kernels that decide the rounding, in one thread.

    "torch_digest" and "own_kernels" are hashes of fixed computations, by torch and by the project's CPU kernels.
    "own_kernels" is None if there are none (no compiler, or COLLM_KERNEL=0).
    """
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        torch_digest, own_kernels = _torch_digest(), _own_digest()
    finally:
        torch.set_num_threads(num_threads)
    return {
        **{name: version(name) for name in ("torch", "transformers", "peft", "numpy")},
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": 1,
        "torch_digest": torch_digest,
        "own_kernels": own_kernels,
    }


def differing_arithmetic(recorded: dict[str, Any]) -> list[str]:
    """Names in which this process's arithmetic differs from the recorded one."""
    here = arithmetic()
    return [
        f"{name} {recorded.get(name)!r} != {value!r}" for name, value in here.items() if recorded.get(name) != value
    ]


def differences(found: dict[str, Any], recorded: dict[str, Any], *, is_exact: bool, factor: float = 1.0) -> list[str]:
    """Lines on the parts of an entry that differ from the record.

    Args:
        is_exact: compare hashes and metrics exactly. False: metrics alone, to `factor` times `TOLERANCES`.
    """
    names = [name for name in dict.fromkeys((*recorded, *found)) if is_exact and name not in ("shown", "arithmetic")]
    lines = [f"{name}: another hash" for name in names if found.get(name) != recorded.get(name)]
    for name in dict.fromkeys((*recorded["shown"], *found["shown"])):
        mine, theirs = (each["shown"].get(name) for each in (found, recorded))
        if mine is None or theirs is None:
            lines.append(f"{name}: {theirs} became {mine}")
            continue
        tolerances = [0.0] * len(theirs) if is_exact else [factor * each for each in TOLERANCES]
        lines += [
            f"{name} of update {row + 1}: {theirs[row]!r} became {mine[row]!r}"
            for row, tolerance in enumerate(tolerances)
            if not _is_near(mine[row], theirs[row], tolerance)
        ]
    return lines


def _is_near(number: float | None, other: float | None, tolerance: float) -> bool:
    if number is None or other is None:
        return number is other
    return math.isclose(number, other, rel_tol=tolerance, abs_tol=tolerance / 100)


def _torch_digest() -> str:
    """Products of the shapes that small models multiply, their gradients, and functions that are approximated."""
    draw = torch.Generator().manual_seed(0)
    parts = []
    for rows, inner, columns in ((1, 64, 64), (7, 64, 192), (24, 128, 64), (150, 64, 512), (3, 8, 5)):
        left = torch.randn(rows, inner, generator=draw, requires_grad=True)
        right = torch.randn(inner, columns, generator=draw, requires_grad=True)
        product = functional.layer_norm(left @ right, (columns,))
        loss = functional.log_softmax(functional.silu(product).tanh(), -1).square().sum()
        loss.backward()
        parts += [product, loss, left.grad, right.grad]
    query = torch.randn(2, 4, 20, 16, generator=draw)
    parts += [functional.scaled_dot_product_attention(query, query, query, is_causal=True)]
    parts += [torch.linalg.solve(torch.eye(9) * 9 + torch.randn(9, 9, generator=draw), torch.ones(9)), query.sum()]
    return _digest(parts)


def _own_digest() -> str | None:
    draw = torch.Generator().manual_seed(0)
    numbers = torch.randn(5, 64, generator=draw)
    parts = rms_norm(numbers, torch.ones(64), 1e-6), swiglu(numbers, numbers + 1)
    return None if parts[0] is None or parts[1] is None else _digest([parts[0], parts[1]])


def _digest(tensors: list[Any]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
