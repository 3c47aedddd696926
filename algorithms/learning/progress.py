"""Progress of a training: counters, cost metrics, and details that are added to errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from ...agents.core import Divergence
from ...envs.vectors.faults import EnvironmentFault
from ..config import TrainConfig
from ..rollout.episode import Cost, Episode
from ..rollout.requests import Rollout
from .policy_learner import PolicyLearner


class Progress:
    """Counters of a training run: finished updates, environment steps, sampled tokens, and seconds of all updates."""

    def __init__(self, config: TrainConfig):
        self.config = config
        self.update = 0
        self.num_turns = 0
        self.num_tokens = 0
        self.seconds = 0.0
        self.last_metrics: Mapping[str, float] = {}

    def advance(
        self, rollout: Rollout, episodes: Sequence[Episode], num_extra_turns: int, seconds: Mapping[str, float]
    ) -> dict[str, float]:
        """Add an update to the counters, and return metrics.

        `num_extra_turns` are the environment steps of joint_mode="cross", `seconds` the durations of the phases.
        """
        total, rollout_s = sum(seconds.values()), seconds["collect"] + seconds["score"]
        metrics = {f"seconds/{phase}": duration for phase, duration in rollout.seconds.items()}
        if rollout.faults:
            metrics["skipped_episodes"] = float(len(rollout.faults))
        if self.config.max_staleness:
            metrics["staleness"] = float(np.mean([self.update - episode.version for episode in episodes]))
            metrics["seconds/waiting"] = rollout_s
        costs = [each.cost or Cost(each.num_turns, each.num_tokens) for each in episodes]
        num_tokens = sum(cost.num_tokens for cost in costs)
        self.update += 1
        self.num_turns += sum(cost.num_turns for cost in costs) + num_extra_turns
        self.num_tokens += num_tokens
        self.seconds += total
        return {
            **metrics,
            **{f"seconds/{phase}": seconds[phase] for phase in ("credit", "critics", "policies")},
            "update": self.update,
            "environment_steps": self.num_turns,
            "sampled_tokens": self.num_tokens,
            "tokens_per_second": num_tokens / rollout.wall_s,
            "seconds/learning": total - rollout_s,
            "seconds/update": total,
            "seconds/total": self.seconds,
        }

    @contextmanager
    def errors_annotated(self, learners: Mapping[str, PolicyLearner], updates_ahead: int = 0) -> Iterator[None]:
        """Add the update's number to errors raised inside the block. `updates_ahead`: 1 while an update is running."""
        try:
            yield
        except EnvironmentFault as fault:
            fault.update = self.update + updates_ahead
            raise
        except Divergence as divergence:
            divergence.update = self.update + updates_ahead
            divergence.metrics = self.last_metrics
            rates = [learners[agent].optimizer.learning_rate for agent in divergence.agents if agent in learners]
            if rates and divergence.learning_rate is None:
                divergence.learning_rate = max(rates)
            raise

    def state_dict(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in ("update", "num_turns", "num_tokens", "seconds")}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        for name in self.state_dict():
            setattr(self, name, state[name])


@contextmanager
def add_error_details(agents: Sequence[str] = (), rewards: tuple[float, float] | None = None) -> Iterator[None]:
    """Add the agents and the range of the rewards to a `Divergence` that is raised inside the block."""
    try:
        yield
    except Divergence as divergence:
        divergence.agents = divergence.agents or tuple(agents)
        divergence.rewards = divergence.rewards or rewards
        raise
