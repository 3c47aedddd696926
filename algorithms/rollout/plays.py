"""Plans and plays: episodes before and while they are played, and played again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..._errors import UserError
from ...agents.core import Completion
from ...envs.spaces import MASK
from ...envs.vectors.faults import StepResult
from ...envs.vectors.vector import VectorEnv, as_step
from .episode import Episode, Turn


@dataclass(frozen=True, slots=True)
class Plan:
    """An episode to be played: its seed, group and task."""

    seed: int
    group: int = 0
    task: Any = None
    """Task for `reset(options={"task": ...})`. None: the environment draws one from the seed."""
    difficulty: int | str | None = None
    """Difficulty for `reset(options={"difficulty": ...})`. None: the environment's own."""

    def options(self) -> dict[str, Any] | None:
        """Options for the environment's reset."""
        asked = {"task": self.task, "difficulty": self.difficulty}
        return {name: value for name, value in asked.items() if value is not None} or None


def grouped_plans(seeds: Iterable[int], group_size: int, difficulty: int | str | None = None) -> list[Plan]:
    """Plans of G rollouts per seed; the rollouts of one seed's task form a group."""
    return [Plan(seed, group, difficulty=difficulty) for group, seed in enumerate(seeds) for _ in range(group_size)]


@dataclass(slots=True)
class Play:
    """An episode under way; `episode` turns it into a finished episode or a segment."""

    plan: Plan
    index: int
    place: int
    """Number of the environment copy that plays it."""
    observations: dict[str, Any] = field(default_factory=dict)
    masks: dict[str, Any] = field(default_factory=dict)
    """Action masks that the last infos told, by agent."""
    agents: list[str] = field(default_factory=list)
    """Live agents; empty before the episode has begun."""
    states: list[Any] = field(default_factory=list)
    tracks: dict[str, list[Turn]] = field(default_factory=dict)
    decided: dict[str, Completion] = field(default_factory=dict)
    """Completions of the joint turn that is being played, by agent."""
    previous: dict[str, Completion] = field(default_factory=dict)
    finals: dict[str, Any] = field(default_factory=dict)
    is_terminated: dict[str, bool] = field(default_factory=dict)
    infos: list[dict[str, float]] = field(default_factory=list)
    num_turns: int = 0
    earlier_return: float = 0.0
    num_agents: int | None = None
    """Number of all agents of the environment."""
    paid: list[dict[str, float]] = field(default_factory=list)
    """Rewards of each joint turn since the episode began, earlier segments' too. Its actions are in the vector's
    `courses`."""

    def episode(self, *, is_complete: bool = True, is_cut: bool = False) -> Episode:
        """The turns played so far, as an episode, or as a segment that another one continues (is_complete=False).

        Args:
            is_complete: False for a segment whose episode continues in the next rollout.
            is_cut: a limit of turns ended the episode, and not the environment.
        """
        tracks = {agent: tuple(track) for agent, track in self.tracks.items() if track}
        return Episode(
            index=self.index,
            seed=self.plan.seed,
            group=self.plan.group,
            tracks=tracks,
            states=tuple(self.states),
            finals={agent: self.finals.get(agent, self.observations.get(agent)) for agent in tracks},
            is_terminated={agent: self.is_terminated.get(agent, False) for agent in tracks},
            infos=tuple(self.infos),
            is_complete=is_complete,
            is_cut=is_cut,
            earlier_return=self.earlier_return,
            num_agents=self.num_agents,
            options=self.plan.options(),
        )

    def continued(self) -> Play:
        """The remainder of the episode, as a play that begins here."""
        return Play(
            self.plan,
            self.index,
            self.place,
            self.observations,
            self.masks,
            self.agents,
            self.states[-1:],
            {agent: [] for agent in self.agents},
            previous=self.previous,
            num_turns=self.num_turns,
            earlier_return=self.earlier_return + self.episode().team_return,
            num_agents=self.num_agents,
            paid=self.paid,
        )


def masks_of(infos: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Action masks by agent, of those whose info tells one."""
    return {agent: info[MASK] for agent, info in infos.items() if MASK in info}


def mean_info(infos: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Reward terms and metrics of a joint turn, averaged over the agents that report them."""
    sums: dict[str, list[float]] = defaultdict(list)
    for info in infos.values():
        for name, value in info.items():
            if name.startswith(("reward/", "metric/")):
                sums[name].append(float(value))
    return {name: sum(values) / len(values) for name, values in sums.items()}


class ReplayError(UserError):
    """An episode took another course when it was played again."""


def replayed(vector: VectorEnv, place: int, plan: Plan, actions: Iterable[Mapping[str, Any]]) -> Iterator[StepResult]:
    """Play an episode again: what its reset returned, then the result of each joint turn.

    Args:
        vector: copies of the environment.
        place: number of the copy that plays it.
        plan: seed and task of the episode.
        actions: joint actions, in order.
    """
    yield as_step(vector.reset(place, plan.seed, plan.options()))
    for joint in actions:
        yield vector.step({place: joint})[place]


def is_same(one: Any, other: Any) -> bool:
    """Whether two observations are equal to the last bit; nan equals nan."""
    if isinstance(one, Mapping):
        return isinstance(other, Mapping) and one.keys() == other.keys() and all(is_same(one[k], other[k]) for k in one)
    if isinstance(one, str) or isinstance(other, str):
        return bool(one == other)
    if isinstance(one, (tuple, list)):
        return isinstance(other, (tuple, list)) and len(one) == len(other) and all(map(is_same, one, other))
    first, second = np.asarray(one), np.asarray(other)
    return first.dtype == second.dtype and np.array_equal(first, second, equal_nan=first.dtype.kind in "fc")
