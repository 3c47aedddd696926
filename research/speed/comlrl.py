"""Measure whole training steps of collm and of comlrl (PyPI) with equal models, game lengths and samples per update.

python -m venv reference && reference/bin/pip install '.[train]' comlrl==1.4.3
OMP_WAIT_POLICY=PASSIVE OMP_NUM_THREADS=1 reference/bin/python research/speed/comlrl.py
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from synthetic import (
    FEEDBACK_WORDS,
    NUM_WORDS,
    PROMPT_WORDS,
    reward,
    synthetic_model,
    synthetic_tokenizer,
    synthetic_trainer,
)

from collm.algorithms.rollout.side_by_side import num_cores
from collm.benchmarks.markdown import markdown_table
from collm.benchmarks.throughput.timing import LoadWatch, Spread, Workload, rates, ratio_of, watching

VERSION = "1.4.3"
TURNS = 6


@dataclass(frozen=True)
class Case:
    """Algorithm and size of a measurement, with the required (floor) and desired (goal) ratio to comlrl's speed."""

    name: str
    algorithm: str
    num_envs: int
    num_turns: int
    floor: float
    goal: float

    @property
    def new_tokens(self) -> int:
        return 64 if self.num_turns == 1 else 24

    @property
    def num_generations(self) -> int:
        return 4 if self.algorithm == "magrpo" else 1

    @property
    def their_envs(self) -> int:
        """Episodes per update of comlrl."""
        return self.num_envs if self.num_turns == 1 else 4


CASES = (
    Case("IAC, 1 turn, 8 environments", "iac", 8, 1, 2.5, 3.5),
    Case("IAC, 1 turn, 32 environments", "iac", 32, 1, 4, 5),
    Case("MAGRPO, 4 generations of 8 prompts", "magrpo", 32, 1, 1.8, 3),
    Case("IAC, 6 turns, 8 environments", "iac", 8, TURNS, 5, 7),
    Case("IAC, 6 turns, 32 environments", "iac", 32, TURNS, 7, 10),
)
LARGE_CASES = tuple(case for case in CASES if case.num_envs == 32)
"""Cases that are also compared on all CPU cores."""


def missing() -> str | None:
    """Return the reason why comlrl cannot be measured. None: comlrl has the right version."""
    if importlib.util.find_spec("comlrl") is None:
        return f"comlrl is not installed; install it in a separate environment: pip install comlrl=={VERSION}"
    version = importlib.metadata.version("comlrl")
    return None if version == VERSION else f"comlrl {version} is installed; pip install comlrl=={VERSION}"


def measure(repeats: int, cases: Sequence[Case] = CASES) -> list[tuple[Case, list[float], list[float]]]:
    """Measure joint turns per CPU second of each case: one value per round for collm, and one for comlrl.

    comlrl trains one sequence after another, so its time per sample does not depend on the size of an update. With
    several turns, comlrl therefore plays only 4 episodes per update, to keep the measurement short.
    """
    workloads: dict[str, Workload] = {}
    theirs: dict[tuple[str, int, int], str] = {}
    for case in cases:
        workloads[case.name] = _ours(case)
        key = (case.algorithm, case.num_turns, case.their_envs)
        if key not in theirs:
            theirs[key] = f"comlrl: {case.name}"
            workloads[theirs[key]] = _comlrl(case)
    found = rates(workloads, repeats)
    named = {case: theirs[(case.algorithm, case.num_turns, case.their_envs)] for case in cases}
    return [(case, found[case.name], found[named[case]]) for case in cases]


@dataclass(frozen=True, slots=True)
class OnAllCores:
    """Joint turns per second of wall time of one case, one value per round."""

    case: Case
    ours: Sequence[float]
    """Values of collm with `side_by_side`: the agents' models train at the same time and divide the cores."""
    theirs: Mapping[int, Sequence[float]]
    """Values of comlrl, by the number of torch threads."""

    @property
    def ratio(self) -> Spread:
        """Ratio of collm's speed to comlrl's speed with the faster number of threads (by the median)."""
        return ratio_of(self.ours, max(self.theirs.values(), key=statistics.median))


def measure_on_all_cores(repeats: int, cases: Sequence[Case] = LARGE_CASES) -> list[OnAllCores]:
    """Measure joint turns per second of wall time of each case, with all CPU cores for collm and comlrl."""
    cores = num_cores()
    counts = sorted({1, cores})
    found = []
    for case in cases:
        their_work = _comlrl(case)
        workloads = {"ours": _with_threads(_ours(case, side_by_side=True), cores)}
        workloads |= {f"comlrl, {count}": _with_threads(their_work, count) for count in counts}
        measured = rates(workloads, repeats, clock=time.perf_counter)
        theirs = {count: measured[f"comlrl, {count}"] for count in counts}
        found.append(OnAllCores(case, measured["ours"], theirs))
    return found


def _with_threads(work: Workload, num_threads: int) -> Workload:
    def run() -> int:
        torch.set_num_threads(num_threads)
        return work()

    return run


