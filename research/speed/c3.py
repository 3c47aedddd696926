"""Time C3 and MAGRPO per generated token, in alternating updates of the same process.

    python research/speed/c3.py research/speed/c3.md

Both have their default settings, which generate about as many tokens per update. A round is `NUM_UPDATES` updates of
each method. Times are wall seconds of whole updates, on one thread.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch

from collm._ownership import write_text
from collm.algorithms.learning.trainer import Trainer
from collm.algorithms.registry import algorithm_spec
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.benchmarks.markdown import markdown_table
from collm.benchmarks.throughput.timing import LoadWatch, Spread, watching

ENVIRONMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "TinyHanabi E": ("collm/TinyHanabi-v0", {"game": "E"}),
    "MiniShift, 8 turns": ("collm/MiniShift-v0", {"max_turns": 8}),
    "MiniShift, 12 turns": ("collm/MiniShift-v0", {"max_turns": 12}),
    "MiniBuild, 6 turns": ("collm/MiniBuild-v0", {"max_turns": 6}),
    "MiniCode": ("collm/MiniCode-v1", {}),
}
NUM_ROUNDS, NUM_UPDATES, LIMIT = 7, 4, 1.3


def trainer(name: str, environment: str) -> Trainer:
    env, kwargs = ENVIRONMENTS[environment]
    config = algorithm_spec(name).config(num_updates=1 + NUM_ROUNDS * NUM_UPDATES, side_by_side=False)
    return Experiment(algorithm=name, config=config, env=env, env_kwargs=kwargs).make_trainer()


def microseconds_per_token(trainer: Trainer) -> float:
    start, tokens = time.perf_counter(), trainer.progress.num_tokens
    for _ in range(NUM_UPDATES):
        trainer.step()
    return 1e6 * (time.perf_counter() - start) / (trainer.progress.num_tokens - tokens)


def main(out: Path) -> None:
    torch.set_num_threads(1)
    rows = []
    with watching(LoadWatch()) as watch:
        for environment in ENVIRONMENTS:
            trainers = {name: trainer(name, environment) for name in ("c3", "magrpo")}
            for each in trainers.values():
                each.step()  # the first update compiles kernels
            times = []
            for _ in range(NUM_ROUNDS):
                watch.look()
                times.append({name: microseconds_per_token(each) for name, each in trainers.items()})
            tokens = [f"{each.progress.num_tokens / each.progress.update:.0f}" for each in trainers.values()]
            ratio = Spread.of([each["c3"] / each["magrpo"] for each in times])
            costs = [Spread.of([each[name] for each in times]).shown(".0f") for name in trainers]
            rows.append((environment, *tokens, *costs, ratio.shown(".2f")))
            print(*rows[-1], flush=True)
            for each in trainers.values():
                each.close()
    header = ("environment", "tokens per update: c3", "magrpo", "µs per token: c3", "magrpo", "c3 / magrpo")
    text = f"""# Speed of C3

`python research/speed/c3.py research/speed/c3.md`: {NUM_ROUNDS} alternating rounds of {NUM_UPDATES} updates. Wall time,
median (minimum-maximum). Limit of the last column: {LIMIT}.

{markdown_table(header, rows)}

{watch.verdict()}
"""
    write_text(out.parent, out.name, text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
