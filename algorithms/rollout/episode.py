"""Turns, and the episodes made of them: the result of a rollout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..._terminal import shown
from ...agents.core import Completion, CriticInput
from ...envs.core import Message, messages_of, written


@dataclass(frozen=True, slots=True)
class Turn:
    """One decision of one agent, and its reward."""

    observation: Any
    """None where the collector does not keep it (`RolloutCollector.keeps_vectors`)."""
    completion: Completion
    reward: float
    time: int
    """Number of the joint turn, counted from the start of the episode (of the segment, where the collector cut it)."""


@dataclass(frozen=True, slots=True)
class Episode:
    """An episode of the environment, or a segment: the part of one that a cut rollout (`turns_per_update`) contains."""

    index: int
    """Number of the episode, unique within a collector."""
    seed: int
    """Seed that the environment was reset with."""
    group: int
    """Group number, which the rollouts of one task share."""
    tracks: Mapping[str, tuple[Turn, ...]]
    """Track of each agent: its turns, in order. Agents that leave early have fewer."""
    states: tuple[Any, ...]
    """Joint history before each joint turn, and after the last one; empty where no critic reads it."""
    finals: Mapping[str, Any]
    """Last observation of each agent."""
    is_terminated: Mapping[str, bool]
    """Terminal end, by agent. False where a time limit truncated the episode, or the collector cut it."""
    infos: tuple[Mapping[str, float], ...]
    """Reward terms and metrics of each joint turn, averaged over the agents that report them."""
    is_complete: bool = True
    """False for a segment whose episode continues in the next rollout."""
    earlier_return: float = 0.0
    """Team return of the earlier segments of the episode."""
    num_agents: int | None = None
    """Number of all agents of the environment, also of those without a turn here. None: those in `tracks`."""
    options: dict[str, Any] | None = None
    """Options that the environment was reset with, as of `Plan.options`."""
    is_cut: bool = False
    """True where `RolloutCollector.max_turns` truncated the episode, and not the environment."""

    def __str__(self) -> str:
        """What each agent read and wrote, to be read by a person; texts as they are, vectors as Python shows them."""
        parts = [f"seed {self.seed}, return {self.team_return:.3f}"]
        for agent, track in self.tracks.items():
            final = self.finals[agent]
            lines = (
                [message.content.rstrip() for message in messages_of(final)]
                if isinstance(final, str)
                else [turn.completion.action for turn in track]
            )
            parts.append("\n".join([f"--- {agent}", *map(shown, lines)]))
        return "\n".join(parts)

    @property
    def version(self) -> int:
        """Version of the weights that played the episode."""
        return next(iter(self.tracks.values()))[0].completion.version

    @property
    def num_turns(self) -> int:
        """Number of joint turns."""
        return len(self.infos)

    @property
    def live_agents(self) -> tuple[str, ...]:
        """Agents that would act next if the episode had not been cut; empty if the game terminated.

        They took part in the last joint turn, and that turn did not terminate them. An agent that was truncated
        earlier, while others played on, has left and is not live.
        """
        last = self.num_turns - 1
        return tuple(
            agent for agent, track in self.tracks.items() if track[-1].time == last and not self.is_terminated[agent]
        )

    @property
    def team_return(self) -> float:
        """Undiscounted return: the sum of `team_rewards`."""
        return sum(self.team_rewards)

    @property
    def team_rewards(self) -> list[float]:
        """Team reward of each joint turn: the mean over all agents, 0 for those that have left."""
        sums = [0.0] * self.num_turns
        for track in self.tracks.values():
            for turn in track:
                sums[turn.time] += turn.reward
        return [total / (self.num_agents or len(self.tracks)) for total in sums]

    def own_input(self, agent: str, *, reads_actions: bool = False) -> CriticInput:
        """Input of a decentralized critic: the agent's own histories, for Q with the agent's actions.

        The history after the last turn is included where its value bootstraps.
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
        return CriticInput(histories + last, actions, completions)

    def joint_input(self, agents: Sequence[str], *, reads_actions: bool = False) -> CriticInput:
        """Input of a centralized critic: the joint history before each joint turn, for Q with the joint actions.

        The history after the last turn is included where its value bootstraps. A joint action of agents that act by
        vectors has one entry per agent of `agents`, None for one that has left.
        """
        histories = self.states if self.live_agents else self.states[: self.num_turns]
        if not reads_actions:
            return CriticInput(histories)
        done: list[dict[str, Any]] = [{} for _ in range(self.num_turns)]
        for agent, track in self.tracks.items():
            for turn in track:
                done[turn.time][agent] = turn.completion.action
        return CriticInput(histories, tuple(_joined(actions, agents) for actions in done))


def _joined(actions: Mapping[str, Any], agents: Sequence[str]) -> Any:
    """One joint action: the messages that it adds to the joint history, or the agents' vectors."""
    if all(isinstance(action, str) for action in actions.values()):
        return tuple(written(agent, actions[agent]) for agent in agents if agent in actions)
    vectors = tuple(actions.get(agent) for agent in agents)
    return vectors if len(vectors) > 1 else vectors[0]
