"""Messages, transcripts, and the base class of all text environments.

A subclass of `TextParallelEnv` defines two methods: `deal` starts an episode and `play` plays a turn. The base class
keeps the histories, the spaces and the random generator, and implements PettingZoo's parallel API.
"""

from __future__ import annotations

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, SupportsFloat, TypeAlias

import numpy as np
from pettingzoo import ParallelEnv

from .._terminal import shown
from .spaces import OpenText

ResetResult: TypeAlias = tuple[dict[str, Any], dict[str, dict[str, Any]]]
"""Result of `reset`: observation of each agent, and info dict of each agent."""
ENVIRONMENT = "environment"
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
_LATER_BRACKETS = re.compile("(?<=[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])\\[")  # at line starts, not in the first line


class Message(NamedTuple):
    """A chat message in an agent's history."""

    role: str  # role in chat templates: "system", "user", or "assistant" for own replies of the agent that reads them
    content: str
    author: str = ENVIRONMENT  # name of the agent that wrote the text, or "environment"


class Transcript(str):
    """A text history: a `str` that also stores its messages.

    The string contains the content of each message and a line feed after it. For chat models, the chat template is
    applied to `messages`. During an episode, messages are only appended, unless metadata["append_only"] is False.
    """

    messages: tuple[Message, ...]

    def __new__(cls, messages: Iterable[Message] = ()) -> Transcript:
        kept = tuple(messages)
        self = super().__new__(cls, "".join(f"{message.content}\n" for message in kept))
        self.messages = kept
        return self

    def extended(self, *messages: Message) -> Transcript:
        """Return a new transcript with messages added at the end."""
        return Transcript((*self.messages, *messages))

    def __reduce__(self) -> tuple[Any, ...]:
        return Transcript, (self.messages,)

    def __copy__(self) -> Transcript:
        return self

    def __deepcopy__(self, memo: Any) -> Transcript:
        return self


def messages_of(observation: str) -> tuple[Message, ...]:
    """Return the messages of a transcript. Any other text is returned as one user message."""
    return observation.messages if isinstance(observation, Transcript) else (Message("user", str(observation)),)


def as_chat(messages: Iterable[Message]) -> list[dict[str, str]]:
    """Convert messages to the format of OpenAI's chat completions."""
    return [{"role": message.role, "content": message.content} for message in messages]


def answer_in(reply: str) -> str:
    """Return the part of a reply after the last "</think>". Without this tag, return the whole reply.

    If the reply begins with "<think>" and has no "</think>", the model was cut off while thinking: return "".
    """
    _, closed, answer = reply.rpartition("</think>")
    return "" if not closed and answer.lstrip().startswith("<think>") else answer


def written(agent: str, reply: str) -> Message:
    """Convert a reply to a message of the joint history. A space before "[" prevents lines that imitate messages."""
    return Message("user", f"[{agent} writes] {_LATER_BRACKETS.sub(' [', reply)}", agent)


def _as_read(message: Message) -> str:
    """Return a message's content for the joint history. Agents' replies are escaped as in `written`."""
    reply = message.role == "assistant"
    return _LATER_BRACKETS.sub(" [", f"\n{message.content}")[1:] if reply else message.content


@dataclass(frozen=True)
class Outcome:
    """Result of one turn, returned by `TextParallelEnv.play`."""

    reward: float | Mapping[str, float]
    """Team reward, given to every agent, or a mapping with one reward per live agent."""
    feedback: Mapping[str, str] = field(default_factory=dict)
    """Text for each agent, appended to its history after its own reply."""
    terms: Mapping[str, float] = field(default_factory=dict)
    """Named parts of the reward, logged as reward/<name>."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Other metrics, logged as metric/<name>."""
    is_over: bool = False
    """True if the episode terminates before its last turn."""
    finished: frozenset[str] = frozenset()
    """Agents that terminate while the others continue."""
    rewritten: Mapping[str, Sequence[Message]] = field(default_factory=dict)
    """New histories (agent -> messages) that replace the old ones. Feedback is appended to the new history."""


