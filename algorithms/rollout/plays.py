"""Plans of episodes to play, running episodes, and replays of recorded episodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..._errors import UserError
from ...agents.core import Completion
from ...envs.spaces import MASK, movers_of
from ...envs.vectors.faults import StepResult
from ...envs.vectors.vector import VectorEnv, as_step
from .episode import Episode, Turn

UNREPEATABLE = (
    "it is replayed: the environment is not deterministic for a seed and actions (`collm check` shows where), or it "
    "has changed; training on whole episodes (turns_per_update=None) needs no replay"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Seed, group and task of an episode to play."""

    seed: int
    group: int = 0
    task: Any = None
    """Task for `reset(options={"task": ...})`. None: the environment samples a task with the seed."""
    difficulty: int | str | None = None
    """Difficulty for `reset(options={"difficulty": ...})`. None: the environment's default."""
    script: tuple[Mapping[str, Completion], ...] = ()
    """Completions of the first joint turns, for a replay. An agent without an entry decides."""

    def options(self) -> dict[str, Any] | None:
        """Return the options for the environment's `reset`, or None if `task` and `difficulty` are None."""
        options = {"task": self.task, "difficulty": self.difficulty}
        return {name: value for name, value in options.items() if value is not None} or None


def grouped_plans(seeds: Iterable[int], group_size: int, difficulty: int | str | None = None) -> list[Plan]:
    """Make `group_size` plans for each seed. The rollouts of one seed form a group."""
    return [Plan(seed, group, difficulty=difficulty) for group, seed in enumerate(seeds) for _ in range(group_size)]


