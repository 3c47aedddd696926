"""What a rollout leaves: turns, and the episodes made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..agents.core import Completion, View
from ..envs.core import Message, written


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

    def own_view(self, agent: str, *, reads_actions: bool = False) -> View:
        """What a decentralized critic reads: the agent's own histories.

        For V also the last history, where it must bootstrap; for Q what the agent did after each.
        """
        track = self.tracks[agent]
        completions = tuple(turn.completion for turn in track)
        histories = tuple(turn.observation for turn in track)
        if reads_actions:
            actions = tuple(_appended(Message("assistant", str(done.action), agent), done) for done in completions)
            return View(histories, actions, completions)
        last = () if self.is_terminated[agent] else (self.finals[agent],)
        return View(histories + last, completions=completions)

    def joint_view(self, *, reads_actions: bool = False) -> View:
        """What a centralized critic reads: the joint history before each joint turn.

        For V also the last one, where it must bootstrap; for Q what all agents did after each.
        """
        if not reads_actions:
            is_over = all(self.is_terminated.values())
            return View(self.states[: self.num_turns] if is_over else self.states)
        done: list[list[Any]] = [[] for _ in range(self.num_turns)]
        for agent, track in self.tracks.items():
            for turn in track:
                done[turn.time].append(_appended(written(agent, str(turn.completion.action)), turn.completion))
        joined = tuple(
            tuple(message for action in actions for message in action)
            if isinstance(actions[0], tuple)
            else np.concatenate([np.ravel(action) for action in actions])
            for actions in done
        )
        return View(self.states[: self.num_turns], joined)


def _appended(message: Message, completion: Completion) -> Any:
    """What Q reads of an action: a message to append to a text history, or the number or vector itself."""
    return (message,) if isinstance(completion.action, str) else completion.action
