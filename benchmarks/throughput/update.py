"""Seconds of each phase of an update: collect, value, critic, forward, backward, optimizer.

The unit is CPU seconds, or seconds on a GPU. Compare ratios, because other processes change all seconds of a table.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

from ...agents.config import ModelConfig
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

# Rollout, critic values, critic updates, and forward pass, backward pass and optimizer step of policies.
PHASES = ("collect", "value", "critic", "forward", "backward", "optimizer")


def measure(env: str, repeats: int, max_new_tokens: int = 48, device: str = "cpu") -> dict[str, dict[str, float]]:
    """Median seconds of each phase, and of the whole update, as a dict with algorithms as keys."""
    updates = {name: _clocked_update(name, env, max_new_tokens, device) for name in SETTINGS}
    found = {}
    for name, rounds in timed_rounds(updates, repeats, clock=clock_of(device)).items():
        row = {phase: statistics.median(seconds.get(phase, 0.0) for seconds, _ in rounds) for phase in PHASES}
        row["update"] = statistics.median(total for _, total in rounds)
        # The backward pass includes all seconds outside of the timed phases.
        row["backward"] = row["update"] - sum(row[phase] for phase in PHASES)
        found[name] = row
    return found


def _clocked_update(name: str, env: str, max_new_tokens: int, device: str) -> Callable[[], dict[str, float]]:
    config_class = algorithm_spec(name).config
    # The stopwatch supports only one thread.
    config = config_class(rollout_buffer_size=EPISODES, side_by_side=False, **SETTINGS[name])
    model = ModelConfig(max_new_tokens=max_new_tokens, device=device)
    trainer = Experiment(algorithm=name, config=config, env=env, model=model).make_trainer()
    stopwatch = Stopwatch(clock_of(device))
    stopwatch.watch("collect", trainer.source, "next")
    for critic in trainer.unique_critics:
        stopwatch.watch("value", critic, "values")
        stopwatch.watch("critic", critic, "_update")
    for learner in trainer.unique_learners:
        stopwatch.watch("forward", learner.policy, "evaluate")
        stopwatch.watch("optimizer", learner.optimizer, "step")

    def update() -> dict[str, float]:
        stopwatch.seconds.clear()
        trainer.step()
        return dict(stopwatch.seconds)

    return update


def table(rows: Mapping[str, Mapping[str, float]], env: str, device: str = "cpu") -> str:
    columns = (*PHASES, "update")
    reference = rows["magrpo"]["update"]
    cells = [
        (name, *(f"{row[phase]:.3f}" for phase in columns), f"{row['update'] / reference:.2f}x")
        for name, row in rows.items()
    ]
    title = f"{env}, {EPISODES} episodes per update, {unit_of(device)}s:"
    return f"{title}\n\n{markdown_table(('', *columns, 'ratio'), cells)}"
