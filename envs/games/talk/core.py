"""The base class of games in which agents first send messages and then choose actions."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, get_args

from ...core import Message, Outcome, TextParallelEnv
from ...templates import Prompts, templates
from ..pictured import refuse_count, refuse_other

Channel = Literal["open", "silent", "shuffled", "noisy"]
Phase = Literal["say", "do"]

_EXPLANATION = """\
{game}
{message}After the word "task", reply with {action} and nothing else. Any other reply counts as a random one.
Your number and what you know:
"""
_MESSAGE = 'After the word "report", write a message of at most {} words. {} '
_CHANNELS: Mapping[Channel, str] = {
    "open": "The others read it as a line that starts with your number.",
    "silent": "Nobody reads it.",
    "shuffled": "Instead of it, the others read a message from another game.",
    "noisy": "The others read it as a line that starts with your number, and some words are lost.",
}


class TalkEnv(TextParallelEnv):
    """Base class of games in which agents first send messages and then choose actions.

    In a say turn, a reply is a message, of which the listeners read the first words. In a do turn, a reply must name
    exactly one legal action; other words are ignored. Any other reply counts as a random action, so that an error is
    worth no more than a random action, for each agent. Agents that have no move wait.

    Metrics of say turns: `words` (number of words sent), `lies` (number of false claims about the speakers' own private
    information). Metrics of do turns: `bad` (number of replies without a legal action), and those of the game.

    Prompts are words of the embedded model's tokenizer. With `is_explained`, the rules in English come first.

    Args:
        num_agents: agents, called builder_0, builder_1, ...
        num_turns: turns of an episode.
        channel: "open"; "silent" (no agent reads messages); "shuffled" (agents read the message of the same speaker in
            another episode of the reference players, which has the same distribution and no information); "noisy".
        noise: probability that a word of a message is lost, if the channel is "noisy".
        max_words: maximum length of a message in words; the other words are dropped.
        is_explained: True adds the rules in English, for models that were not trained on the game.
        prompts: templates that replace the prompts, see `collm.envs.templates`.
        **kwargs: see `TextParallelEnv`.

    Raises:
        ValueError: if a setting is invalid.
    """

    cues: ClassVar[Mapping[Phase, str]] = {"say": "report", "do": "task"}
    """Last word of the text that an agent reads before its move."""
    num_tasks: int = 2**31
    """Number of different tasks. `reset(options={"task": number})` selects a task."""

    def __init__(
        self,
        num_agents: int,
        num_turns: int,  # not `max_turns`, because the games set the number of turns
        *,
        channel: Channel = "open",
        noise: float = 0.2,
        max_words: int = 8,
        is_explained: bool = False,
        prompts: Prompts | None = None,
        **kwargs: Any,
    ):
        super().__init__([f"builder_{seat}" for seat in range(num_agents)], num_turns, **kwargs)
        refuse_other("channel", channel, get_args(Channel))
        if not 0 <= noise <= 1:
            raise ValueError(f"noise={noise} must be from 0 to 1")
        refuse_count("max_words", max_words, 1, 100)
        self._channel, self._noise, self._max_words, self._is_explained = channel, noise, max_words, is_explained
        self._templates = templates(prompts, self.possible_agents, {"facts": True, "seat": False})
        self.said: dict[str, str] = {}
        """Agent -> its message in the last say turn."""
        self.heard: dict[str, list[tuple[str, str]]] = {}
        """Agent -> (speaker, message) of each message that this agent has read in the episode."""

    @abstractmethod
    def phase(self, turn: int) -> tuple[Phase, Sequence[str]]:
        """Return the kind of a turn and the agents that move in it. Both may only depend on the turn."""

    def begin(self, task: int) -> None:
        """Start an episode: set the state for a task, a number below `num_tasks`. Default: no other state."""

    @abstractmethod
    def facts(self, agent: str) -> str:
        """Return the information of an agent at the start, as words of the embedded model's tokenizer."""

    @abstractmethod
    def rules(self) -> tuple[str, str]:
        """Return the rules of the game in English, and a noun phrase that describes an action."""

    @abstractmethod
    def options(self, agent: str) -> Sequence[str]:
        """Return the legal actions of an agent, each a word."""

    @abstractmethod
    def act(self, actions: Mapping[str, str]) -> Outcome:
        """Play a do turn. `actions` has a legal action of each agent that moves."""

    @abstractmethod
    def policy(self, agent: str, hears: bool) -> str:
        """Return the scripted reply of an agent that moves. `hears=False`: ignore messages, and send none."""

    def listeners(self, agent: str) -> Collection[str]:
        """Return the agents that read the messages of an agent. Default: all other agents."""
        return [other for other in self.possible_agents if other != agent]

    def message(self, agent: str, reply: str) -> str:
        """Return the message in a reply, on one line. Default: the first `max_words` words."""
        return " ".join(reply.split()[: self._max_words])

    def num_lies(self, agent: str, message: str) -> int:
        """Return the number of claims in a message that contradict the speaker's own information. Default: 0."""
        return 0

    @property
    def num_deals(self) -> int:
        """Number of equally likely tasks, the first ones, that differ in what agents read and earn."""
        return self.num_tasks

    def legal_replies(self, agent: str) -> Sequence[str]:
        """Return the legal actions of an agent, which are also its messages if a game is enumerated."""
        return self.options(agent)

    def deal(self, task: Any) -> Mapping[str, Sequence[Message]]:
        self.task = self.rng.randrange(self.num_tasks) if task is None else task
        refuse_count("task", self.task, 0, self.num_tasks - 1)
        self.said, self.heard = {}, {agent: [] for agent in self.possible_agents}
        self._other: TalkEnv | None = deepcopy(self) if self._channel == "shuffled" else None  # another episode
        if self._other is not None:
            self._other._channel = "open"
            self._other.reset(seed=self.rng.randrange(2**31))
        self.begin(self.task)
        kind, movers = self.phase(0)
        self.movers = list(movers)
        game, action = self.rules()
        message = _MESSAGE.format(self._max_words, _CHANNELS[self._channel]) if self.cues["say"] == "report" else ""
        explanation = _EXPLANATION.format(game=game, message=message, action=action) if self._is_explained else ""
        opening = {}
        for seat, agent in enumerate(self.possible_agents):
            facts = " ".join(f"{spoken(agent)} {self.facts(agent)} {self.cues[kind] * (agent in movers)}".split())
            opening[agent] = self._templates.opening(agent, {"facts": facts, "seat": seat}, explanation + facts)
        return opening

    def play(self, replies: Mapping[str, str]) -> Outcome:
        outcome = self._said(replies) if self.phase(self.turn)[0] == "say" else self._done(replies)
        if self._other is not None:
            self._other.step({agent: self._other.reference_reply(agent) for agent in self._other.movers})
        if self.turn + 1 == self.max_turns:
            return outcome
        kind, movers = self.phase(self.turn + 1)
        cued = {agent: f"{outcome.feedback.get(agent, '')}\n{self.cues[kind]}".strip() for agent in movers}
        feedback = {agent: text for agent, text in {**outcome.feedback, **cued}.items() if text}
        return replace(outcome, feedback=feedback, movers=movers)

    def reference_reply(self, agent: str) -> str:
        return self.policy(agent, hears=self._channel in ("open", "noisy"))

    def honest_players(self) -> Mapping[str, Callable[[str], str]]:
        return {"talking": partial(self.policy, hears=True), "silent": partial(self.policy, hears=False)}

    def _said(self, replies: Mapping[str, str]) -> Outcome:
        self.said = {agent: self.message(agent, reply) for agent, reply in replies.items()}
        num_words = sum(len(message.split()) for message in self.said.values())
        num_lies = sum(self.num_lies(agent, message) for agent, message in self.said.items())
        sent, feedback = self._sent(), {}
        for listener in self.possible_agents:
            read = [(speaker, text) for speaker, text in sent.items() if listener in self.listeners(speaker)]
            self.heard[listener] += read
            feedback[listener] = "\n".join(f"{spoken(speaker)} {text}".rstrip() for speaker, text in read)
        return Outcome(0.0, feedback=feedback, metrics={"words": num_words, "lies": num_lies})

    def _sent(self) -> Mapping[str, str]:
        """Return the messages that arrive: speaker -> message."""
        if self._channel == "silent":
            return {}
        if self._other is not None:
            return {agent: self._other.message(agent, self._other.reference_reply(agent)) for agent in self.said}
        if self._channel == "open":
            return self.said
        words = {agent: message.split() for agent, message in self.said.items()}
        return {agent: " ".join(w for w in words[agent] if self.rng.random() >= self._noise) for agent in words}

    def _done(self, replies: Mapping[str, str]) -> Outcome:
        named = {agent: self.named(agent, reply) for agent, reply in replies.items()}
        outcome = self.act({agent: word or self.rng.choice(self.options(agent)) for agent, word in named.items()})
        return replace(outcome, metrics={**outcome.metrics, "bad": sum(word is None for word in named.values())})

    def named(self, agent: str, text: str) -> str | None:
        """Return the only legal action of an agent that a text names. None: it names none or several."""
        found = set(re.findall(r"\w+", text.lower())) & set(self.options(agent))
        return found.pop() if len(found) == 1 else None


def spoken(agent: str) -> str:
    return agent.replace("_", " ")
