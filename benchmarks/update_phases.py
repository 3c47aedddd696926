"""Where an update's time goes: collect, value, critic, forward, backward, optimizer."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..agents.loading import ModelConfig
from ..algorithms import ALGORITHMS
from ..algorithms.experiment import Experiment
from ..algorithms.trainer import Trainer
from .stopwatch import Stopwatch

EPISODES = 32
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "magrpo": {"num_generations": 4},
    "maac": {"critic_warmup": 0},
    "iac": {"use_separate_critic": False},
}


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """The CPU seconds of one update, by phase; each is a median over updates."""

    algorithm: str
    total: float
    collect: float
    value: float  # the critic's view of what was collected
    critic: float  # its learning
    forward: float  # of the policies
    optimizer: float  # of the policies

    @property
    def backward(self) -> float:
        """The rest: the policies' backward pass, with what is between the phases."""
        return self.total - self.collect - self.value - self.critic - self.forward - self.optimizer


def measure(env: str, repeats: int, max_new_tokens: int = 48) -> list[PhaseRow]:
    """Updates of each algorithm in turn, of equally many episodes."""
    trainers = {name: _trainer(name, env, max_new_tokens) for name in SETTINGS}
    clocks = {name: _clocked(trainer) for name, trainer in trainers.items()}
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in trainers}
    for repeat in range(repeats + 1):
        for name, trainer in trainers.items():
            clocks[name].clear()
            start = time.process_time()
            trainer.step()
            clocks[name]["total"] = time.process_time() - start
            if repeat:
                rounds[name].append(dict(clocks[name]))
    phases = ("total", "collect", "value", "critic", "forward", "optimizer")
    return [
        PhaseRow(name, *(statistics.median(each.get(phase, 0.0) for each in seen) for phase in phases))
        for name, seen in rounds.items()
    ]


def _trainer(name: str, env: str, max_new_tokens: int) -> Trainer:
    _, config_class = ALGORITHMS[name]
    config = config_class(rollout_buffer_size=EPISODES, **SETTINGS[name])
    model = ModelConfig(max_new_tokens=max_new_tokens, device="cpu")
    return Experiment(algorithm=name, config=config, env=env, model=model).make_trainer()


def _clocked(trainer: Trainer) -> dict[str, float]:
    """Let the trainer's parts note their CPU seconds."""
    stopwatch = Stopwatch()
    stopwatch.watch("collect", trainer, "_collect")
    for critic in trainer.unique_critics().values():
        stopwatch.watch("value", critic, "values")
        stopwatch.watch("critic", critic, "learn")
    for learner in {id(learner): learner for learner in trainer.learners.values()}.values():
        stopwatch.watch("forward", learner.policy, "evaluate")
        stopwatch.watch("optimizer", learner.optimizer, "step")
    return stopwatch.seconds
