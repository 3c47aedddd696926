"""Write the golden record: `python tests/golden/make.py`, about 7 minutes on 2 cores.

Arguments are patterns of cells, such as "maac-*" or "*-ranks"; only the entries of these cells are then written anew.
If this machine's arithmetic is not that of the record, these entries get an arithmetic of their own.
Make the record again only for a change that is meant to change results, and say in the commit which and why.
"""

from __future__ import annotations

import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatch
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from golden import record
from golden.cells import CELLS, NUM_RANKS
from golden.play import play, play_all
from ranked import results


def played(name: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        return play(CELLS[name], Path(directory))


def made(names: list[str]) -> dict[str, Any]:
    """Entries of cells, in as many processes as there are cores."""
    single = [name for name in names if CELLS[name].num_ranks == 1]
    on_ranks = [name for name in names if CELLS[name].num_ranks == NUM_RANKS]
    found: dict[str, Any] = {}
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("spawn")) as pool:
        for name, entry in zip(single, pool.map(played, single), strict=True):
            found[name] = entry
            print(name, flush=True)
    if on_ranks:
        with tempfile.TemporaryDirectory() as directory:
            found |= results(play_all, NUM_RANKS, on_ranks, Path(directory))[0]
    return found


def main(patterns: list[str]) -> None:
    names = [name for name in CELLS if not patterns or any(fnmatch(name, pattern) for pattern in patterns)]
    if not names:
        sys.exit(f"no cell has a name like {', '.join(patterns)}")
    found = made(names)
    if not patterns:
        return record.save(record.arithmetic(), found)
    old = record.load()
    if record.differing_arithmetic(old["arithmetic"]):
        found = {name: {**entry, "arithmetic": record.arithmetic()} for name, entry in found.items()}
    kept = {name: entry for name, entry in old["cells"].items() if name in CELLS}
    record.save(old["arithmetic"], kept | found)


if __name__ == "__main__":
    main(sys.argv[1:])
