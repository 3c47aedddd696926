"""Seconds of an update by phase: collect, value, critic, forward, backward, optimizer.

CPU seconds of the process, or wall seconds on a GPU; algorithms take turns, medians over the rounds. Other work on the
machine moves all figures of a table together, so ratios mean more than seconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...agents.config import ModelConfig
from ...algorithms.learning.trainer import Trainer
from ...algorithms.registry import algorithm_spec
from ...algorithms.runs.assembly.experiment import Experiment
from ..markdown import markdown_table
from .timing import Stopwatch, clock_of, timed_rounds, unit_of

EPISODES = 32
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "magrpo": {"num_generations": 4},
    "maac": {"critic_warmup": 0},
    "iac": {"use_separate_critic": False},
}

PHASES = ("collect", "value", "critic", "forward", "optimizer")


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """Seconds of one update by phase, medians over updates."""

    algorithm: str
    total: float
    collect: float
    value: float  # the critics value what was collected
    critic: float  # the critics learn
    forward: float  # forward pass of the policies
    optimizer: float  # optimizer steps of the policies

    @property
    def backward(self) -> float:
        """Seconds outside the other phases: the policies' backward pass, and all work between phases."""
        return self.total - self.collect - self.value - self.critic - self.forward - self.optimizer


def measure(env: str, repeats: int, max_new_tokens: int = 48, device: str = "cpu") -> list[PhaseRow]:
    """Measure updates of each algorithm in turn, all of equally many episodes."""
    updates = {name: _clocked_update(_trainer(name, env, max_new_tokens, device), device) for name in SETTINGS}
    return [
        PhaseRow(
            name,
            statistics.median(total for _, total in rounds),
            *(statistics.median(seconds.get(phase, 0.0) for seconds, _ in rounds) for phase in PHASES),
        )
        for name, rounds in timed_rounds(updates, repeats, clock=clock_of(device)).items()
    ]


def _trainer(name: str, env: str, max_new_tokens: int, device: str) -> Trainer:
    config_class = algorithm_spec(name).config
    # The stopwatch counts the phases of one thread.
    config = config_class(rollout_buffer_size=EPISODES, side_by_side=False, **SETTINGS[name])
    model = ModelConfig(max_new_tokens=max_new_tokens, device=device)
    return Experiment(algorithm=name, config=config, env=env, model=model).make_trainer()


def _clocked_update(trainer: Trainer, device: str) -> Callable[[], dict[str, float]]:
    """An update that returns its seconds by phase."""
    stopwatch = Stopwatch(clock_of(device))
    stopwatch.watch("collect", trainer.source, "next")
    for critic in trainer.unique_critics:
        stopwatch.watch("value", critic, "values")
        stopwatch.watch("critic", critic, "_update")
    for learner in trainer.unique_learners:
        stopwatch.watch("forward", learner.policy, "evaluate")
        stopwatch.watch("optimizer", learner.optimizer, "clip")
        stopwatch.watch("optimizer", learner.optimizer, "step")

    def update() -> dict[str, float]:
        stopwatch.seconds.clear()
        trainer.step()
        return dict(stopwatch.seconds)

    return update


def table(rows: Sequence[PhaseRow], env: str, device: str = "cpu") -> str:
    """Seconds of an update by phase, and their ratio to MAGRPO's, as Markdown."""
    cells = []
    for row in rows:
        phases = (row.collect, row.value, row.critic, row.forward, row.backward, row.optimizer, row.total)
        ratio = row.total / rows[0].total
        cells.append((row.algorithm, *(f"{seconds:.3f}" for seconds in phases), f"{ratio:.2f}x"))
    header = ("", "collect", "value", "critic", "forward", "backward", "optimizer", "update", "ratio")
    title = f"{env}, {EPISODES} episodes per update, {unit_of(device)}s:"
    return f"{title}\n\n{markdown_table(header, cells)}"
