"""Train a cell of the golden record, and digest what the run leaves."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.utils.deterministic
from golden.cells import CELLS, NUM_UPDATES, Cell
from killed import remains

from collm.algorithms.distribution.group import current
from collm.algorithms.runs.checkpoint import newest_checkpoint
from collm.algorithms.runs.run import run_prepared

SHOWN = ("return", "critic_grad_norm", "grad_norm", "policy_loss", "entropy", "value_loss")
"""Metrics that the record has in clear, of those that the cell logs."""
LOG = logging.getLogger(__name__)


class ResumedDiffersError(AssertionError):
    """A run that was resumed after its second update differs from the run in one piece."""


def play(cell: Cell, directory: Path) -> dict[str, Any]:
    """Train a cell in one piece and resumed after update 2; returns its entry of the record.

    Every rank calls this function; only the writer's entry counts.

    Raises:
        ResumedDiffersError: if the resumed run differs, with the names of the parts.
    """
    run = directory / cell.name
    with _settled():
        run_prepared(cell.experiment(), run, on_notice=LOG.info)
        whole = current().by_writer(lambda: _forget_last_update(run))
        run_prepared(cell.experiment(), run, resume=True, on_notice=LOG.info)
    if not current().is_writer:
        return {}
    resumed = remains(run)
    if differing := [name for name in whole if whole[name] != resumed[name]]:
        raise ResumedDiffersError(f"{cell.name}, resumed after update {NUM_UPDATES - 1}: {differing} differ")
    shutil.rmtree(run)
    return entry(whole)


def play_all(group: Any, names: list[str], directory: Path) -> dict[str, Any]:
    """Entries of several cells, by name; on ranks the writer's."""
    return {name: play(CELLS[name], directory) for name in names}


def entry(left: dict[str, Any]) -> dict[str, Any]:
    """Hashes by part of a run, and some of its metrics in clear."""
    rows = left["metrics"]
    assert len(rows) == NUM_UPDATES
    weights = left["weights"]
    parts = {
        "policies": {name: digests for name, digests in weights.items() if name.startswith("agents/")},
        "critics": {name: digests for name, digests in weights.items() if name.startswith("critics/")},
        "state": [left["tensors"], _without_class_names(left["state"])],
        "episodes": [json.loads(line) for line in left["episodes"].splitlines()],
        "evaluation": left["evaluation"],
        "metrics": rows,
    }
    shown = {name: [row.get(name) for row in rows] for name in SHOWN if any(name in row for row in rows)}
    return {**{name: _hash(part) for name, part in parts.items()}, "shown": shown}


def _forget_last_update(run: Path) -> dict[str, Any]:
    left = remains(run)
    last = newest_checkpoint(run)
    assert last is not None and last.update == NUM_UPDATES
    shutil.rmtree(last.path)
    return left


@contextmanager
def _settled() -> Iterator[None]:
    """One thread of torch, and the global switch of deterministic algorithms as other cells find it."""
    num_threads = torch.get_num_threads()
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
        torch.use_deterministic_algorithms(was_deterministic)
        torch.utils.deterministic.fill_uninitialized_memory = filled


def _without_class_names(state: Any) -> Any:
    """A checkpoint's JSON without the names of records, so that renaming a class does not change its hash."""
    if isinstance(state, dict):
        return {key: _without_class_names(value) for key, value in state.items() if key != "$record"}
    return [_without_class_names(each) for each in state] if isinstance(state, list) else state


def _hash(part: Any) -> str:
    """First 16 hexadecimal digits of the SHA-256 of a part; JSON has floats in full precision."""
    return hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()[:16]
