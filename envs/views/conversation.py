"""Conversations: what an agent reads as new messages only, as libraries of chat models want it; one seat, or all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from pettingzoo import ParallelEnv

from ..core import Message, Transcript, messages_of
from .single_agent import SingleAgent


@dataclass(frozen=True)
class Heard:
    """What one agent hears after its reply."""

    messages: tuple[Message, ...]
    """New messages, without its own reply; none where it is told nothing."""
    reward: float
    """Reward of the turn."""
    is_terminated: bool = False
    is_truncated: bool = False
    numbers: Mapping[str, float] = field(default_factory=dict)
    """Terms of the reward and metrics of the turn, by name."""

    @property
    def is_over(self) -> bool:
        """Whether the agent's episode ends here."""
        return self.is_terminated or self.is_truncated

    @property
    def text(self) -> str:
        """The new messages as one text."""
        return text_of(self.messages)


class Conversation:
    """One agent's episodes as conversations: `reset` opens one, `step` gives a reply and returns what comes next.

    Args:
        env: the agent's view of its team, whose partners are played by given policies.

    Attributes:
        earned: return of the episode so far.
        is_over: whether no episode is running.
    """

    def __init__(self, env: SingleAgent):
        self.env = env
        self.earned = 0.0
        self.is_over = True
        self._read = _Reader()

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Message, ...]:
        """Open an episode; returns what the agent reads first."""
        observation, _ = self.env.reset(seed=seed, options=options)
        self.earned, self.is_over, self._read = 0.0, False, _Reader()
        return self._read.opening(observation)

    def step(self, text: str) -> Heard:
        """Give the agent's reply.

        Raises:
            RuntimeError: if no episode is running.
            ValueError: if the environment rewrote the history, which new messages alone cannot tell.
        """
        observation, reward, is_terminated, is_truncated, info = self.env.step(text)
        heard = Heard(self._read.news(observation), reward, is_terminated, is_truncated, _numbers(info))
        self.earned += heard.reward
        self.is_over = heard.is_over
        return heard


class Conversations:
    """A team's episodes as conversations of all its agents, who write at the same time.

    Args:
        env: a parallel environment whose agents read and write texts.

    Attributes:
        agents: those whose reply is awaited.
        earned: return of the episode so far, by agent.
        numbers: sums of the turns' terms and metrics, each the mean over the agents that were told it.
    """

    def __init__(self, env: ParallelEnv[str, Any, Any]):
        self.env = env
        self.agents: list[str] = []
        self.earned: dict[str, float] = {}
        self.numbers: dict[str, float] = {}
        self._reads: dict[str, _Reader] = {}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> dict[str, tuple[Message, ...]]:
        """Open an episode; returns what each agent reads first."""
        observations, _ = self.env.reset(seed=seed, options=options)
        self.agents = list(observations)
        self.earned, self.numbers = dict.fromkeys(self.agents, 0.0), {}
        self._reads = {agent: _Reader() for agent in self.agents}
        return {agent: self._reads[agent].opening(text) for agent, text in observations.items()}

    def step(self, replies: Mapping[str, str]) -> dict[str, Heard]:
        """Give the replies of all `agents`; returns what each of them hears.

        Raises:
            RuntimeError: if no episode is running.
            ValueError: if a reply is missing, or the environment rewrote a history.
        """
        if not self.agents:
            raise RuntimeError("no episode is running; call reset() first")
        if missing := [agent for agent in self.agents if agent not in replies]:
            raise ValueError(f"there is no reply of {missing}, but {self.agents} write at the same time")
        given = {agent: replies[agent] for agent in self.agents}
        observations, rewards, terminations, truncations, infos = self.env.step(given)
        heard = {
            agent: Heard(
                self._reads[agent].news(observations[agent]),
                float(rewards[agent]),
                bool(terminations[agent]),
                bool(truncations[agent]),
                _numbers(infos.get(agent, {})),
            )
            for agent in given
        }
        told: dict[str, list[float]] = {}
        for agent, each in heard.items():
            self.earned[agent] += each.reward
            for name, value in each.numbers.items():
                told.setdefault(name, []).append(value)
        for name, values in told.items():
            self.numbers[name] = self.numbers.get(name, 0.0) + sum(values) / len(values)
        self.agents = [agent for agent in given if not heard[agent].is_over]
        return heard


def text_of(messages: Sequence[Message]) -> str:
    """Messages as one text, for libraries that pass on a text and no roles."""
    return "\n".join(message.content for message in messages)


class _Reader:
    """How much of one agent's history has been told."""

    def __init__(self) -> None:
        self._told: tuple[Message, ...] = ()

    def opening(self, observation: str) -> tuple[Message, ...]:
        self._told = messages_of(observation)
        return self._told

    def news(self, observation: str) -> tuple[Message, ...]:
        """What was added after the agent's own reply; a text that is no transcript is new as a whole."""
        messages = messages_of(observation)
        if not isinstance(observation, Transcript):
            return messages
        num_told = len(self._told)
        replies = messages[num_told : num_told + 1]
        if messages[:num_told] != self._told or [message.role for message in replies] != ["assistant"]:
            raise ValueError(
                "the environment rewrote a history, which a conversation cannot show; set it up so that histories "
                "only grow"
            )
        self._told = messages
        return messages[num_told + 1 :]


def _numbers(info: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in info.items() if isinstance(value, Real)}
