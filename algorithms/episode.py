"""What a rollout leaves: turns, and the episodes made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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

        The last history is among them where it must bootstrap. For Q also what the agent did after each.
        """
        track = self.tracks[agent]
        completions = tuple(turn.completion for turn in track)
        histories = tuple(turn.observation for turn in track)
        last = () if self.is_terminated[agent] else (self.finals[agent],)
        actions: tuple[Any, ...] = ()
        if reads_actions:
            actions = tuple(
                (Message("assistant", done.action, agent),) if isinstance(done.action, str) else done.action
                for done in completions
            )
        return View(histories + last, actions, completions)

    def joint_view(self, agents: Sequence[str], *, reads_actions: bool = False) -> View:
        """What a centralized critic reads: the joint history before each joint turn.

        The last one is among them where it must bootstrap. For Q also what all agents did after each; where they act by
        vectors one entry for each of `agents`, None for one that has left.
        """
        is_over = all(self.is_terminated.values())
        histories = self.states[: self.num_turns] if is_over else self.states
        if not reads_actions:
            return View(histories)
        done: list[dict[str, Any]] = [{} for _ in range(self.num_turns)]
        for agent, track in self.tracks.items():
            for turn in track:
                done[turn.time][agent] = turn.completion.action
        return View(histories, tuple(_joined(actions, agents) for actions in done))


def _joined(actions: Mapping[str, Any], agents: Sequence[str]) -> Any:
    """One joint action: the messages that it adds to the joint history, or the agents' own vectors."""
    if all(isinstance(action, str) for action in actions.values()):
        return tuple(written(agent, actions[agent]) for agent in agents if agent in actions)
    vectors = tuple(actions.get(agent) for agent in agents)
    return vectors if len(vectors) > 1 else vectors[0]
