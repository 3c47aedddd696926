"""Chat conversations with an environment: each turn returns only the new messages, as chat libraries expect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from pettingzoo import ParallelEnv

from ..core import Message, Transcript, messages_of
from ..spaces import movers_of
from .single_agent import SingleAgent


@dataclass(frozen=True)
class Heard:
    """Result of one turn for one agent: new messages, reward, and end of the episode."""

    messages: tuple[Message, ...]  # new messages after the agent's own reply
    reward: float
    is_terminated: bool = False
    is_truncated: bool = False
    numbers: Mapping[str, float] = field(default_factory=dict)  # numbers in the info, such as reward terms

    @property
    def is_over(self) -> bool:
        return self.is_terminated or self.is_truncated

    @property
    def text(self) -> str:
        return text_of(self.messages)


class Conversation:
    """Plays episodes of one agent. Each turn takes a reply and returns the new messages.

    Args:
        env: environment of one agent, whose partners are part of the environment.

    Attributes:
        earned: sum of the rewards in the episode so far.
        is_over: True if no episode is running.
    """

    def __init__(self, env: SingleAgent):
        self.env = env
        self.earned = 0.0
        self.is_over = True
        self._read = _Reader()

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Message, ...]:
        """Start an episode and return the first messages."""
        observation, _ = self.env.reset(seed=seed, options=options)
        self.earned, self.is_over, self._read = 0.0, False, _Reader()
        return self._read.opening(observation)

    def step(self, text: str) -> Heard:
        """Play one turn with the agent's reply.

        Raises:
            RuntimeError: if no episode is running.
            ValueError: if old messages in the observation have changed.
        """
        observation, reward, is_terminated, is_truncated, info = self.env.step(text)
        heard = Heard(self._read.news(observation), reward, is_terminated, is_truncated, _numbers(info))
        self.earned += heard.reward
        self.is_over = heard.is_over
        return heard


class Conversations:
    """Plays episodes of a team. Each turn takes replies and returns the new messages per agent.

    Args:
        env: a parallel environment whose agents read and write texts.

    Attributes:
        agents: live agents.
        movers: agents that reply in the next turn. The other live agents wait.
        earned: sum of each agent's rewards in the episode so far.
        numbers: reward terms and metrics in infos, averaged over the agents that have them, and summed over the turns.
    """

    def __init__(self, env: ParallelEnv[str, Any, Any]):
        self.env = env
        self.agents: list[str] = []
        self.movers: list[str] = []
        self.earned: dict[str, float] = {}
        self.numbers: dict[str, float] = {}
        self._reads: dict[str, _Reader] = {}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> dict[str, tuple[Message, ...]]:
        """Start an episode and return the first messages of each agent."""
        observations, infos = self.env.reset(seed=seed, options=options)
        self.agents = list(observations)
        self.movers = movers_of(self.agents, infos)
        self.earned, self.numbers = dict.fromkeys(self.agents, 0.0), {}
        self._reads = {agent: _Reader() for agent in self.agents}
        return {agent: self._reads[agent].opening(text) for agent, text in observations.items()}

    def step(self, replies: Mapping[str, str]) -> dict[str, Heard]:
        """Play one turn with the replies of all `movers`.

        Raises:
            RuntimeError: if no episode is running.
            ValueError: if a reply is missing, or old messages in an observation have changed.
        """
        if not self.agents:
            raise RuntimeError("no episode is running; call reset() first")
        if missing := [agent for agent in self.movers if agent not in replies]:
            raise ValueError(f"replies of {missing} are missing; give one reply for each of {self.movers}")
        given = {agent: replies[agent] for agent in self.movers}
        observations, rewards, terminations, truncations, infos = self.env.step(given)
        heard = {
            agent: Heard(
                self._reads[agent].news(observations[agent], has_replied=agent in given),
                float(rewards[agent]),
                bool(terminations[agent]),
                bool(truncations[agent]),
                _numbers(infos.get(agent, {})),
            )
            for agent in self.agents
        }
        told: dict[str, list[float]] = {}
        for agent, each in heard.items():
            self.earned[agent] += each.reward
            for name, value in each.numbers.items():
                told.setdefault(name, []).append(value)
        for name, values in told.items():
            self.numbers[name] = self.numbers.get(name, 0.0) + sum(values) / len(values)
        self.agents = [agent for agent in self.agents if not heard[agent].is_over]
        self.movers = movers_of(self.agents, infos)
        return heard


def text_of(messages: Sequence[Message]) -> str:
    """Join the contents of messages to one text, for libraries without roles."""
    return "\n".join(message.content for message in messages)


class _Reader:
    """Extracts the new messages from the successive observations of an agent."""

    def __init__(self) -> None:
        self._known: tuple[Message, ...] = ()

    def opening(self, observation: str) -> tuple[Message, ...]:
        self._known = messages_of(observation)
        return self._known

    def news(self, observation: str, *, has_replied: bool = True) -> tuple[Message, ...]:
        """Return the messages after the agent's last reply, or all messages if `observation` is not a transcript.

        If the agent waited (`has_replied` is False), return the messages after the last observation.
        """
        messages = messages_of(observation)
        if not isinstance(observation, Transcript):
            return messages
        num_known = len(self._known)
        roles = [message.role for message in messages[num_known : num_known + 1]]
        if messages[:num_known] != self._known or (has_replied and roles != ["assistant"]):
            raise ValueError(
                "the environment rewrote a history: old messages have changed, but a conversation only adds messages; "
                "change the environment's settings, or use the environment without a conversation"
            )
        self._known = messages
        return messages[num_known + has_replied :]


def _numbers(info: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in info.items() if isinstance(value, Real)}