def _ours(case: Case, *, side_by_side: bool = False) -> Workload:
    settings: dict[str, Any] = {"use_separate_critic": False} if case.algorithm == "iac" else {"num_generations": 4}
    trainer = synthetic_trainer(
        case.algorithm,
        case.num_envs,
        num_turns=case.num_turns,
        max_new_tokens=case.new_tokens,
        side_by_side=side_by_side,
        **settings,
    )

    def run() -> int:
        episodes, _ = trainer.step()
        return sum(episode.num_turns for episode in episodes)

    return run


def _comlrl(case: Case) -> Workload:
    rng = Random(0)
    dataset = importlib.import_module("datasets").Dataset.from_list(
        [{"prompt": _words(rng, PROMPT_WORDS)} for _ in range(case.their_envs // case.num_generations)]
    )
    common = {
        "num_turns": case.num_turns,
        "num_agents": 2,
        "max_new_tokens": case.new_tokens,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "num_generations": case.num_generations,
        "rollout_buffer_size": len(dataset) * case.num_turns,
        "early_termination_threshold": None,
        "eval_interval": 0,
        "external_prompt_passthrough": True,
    }
    models = [synthetic_model(number) for number in range(2)]
    shared: dict[str, Any] = {
        "agents": models,
        "tokenizer": [synthetic_tokenizer() for _ in models],
        "reward_func": _rewards,
        "formatters": [_formatted for _ in models],
        "train_dataset": dataset,
        "external_transition": _transition(rng) if case.num_turns > 1 else None,
    }
    if case.algorithm == "iac":
        module = importlib.import_module("comlrl.trainers.actor_critic")
        config = module.IACConfig(num_train_epochs=1, use_separate_critic=False, **common)
        trainer = module.IACTrainer(args=config, **shared)
    else:
        module = importlib.import_module("comlrl.trainers.reinforce")
        config = module.MAGRPOConfig(num_train_epochs=1, **common)
        trainer = module.MAGRPOTrainer(args=config, num_agents=2, **shared)
    trainer.verbose = False

    def run() -> int:
        trainer.train()
        return case.their_envs * case.num_turns

    return run


def _rewards(first: Sequence[str], second: Sequence[str], **_: Any) -> list[float]:
    return [(reward(a) + reward(b)) / 2 for a, b in zip(first, second, strict=True)]


def _formatted(item: dict[str, Any], external_prompts: Any = None) -> str:
    return str(item["prompt"] if external_prompts is None else external_prompts)


def _transition(rng: Random) -> Callable[..., list[str]]:
    """Return a function that builds the next prompts: the whole history and new words, as in collm."""

    def transition(
        *, prompt_history_per_agent: Sequence[Sequence[str]], agent_completions: Sequence[str], **_: Any
    ) -> list[str]:
        return [
            f"{prompts[-1]} {reply} {_words(rng, FEEDBACK_WORDS)}"
            for prompts, reply in zip(prompt_history_per_agent, agent_completions, strict=True)
        ]

    return transition


def _words(rng: Random, count: int) -> str:
    return " ".join(f"w{rng.randrange(NUM_WORDS)}" for _ in range(count))


def table(measured: Sequence[tuple[Case, Sequence[float], Sequence[float]]]) -> str:
    """Return the speeds of training steps of collm and comlrl, in joint turns per CPU second, as Markdown."""
    cells = [
        (
            case.name,
            Spread.of(ours).shown(".2f"),
            Spread.of(theirs).shown(".2f"),
            f"{ratio_of(ours, theirs).shown('.2f')}x",
            f"{case.floor:g}x",
            f"{case.goal:g}x",
        )
        for case, ours, theirs in measured
    ]
    table = markdown_table(("", "ours", "comlrl", "ratio", "floor", "goal"), cells)
    return f"Whole training steps, joint turns per CPU second, beside comlrl {VERSION}:\n\n{table}"


def table_on_all_cores(measured: Sequence[OnAllCores]) -> str:
    """Return the speeds of training steps on all cores, in joint turns per second of wall time, as Markdown."""
    counts = sorted({count for row in measured for count in row.theirs})
    header = ("", "ours", *(f"comlrl, {count} thread{'s' * (count > 1)}" for count in counts), "ratio to its faster")
    cells = [
        (
            row.case.name,
            Spread.of(row.ours).shown(".2f"),
            *(Spread.of(row.theirs[count]).shown(".2f") for count in counts),
            f"{row.ratio.shown('.2f')}x",
        )
        for row in measured
    ]
    title = f"The same per second of wall time, where both may use all {num_cores()} cores:"
    return f"{title}\n\n{markdown_table(header, cells)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="measured rounds, after one warm-up round")
    repeats = parser.parse_args().repeats
    if (reason := missing()) is not None:
        sys.exit(f"error: {reason}")
    torch.set_num_threads(1)
    with watching(LoadWatch()) as watch:
        print(table(measure(repeats)), table_on_all_cores(measure_on_all_cores(repeats)), watch.verdict(), sep="\n\n")


if __name__ == "__main__":
    main()
