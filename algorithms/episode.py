"""What a rollout leaves: turns, and the episodes made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..agents.core import Completion, View


@dataclass(frozen=True, slots=True)
class Turn:
    """One decision of one agent, and what came of it."""

    observation: Any
    completion: Completion
    reward: float
    time: int
    """The joint turn, counted from the start of the episode (of the segment, where a rollout was cut)."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One play of the environment, or a segment of one where the collector cut it."""

    index: int
    """Counts the episodes of a collector; no two share one."""
    seed: int
    """What the environment was reset with."""
    group: int
    """Rollouts of one task, from one seed, share it."""
    tracks: Mapping[str, tuple[Turn, ...]]
    """Each agent's turns, in order; agents that leave early have fewer."""
    states: tuple[Any, ...]
    """The joint history before each joint turn, and the last one; empty where no critic reads it."""
    finals: Mapping[str, Any]
    """Each agent's last observation."""
    is_terminated: Mapping[str, bool]
    """Whether nothing can follow for the agent; False where a limit from outside, or the collector, cut it."""
    infos: tuple[Mapping[str, float], ...]
    """Reward terms and metrics of each joint turn, averaged over the agents that report them."""
    is_complete: bool = True
    """False for a segment that goes on in the next rollout."""
    earlier_return: float = 0.0
    """The team's return of the segments before this one."""

    @property
    def num_turns(self) -> int:
        """Joint turns."""
        return len(self.infos)

    @property
    def team_return(self) -> float:
        """Undiscounted return, averaged over the agents: in a cooperative game, the team's."""
        return sum(turn.reward for track in self.tracks.values() for turn in track) / len(self.tracks)

    def own_view(self, agent: str) -> View:
        """What a decentralized critic reads: the agent's own histories, the last one too where it must bootstrap."""
        track = self.tracks[agent]
        histories = [turn.observation for turn in track]
        if not self.is_terminated[agent]:
            histories.append(self.finals[agent])
        return View(tuple(histories), completions=tuple(turn.completion for turn in track))

    def joint_view(self) -> View:
        """What a centralized critic reads: the joint history before each joint turn, and the last to bootstrap from."""
        is_over = all(self.is_terminated.values())
        return View(self.states[: self.num_turns] if is_over else self.states)
