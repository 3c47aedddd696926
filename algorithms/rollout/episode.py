"""Episodes and their turns: the result of a rollout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..._terminal import shown
from ...agents.core import Completion, CriticInput
from ...envs.core import Message, messages_of, written


@dataclass(frozen=True, slots=True)
class Turn:
    """Observation, completion and reward of one decision of one agent."""

    observation: Any
    """Observation before the decision. None for a vector if `RolloutCollector.keeps_vectors` is False."""
    completion: Completion
    reward: float
    time: int
    """Index of the joint turn in the episode or segment."""


class Cost(NamedTuple):
    """Cost of playing an episode."""

    num_turns: int  # environment steps
    num_tokens: int  # sampled tokens


@dataclass(frozen=True, slots=True)
class Episode:
    """Complete episode. With `turns_per_update`: segment of an episode, played by one `collect_turns` call."""

    index: int
    """Index of the episode, unique within a collector."""
    seed: int
    group: int
    """Index of the group. The rollouts of one task form a group."""
    tracks: Mapping[str, tuple[Turn, ...]]
    """Turns of each agent, in order. Agents that leave early or wait have fewer turns."""
    states: tuple[Any, ...]
    """Joint history before each joint turn, and after the last turn. Empty if the collector does not keep histories."""
    finals: Mapping[str, Any]
    is_terminated: Mapping[str, bool]
    """True for agents that were terminated. False for agents that were truncated or act in a later segment."""
    infos: tuple[Mapping[str, float], ...]
    """Reward terms and metrics of each joint turn, each averaged over the agents that report it."""
    is_complete: bool = True
    """False for a segment whose episode continues in the next rollout."""
    earlier_return: float = 0.0
    """Team return of the earlier segments of the episode."""
    num_agents: int | None = None
    """Number of agents of the environment, including agents without a turn. None: `len(tracks)`."""
    earlier_returns: Mapping[str, float] = field(default_factory=dict)
    """Return of each agent in the earlier segments of the episode."""
    options: dict[str, Any] | None = None
    """Options of the environment's reset; see `Plan.options`."""
    is_cut: bool = False
    """True if `RolloutCollector.max_turns` truncated the episode."""
    waiting: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """Rewards of agents in turns in which they waited: agent -> `Turn.time` -> reward."""
    played: Episode | None = None
    """Episode with all turns, if `tracks` has only the turns to learn from. None: this episode."""
    cost: Cost | None = None
    """Cost of the episode if it differs from the turns in `infos` and the tokens in `tracks`. None: it does not."""

    def __str__(self) -> str:
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
        """Version of the weights that sampled the episode's first turn."""
        return min((track[0].completion.version for track in self.tracks.values()), default=0)

    @property
    def num_turns(self) -> int:
        return len(self.infos)

    @property
    def num_tokens(self) -> int:
        """Number of tokens in `tracks`."""
        return sum(len(turn.completion.logprobs) for track in self.tracks.values() for turn in track)

    @property
    def live_agents(self) -> tuple[str, ...]:
        """Agents that acted or waited in the last joint turn and were not terminated in this turn.

        The value of a live agent's last history is a bootstrap value. Agents truncated in earlier turns are not live.
        """
        last = self.num_turns - 1
        return tuple(
            agent for agent, ended in self.is_terminated.items() if not ended and self.last_time(agent) == last
        )

    def last_time(self, agent: str) -> int:
        """Return the last joint turn in which the agent acted or waited."""
        acted = [turn.time for turn in self.tracks.get(agent, ())[-1:]]
        return max([*acted, *self.waiting.get(agent, ())], default=-1)

    def gaps(self, agent: str) -> list[int]:
        """Return the joint turns from each turn of an agent to its next one, or to the turn after `last_time`."""
        starts = [turn.time for turn in self.tracks[agent]]
        return [end - start for start, end in zip(starts, [*starts[1:], self.last_time(agent) + 1], strict=True)]

    def own_return(self, agent: str) -> float:
        """Return the undiscounted sum of the agent's rewards."""
        return sum(turn.reward for turn in self.tracks.get(agent, ())) + sum(self.waiting.get(agent, {}).values())

    @property
    def team_return(self) -> float:
        """Undiscounted sum of the team's rewards."""
        return sum(self.team_rewards)

    @property
    def own_returns(self) -> dict[str, float]:
        """Undiscounted return of each agent, with the earlier segments of the episode."""
        agents = dict.fromkeys([*self.earlier_returns, *self.is_terminated])
        return {agent: self.earlier_returns.get(agent, 0.0) + self.own_return(agent) for agent in agents}

    @property
    def team_rewards(self) -> list[float]:
        """Team reward of each joint turn: the mean over all agents, with 0 for agents that have left."""
        sums = [0.0] * self.num_turns
        for track in self.tracks.values():
            for turn in track:
                sums[turn.time] += turn.reward
        for rewards in self.waiting.values():
            for time, reward in rewards.items():
                sums[time] += reward
        return [total / (self.num_agents or len(self.tracks)) for total in sums]

    def own_rewards(self, agent: str) -> list[float]:
        """Return an agent's reward of each joint turn, 0 after the agent has left."""
        paid = {turn.time: turn.reward for turn in self.tracks.get(agent, ())} | dict(self.waiting.get(agent, {}))
        return [paid.get(time, 0.0) for time in range(self.num_turns)]

    def own_input(self, agent: str, *, reads_actions: bool = False) -> CriticInput:
        """Return a decentralized critic's input: the agent's histories and, for a Q critic, the agent's actions.

        The history after the last turn is included if the critic's value of this history is the bootstrap value.
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
        """Return a centralized critic's input: the joint histories and, for a Q critic, the joint actions.

        The history after the last turn is included if the critic's value of this history is the bootstrap value. A
        joint action of vectors has one entry for each agent in `agents`: None if the agent waits or has left.
        """
        histories = self.states if self.live_agents else self.states[: self.num_turns]
        if not reads_actions:
            return CriticInput(histories)
        done: list[dict[str, Any]] = [{} for _ in range(self.num_turns)]
        for agent, track in self.tracks.items():
            for turn in track:
                done[turn.time][agent] = turn.completion.action
        return CriticInput(histories, tuple(joint_action(actions, agents) for actions in done))


def joint_action(actions: Mapping[str, Any], agents: Sequence[str]) -> Any:
    """Join actions of a joint turn: return the messages that extend the joint history, or the action vectors."""
    if all(isinstance(action, str) for action in actions.values()):
        return tuple(written(agent, actions[agent]) for agent in agents if agent in actions)
    vectors = tuple(actions.get(agent) for agent in agents)
    return vectors if len(vectors) > 1 else vectors[0]
