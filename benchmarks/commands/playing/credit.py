"""`collm benchmark credit`: compare assigned advantages with exact counterfactual advantages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

from ...._ownership import refuse_foreign_files
from ...._ranges import Checked, Count, Seed
from ...arguments import parsed
from ...errors import check_folder, refusals


@dataclass(frozen=True, kw_only=True)
class CreditArguments(Checked):
    """Measure credit fidelity: the correlation of each algorithm's advantages with exact counterfactual advantages.

    The policies are random tables that do not learn, in games whose replies can be enumerated. Critics learn.
    """

    algorithms: tuple[str, ...] = ()
    """Names of algorithms, as in `collm train`. Default: all registered algorithms."""
    games: tuple[Literal["TinyHanabi", "MiniShift"], ...] = ("TinyHanabi", "MiniShift")
    """Games with few replies."""
    seeds: tuple[Seed, ...] = (0, 1, 2)
    """Seeds of the tables, the tasks and the critics."""
    num_updates: Count = 20
    """Number of updates of 96 episodes. The advantages of the second half are compared."""
    out: Path = Path("runs/credit")
    """Folder of the results: credit.json, README.md, credit.png. Other results in the folder are kept."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(CreditArguments, "benchmark credit", args)

    import torch  # late import: help needs no torch

    from ....algorithms.registry import algorithm_spec, algorithm_specs
    from ...comparison.credit import FILES, measure, read_results, write

    torch.set_num_threads(1)
    with refusals():
        specs = [algorithm_spec(name) for name in arguments.algorithms] or algorithm_specs()
        check_folder(arguments.out, "--out")
        refuse_foreign_files(arguments.out, FILES)
    results = {(each.algorithm, each.game, each.seed): each for each in read_results(arguments.out)}
    for name, game, seed in product([spec.name for spec in specs], arguments.games, arguments.seeds):
        found = results[name, game, seed] = measure(name, game, seed, arguments.num_updates)
        table = write(list(results.values()), arguments.out)
        print(f"{name} on {game}, seed {seed}: correlation {found.correlation:.3f}", flush=True)
    print(f"\n{table}")