class TextParallelEnv(ParallelEnv[str, Transcript, str], ABC):
    """Base class of environments in which agents write texts in parallel for a number of turns.

    Observations are `Transcript`s, actions are strings. In each turn, every live agent replies and `play` computes the
    result. Then each agent's reply and feedback are appended to its history. The last turn terminates the episode. An
    agent observes only its own history. For a centralized critic, `state()` returns the joint history. Histories keep
    the text before "</think>", but `play` gets the replies without this text.

    The constructor's arguments, the seed and the actions determine an episode. An environment can be copied with
    `copy.deepcopy` or `pickle` during an episode; the copy is independent and continues the same episode.

    Args:
        agents: agent names of the form role_number, such as "writer_0".
        max_turns: turns per episode, at least 1.
        render_mode: "ansi" (`render` returns the joint history as text), "human" (prints it), or None.
        max_action_length: maximum length of a reply in characters, without text before "</think>". Longer replies are
            cut. Their number is logged as `metric/cut_replies`.
        max_observation_length: maximum length of a history in characters. From longer histories, the oldest messages
            except the first are dropped. Their number is logged as `metric/dropped_messages`.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "text_v0", "render_modes": ["ansi", "human"], "render_fps": 1}
    truth_metric: ClassVar[str | None] = None
    """Name of a metric in `Outcome.metrics`, from 0 to 1, that measures success independently of the reward, such as
    the fraction of passed tests. `collm check ID --red-team` compares the return with it. None: no such metric."""
    protocol_instructions: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Instructions in a pipeline or discussion (`algorithms.rollout.protocols`): protocol -> agent -> text."""
    spec: Any = None  # the EnvSpec from which `make` built this environment
    task: Any = None
    """Task of the running episode, for reward functions: a data row, a goal or a map. Set by `deal`."""

    def __init__(
        self,
        agents: Sequence[str],
        max_turns: int,
        *,
        render_mode: str | None = None,
        max_action_length: int = 16_384,
        max_observation_length: int = 1_048_576,
    ):
        if isinstance(max_turns, bool) or not isinstance(max_turns, int) or max_turns < 1:
            raise ValueError(f"max_turns must be at least 1, got {max_turns}")
        wrong = [name for name in agents if not re.fullmatch(r"[a-z]+(_[a-z]+)*_[0-9]+", name)]
        if wrong or not agents or len(set(agents)) < len(agents):
            raise ValueError(f"agents must be unique names like 'writer_0', got {list(agents)}")
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(f"render_mode must be None or one of {self.metadata['render_modes']}, got {render_mode!r}")
        self.possible_agents = list(agents)
        self.agents: list[str] = []
        self.render_mode = render_mode
        self._max_turns = max_turns  # not `max_cycles`: PettingZoo's API test overwrites that attribute with 1000
        self.observation_spaces = {agent: OpenText(max_observation_length) for agent in agents}
        self.action_spaces = {agent: OpenText(max_action_length) for agent in agents}
        self.state_space = OpenText(max_observation_length)
        self.rng = random.Random(0)
        self._np_seed: int | None = 0
        self.turn = 0
        self._transcripts: dict[str, Transcript] = {}
        self._joint = Transcript()

    # Methods for subclasses to implement or override.

    @abstractmethod
    def deal(self, task: Any) -> Mapping[str, str | Sequence[Message]]:
        """Start an episode and return the prompt of each agent. Take random numbers only from `self.rng`.

        Args:
            task: the task given by `reset(options={"task": ...})`. None: sample a task.
        """

    @abstractmethod
    def play(self, replies: Mapping[str, str]) -> Outcome:
        """Play one turn. Score every reply, whatever its content; a bad reply must not raise an error.

        Args:
            replies: replies of all live agents, without text before "</think>". `self.turn` counts the earlier turns.
        """

    def scene(self) -> str:
        """Return the environment's state as text, which `render` shows below the histories. Color codes are allowed.

        Do not include text that agents wrote, because control characters are not escaped here.
        """
        return ""

    def truth(self) -> str:
        """Return the hidden state as text, for a privileged critic (`views.PrivilegedState`).

        Neither observations nor `state()` contain it. The method must not change the environment.
        """
        return ""

    def reference_reply(self, agent: str) -> str:
        """Return a good reply for this agent in the current state. The method must not change the environment.

        Raises:
            NotImplementedError: if the environment has no reference replies.
        """
        raise NotImplementedError(f"{self} has no reference replies; define reference_reply(agent)")

    def exploits(self) -> Mapping[str, Callable[[str], str]]:
        """Return players that get reward without doing the task, as a dict: name -> function (agent -> reply).

        `check_env(..., exploits=True)` runs these players and the general ones in `checks.exploits`. They may read the
        environment's hidden state, but must not change the environment.
        """
        return {}

    @property
    def allowed_exploits(self) -> Mapping[str, str]:
        """Exploits that are intended, as a dict: name of the player -> reason."""
        return {}

    def honest_players(self) -> Mapping[str, Callable[[str], str]]:
        """Return players that do the task from observations alone, as a dict: name -> function (agent -> reply).

        "talking" sends information to its partners, "silent" does not. The difference between their returns is the
        benefit of communication. The functions must not change the environment.
        """
        return {}

    def ceilings(self) -> Mapping[str, float]:
        """Return a dict: missing skill -> exact mean return of optimal play without this skill. Empty if unknown."""
        return {}

    def absence(self, agent: str) -> str:
        """Return the reply with which `wrappers.Shares` replaces an agent's replies to measure their contribution."""
        return ""

    # PettingZoo's parallel API.

    @property
    def max_turns(self) -> int:
        """Maximum number of turns per episode."""
        return self._max_turns

    @cached_property
    def np_random(self) -> np.random.Generator:
        """NumPy generator for wrappers, seeded by `reset`. The environment itself uses only `rng`."""
        # Created on first use, because it takes a tenth of the time of a reset and most runs never need it.
        return np.random.default_rng(None if self._np_seed is None else self._np_seed % 2**64)

    def observation_space(self, agent: str) -> OpenText:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> OpenText:
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Transcript], dict[str, dict[str, Any]]]:
        """Start an episode.

        Args:
            seed: seed of the random generator. None: the generator continues from its current state.
            options: {"task": ...} selects the task; other keys are ignored.
        """
        if seed is not None:
            self._seed(int(seed))
        elif not self._transcripts:
            self._seed(None)
        self.agents = list(self.possible_agents)
        self.turn = 0
        self._joint = Transcript()
        prompts = self.deal((options or {}).get("task"))
        if not isinstance(prompts, Mapping):
            raise TypeError(f"deal() must return a dict agent -> prompt, got {type(prompts).__name__}: {prompts!r}")
        missing = set(self.agents) ^ set(prompts)
        if missing:
            raise ValueError(f"deal() must return one prompt for each of {self.agents}; wrong or missing: {missing}")
        self._transcripts = {agent: Transcript() for agent in self.agents}
        for agent in self.agents:
            self._read(agent, prompts[agent])
        self._record_reading({agent: self._transcripts[agent].messages for agent in self.agents})
        return {agent: self._observation(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(
        self, actions: Mapping[str, str]
    ) -> tuple[dict[str, Transcript], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Play one turn. `actions` must contain the reply of each live agent."""
        movers = list(self.agents)
        if not movers:
            raise RuntimeError("no episode is running; call reset() first")
        written_out = {agent: self._checked(agent, actions) for agent in movers}
        replies = {agent: self._readable(agent, text) for agent, text in written_out.items()}
        answers = {agent: self._readable(agent, answer_in(text)) for agent, text in written_out.items()}
        cut = sum(len(answer_in(text)) > len(answers[agent]) for agent, text in written_out.items())
        outcome = self.play(answers)
        if not isinstance(outcome, Outcome):
            raise TypeError(f"play() must return an Outcome, got {type(outcome).__name__}: {outcome!r}")
        rewards = _checked_rewards(outcome, movers, self.possible_agents)
        self.turn += 1
        for agent in movers:
            self._transcripts[agent] = self._transcripts[agent].extended(Message("assistant", replies[agent], agent))
        self._joint = self._joint.extended(*(written(agent, replies[agent]) for agent in movers))
        known = {agent: len(self._transcripts[agent].messages) for agent in movers}
        for agent, history in outcome.rewritten.items():
            self._transcripts[agent], known[agent] = Transcript(history), 0
        for agent, text in outcome.feedback.items():
            self._read(agent, text)
        self._record_reading({agent: self._transcripts[agent].messages[known[agent] :] for agent in movers})
        is_over = outcome.is_over or self.turn >= self._max_turns
        terminations = {agent: is_over or agent in outcome.finished for agent in movers}
        observations = {agent: self._observation(agent) for agent in movers}
        self.agents = [agent for agent in movers if not terminations[agent]]
        numbers = {f"reward/{name}": float(value) for name, value in outcome.terms.items()}
        numbers |= {f"metric/{name}": float(value) for name, value in outcome.metrics.items()}
        if cut:
            numbers["metric/cut_replies"] = float(cut)
        infos: dict[str, dict[str, Any]] = {agent: dict(numbers) for agent in movers}
        for agent in movers:
            dropped = len(self._transcripts[agent].messages) - len(observations[agent].messages)
            if dropped:
                infos[agent]["metric/dropped_messages"] = float(dropped)
        return observations, rewards, terminations, dict.fromkeys(movers, False), infos

    def state(self) -> Transcript:
        """Return the joint history: everything that agents read or wrote, in time order, with their names."""
        return capped(self._joint, self.state_space.max_length)

    def render(self) -> Any:
        """Return the joint history and the scene in mode "ansi", or print them in mode "human"."""
        if self.render_mode == "ansi":
            return f"{self._joint}{self.scene()}"
        if self.render_mode == "human":
            print(f"{shown(self._joint)}{self.scene()}")
        return None

    def close(self) -> None:
        """Do nothing, because there are no resources to release."""

    def __str__(self) -> str:
        return str(self.metadata["name"])

    def _seed(self, seed: int | None) -> None:
        self.rng, self._np_seed = random.Random(seed), seed
        self.__dict__.pop("np_random", None)

    def _checked(self, agent: str, actions: Mapping[str, str]) -> str:
        if agent not in actions:
            raise ValueError(f"step() needs a reply of each live agent {self.agents}; {agent!r} is missing")
        action = actions[agent]
        if not isinstance(action, str):
            raise TypeError(f"the action of {agent!r} must be a string, got {type(action).__name__}: {action!r}")
        return str(action)

    def _readable(self, agent: str, text: str) -> str:
        # Replies of models never raise: characters that tokenizers reject are replaced, and long texts are cut.
        return _LONE_SURROGATES.sub("\ufffd", text[: self.action_spaces[agent].max_length])

    def _read(self, agent: str, prompt: str | Sequence[Message]) -> None:
        if not isinstance(prompt, Sequence):
            kind = type(prompt).__name__
            raise TypeError(f"texts for {agent!r} must be a string or a sequence of messages, got {kind}: {prompt!r}")
        added = [Message("user", prompt)] if isinstance(prompt, str) else list(prompt)
        self._transcripts[agent] = self._transcripts[agent].extended(*added)

    def _record_reading(self, read: Mapping[str, Sequence[Message]]) -> None:
        """Add new messages to the joint history. Agents that read the same text share one entry."""
        readers: dict[str, list[str]] = {}
        for agent, messages in read.items():
            if messages:
                readers.setdefault("\n".join(map(_as_read, messages)), []).append(agent)
        self._joint = self._joint.extended(
            *(Message("user", f"[{', '.join(agents)} reads] {text}") for text, agents in readers.items())
        )

    def _observation(self, agent: str) -> Transcript:
        return capped(self._transcripts[agent], self.observation_spaces[agent].max_length)


def _checked_rewards(outcome: Outcome, movers: Sequence[str], agents: Sequence[str]) -> dict[str, float]:
    """Return the reward of each agent that acted, after checking the outcome.

    Raises:
        ValueError, TypeError: if a field of the outcome is invalid. The message contains the field and its value.
    """
    for name in ("feedback", "terms", "metrics", "rewritten"):
        value = getattr(outcome, name)
        if not isinstance(value, Mapping):
            raise TypeError(f"play() returned Outcome({name}={value!r}), but {name} must be a mapping; leave it out")
    if isinstance(outcome.finished, str) or not isinstance(outcome.finished, Iterable):
        raise TypeError(f"play() returned Outcome(finished={outcome.finished!r}), but finished must be a set of agents")
    given = outcome.reward if isinstance(outcome.reward, Mapping) else dict.fromkeys(movers, outcome.reward)
    for what, named in (
        ("gave feedback to {!r}", outcome.feedback),
        ("named {!r} in Outcome.finished", outcome.finished),
        ("named {!r} in Outcome.rewritten", outcome.rewritten),
        ("gave a reward to {!r}", given),
    ):
        if strangers := [agent for agent in named if agent not in agents]:
            raise ValueError(f"play() {what.format(strangers[0])}, which is not one of {list(agents)}")
    for name in ("terms", "metrics"):
        for key, value in getattr(outcome, name).items():
            if not _is_number(value):
                raise TypeError(f"play() returned {value!r} in Outcome.{name}[{key!r}], which is not a number")
    for agent in movers:
        if agent not in given:
            raise ValueError(f"play() gave no reward to {agent!r}, which acted in this turn; got rewards {dict(given)}")
        if not _is_number(given[agent]):
            raise TypeError(f"play() gave {agent!r} the reward {given[agent]!r}, which is not a number")
    return {agent: float(given[agent]) for agent in movers}


def _is_number(value: Any) -> bool:
    return isinstance(value, SupportsFloat) and not isinstance(value, Sequence)


def capped(transcript: Transcript, max_length: int) -> Transcript:
    """Shorten a transcript to at most `max_length` characters: keep its first message and its newest messages."""
    if len(transcript) <= max_length:
        return transcript
    first, *rest = transcript.messages
    head = first._replace(content=first.content[: max(0, max_length // 2 - 1)])
    room = max_length - len(head.content) - 1
    kept: list[Message] = []
    for message in reversed(rest):
        room -= len(message.content) + 1
        if room < 0:
            break
        kept.append(message)
    return Transcript((head, *reversed(kept)))