@dataclass(slots=True)
class Play:
    """Running episode in an environment copy; `episode()` returns its turns so far as an `Episode`."""

    plan: Plan
    index: int
    place: int  # index of the environment copy
    observations: dict[str, Any] = field(default_factory=dict)
    masks: dict[str, Any] = field(default_factory=dict)  # action mask of each agent, from the last infos
    agents: list[str] = field(default_factory=list)  # agents still in the episode; empty before the reset
    movers: list[str] = field(default_factory=list)  # agents that act in the next turn; the other agents wait
    states: list[Any] = field(default_factory=list)
    tracks: dict[str, list[Turn]] = field(default_factory=dict)
    waiting: dict[str, dict[int, float]] = field(default_factory=dict)  # see `Episode.waiting`
    decided: dict[str, Completion] = field(default_factory=dict)  # completions of the current joint turn
    previous: dict[str, Completion] = field(default_factory=dict)
    finals: dict[str, Any] = field(default_factory=dict)
    is_terminated: dict[str, bool] = field(default_factory=dict)
    infos: list[dict[str, float]] = field(default_factory=list)
    num_turns: int = 0
    earlier_return: float = 0.0
    num_agents: int | None = None  # number of agents of the environment, also without a turn
    paid: list[dict[str, float]] = field(default_factory=list)  # rewards of each joint turn, also of earlier segments

    def observe(self, agents: list[str], observations: dict[str, Any], infos: Mapping[str, Mapping[str, Any]]) -> None:
        """Store the observations and infos before the next turn, and the agents that are in the episode."""
        self.agents, self.observations, self.masks = agents, observations, masks_of(infos)
        self.movers = movers_of(agents, infos)

    def episode(self, *, is_complete: bool = True, is_cut: bool = False) -> Episode:
        tracks = {agent: tuple(track) for agent, track in self.tracks.items() if track}
        agents = dict.fromkeys([*tracks, *self.waiting])
        return Episode(
            index=self.index,
            seed=self.plan.seed,
            group=self.plan.group,
            tracks=tracks,
            states=tuple(self.states),
            finals={agent: self.finals.get(agent, self.observations.get(agent)) for agent in agents},
            is_terminated={agent: self.is_terminated.get(agent, False) for agent in agents},
            infos=tuple(self.infos),
            is_complete=is_complete,
            is_cut=is_cut,
            earlier_return=self.earlier_return,
            earlier_returns=self.earlier_returns(),
            num_agents=self.num_agents,
            options=self.plan.options(),
            waiting=self.waiting,
        )

    def continued(self) -> Play:
        """Return a `Play` that continues the running episode in a new segment, without the turns so far."""
        return replace(
            self,
            states=self.states[-1:],
            tracks={agent: [] for agent in self.agents},
            waiting={},
            decided={},
            finals={},
            is_terminated={},
            infos=[],
            earlier_return=self.earlier_return + self.episode().team_return,
        )

    def earlier_returns(self) -> dict[str, float]:
        """Return the return of each agent in the earlier segments of the episode."""
        earned: dict[str, float] = {}
        for rewards in self.paid[: len(self.paid) - len(self.infos)]:
            for agent, reward in rewards.items():
                earned[agent] = earned.get(agent, 0.0) + reward
        return earned

    def to_state(self, actions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the state from which `replayed_play` restores a running episode, with its joint actions so far."""
        return {
            "place": self.place,
            "index": self.index,
            "seed": self.plan.seed,
            "group": self.plan.group,
            "task": self.plan.task,
            "difficulty": self.plan.difficulty,
            "agents": self.agents,
            "observations": self.observations,
            "previous": dict(self.previous),
            "num_turns": self.num_turns,
            "earlier_return": self.earlier_return,
            "actions": list(actions),
            "rewards": list(self.paid),
        }


def masks_of(infos: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {agent: info[MASK] for agent, info in infos.items() if MASK in info}


class ReplayError(UserError):
    """Error for a replayed episode that differs from its record."""


def replayed_play(vector: VectorEnv, state: Mapping[str, Any]) -> Play:
    """Restore a running episode from `Play.to_state` by replaying its actions in its environment copy.

    Raises `ReplayError` if rewards or the last observations differ from the saved values.
    """
    plan = Plan(state["seed"], state["group"], state["task"], state["difficulty"])
    play = Play(
        plan,
        state["index"],
        state["place"],
        tracks={agent: [] for agent in state["agents"]},
        previous=dict(state["previous"]),
        num_turns=state["num_turns"],
        earlier_return=state["earlier_return"],
        num_agents=len(vector.possible_agents),
        paid=list(state["rewards"]),
    )
    name = f"episode {play.index} (seed {plan.seed})"
    steps = replayed(vector, play.place, plan, state["actions"])
    result = next(steps)
    for turn, (recorded, result) in enumerate(zip(play.paid, steps, strict=True), start=1):
        found = {agent: float(result[1][agent]) for agent in recorded}
        if not is_same(found, recorded):
            raise ReplayError(f"{name} gave rewards {recorded} in turn {turn}, but gives {found} when {UNREPEATABLE}")
    play.observe(list(state["agents"]), result[0], result[4])
    if not is_same(play.observations, state["observations"]):
        when = f"after turn {len(play.paid)}" if play.paid else "at reset"
        raise ReplayError(f"{name} has other observations {when} when {UNREPEATABLE}")
    return play


def replayed(vector: VectorEnv, place: int, plan: Plan, actions: Iterable[Mapping[str, Any]]) -> Iterator[StepResult]:
    """Replay an episode in one environment copy. Yields the result of the reset, then the result of each step."""
    yield as_step(vector.reset(place, plan.seed, plan.options()))
    for joint in actions:
        yield vector.step({place: joint})[place]


def is_same(one: Any, other: Any) -> bool:
    """Return True if two observations are equal bit for bit, with equal dtypes. NaN equals NaN."""
    if isinstance(one, Mapping):
        return isinstance(other, Mapping) and one.keys() == other.keys() and all(is_same(one[k], other[k]) for k in one)
    if isinstance(one, str) or isinstance(other, str):
        return bool(one == other)
    if isinstance(one, (tuple, list)):
        return isinstance(other, (tuple, list)) and len(one) == len(other) and all(map(is_same, one, other))
    first, second = np.asarray(one), np.asarray(other)
    return first.dtype == second.dtype and np.array_equal(first, second, equal_nan=first.dtype.kind in "fc")
