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
"""Observations and infos by agent."""
ENVIRONMENT = "environment"
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
_LATER_BRACKETS = re.compile("(?<=[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])\\[")  # at the start of a line, except the first


class Message(NamedTuple):
    """A message of a history."""

    role: str  # "system", "user" or "assistant", as in chat templates; "assistant" for the reader's own replies
    content: str
    author: str = ENVIRONMENT  # an agent's name, or "environment"


class Transcript(str):
    """A text history: a `str` that keeps its messages.

    The text is the content of each message, followed by a line feed. Chat models get `messages` through their chat
    template instead. Within an episode a transcript only grows at its end, unless the environment declares otherwise.
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
    """The messages of a transcript; any other text is one user message."""
    return observation.messages if isinstance(observation, Transcript) else (Message("user", str(observation)),)


def as_chat(messages: Iterable[Message]) -> list[dict[str, str]]:
    """Convert messages to the format of OpenAI's chat completions."""
    return [{"role": message.role, "content": message.content} for message in messages]


def answer_in(reply: str) -> str:
    """Return the part of a reply after the last "</think>", or the whole reply without this tag.

    A reply that begins with "<think>" and has no "</think>" was cut while the model was thinking; its answer is empty.
    """
    _, closed, answer = reply.rpartition("</think>")
    return "" if not closed and answer.lstrip().startswith("<think>") else answer


def written(agent: str, reply: str) -> Message:
    """The joint history's message for a reply; brackets are escaped, so that no line imitates another message."""
    return Message("user", f"[{agent} writes] {_LATER_BRACKETS.sub(' [', reply)}", agent)


def _as_read(message: Message) -> str:
    """The content of a message for the joint history, with replies escaped as in `written`."""
    reply = message.role == "assistant"
    return _LATER_BRACKETS.sub(" [", f"\n{message.content}")[1:] if reply else message.content


@dataclass(frozen=True)
class Outcome:
    """The result of a turn, returned by `TextParallelEnv.play`."""

    reward: float | Mapping[str, float]
    """Team reward, which every agent gets; or one reward per live agent."""
    feedback: Mapping[str, str] = field(default_factory=dict)
    """Text by agent that is added to its history after its own reply."""
    terms: Mapping[str, float] = field(default_factory=dict)
    """Terms of the reward, logged as reward/<term>."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Other metrics, logged as metric/<name>."""
    is_over: bool = False
    """True if the episode terminates before its last turn."""
    finished: frozenset[str] = frozenset()
    """Agents that terminate while the others continue."""
    rewritten: Mapping[str, Sequence[Message]] = field(default_factory=dict)
    """New histories by agent, in place of the old ones. The feedback is added to them."""


class TextParallelEnv(ParallelEnv[str, Transcript, str], ABC):
    """Base class of environments in which agents write texts in parallel for a number of turns.

    Observations are `Transcript`s, actions are strings. In a turn every live agent replies, `play` computes the result,
    and each agent's history grows by its own reply and its feedback. The last turn terminates the episode. An agent
    reads only its own history; `state()` is the joint history for a centralized critic. Text up to "</think>" is kept
    in the histories, but it is not part of the reply that is played.

    An episode is a function of the constructor's arguments, the seed and the actions. `copy.deepcopy` and `pickle` in
    the middle of an episode give an independent, identical environment.

    Args:
        agents: names, each a role and a number: "writer_0".
        max_turns: turns per episode, at least 1.
        render_mode: "ansi" (`render` returns the joint history as text), "human" (prints it), or None.
        max_action_length: maximum length of a reply in characters, without thoughts. Longer replies are cut and counted
            in `metric/cut_replies`.
        max_observation_length: maximum length of a history in characters. Longer histories lose their oldest messages
            after the first, which `metric/dropped_messages` counts.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "text_v0", "render_modes": ["ansi", "human"], "render_fps": 1}
    truth_metric: ClassVar[str | None] = None
    """Name of a metric in `Outcome.metrics`, 0 to 1, that measures the task independently of the reward, such as the
    share of passed tests. `collm check ID --red-team` compares the return with it. None: no such metric."""
    spec: Any = None  # the EnvSpec that built it; set by `make`
    task: Any = None
    """Task of the episode, for reward functions: a row of the data, a goal, a map. Set by `deal`."""

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
            raise ValueError(f"agents must be different names like 'writer_0', got {list(agents)}")
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

    # Methods of subclasses.

    @abstractmethod
    def deal(self, task: Any) -> Mapping[str, str | Sequence[Message]]:
        """Start an episode and return the prompt of each agent. Draw random numbers from `self.rng` only.

        Args:
            task: the task of `reset(options={"task": ...})`. None: draw one.
        """

    @abstractmethod
    def play(self, replies: Mapping[str, str]) -> Outcome:
        """Play a turn. Score any reply; never raise because of its content.

        Args:
            replies: the replies of all live agents, without thoughts (`answer_in`). `self.turn` counts earlier turns.
        """

    def scene(self) -> str:
        """Return the world as text, which `render` prints below the histories. It may have terminal colors.

        It must not contain text of agents, because its control characters are not escaped.
        """
        return ""

    def truth(self) -> str:
        """Return hidden facts about the world as text, for a privileged critic (`views.PrivilegedState`).

        They are in no observation and not in `state()`. The method changes nothing.
        """
        return ""

    def reference_reply(self, agent: str) -> str:
        """Return a good reply of this agent in the present state. The method changes nothing.

        Raises:
            NotImplementedError: if the environment has no reference replies.
        """
        raise NotImplementedError(f"{self} has no reference replies")

    def exploits(self) -> Mapping[str, Callable[[str], str]]:
        """Players of this environment that earn reward without doing the task: a function of an agent to its reply.

        `check_env(..., exploits=True)` plays them and its general ones (`checks.exploits`). They may read the whole
        world, and change nothing.
        """
        return {}

    @property
    def allowed_exploits(self) -> Mapping[str, str]:
        """Reasons by name of degenerate players whose reward is intended."""
        return {}

    def honest_players(self) -> Mapping[str, Callable[[str], str]]:
        """Players that do the task with an agent's observations only: a function of an agent to its reply.

        "silent" never tells its partners anything, "talking" does. The difference between their returns is the value of
        messages. They change nothing.
        """
        return {}

    def ceilings(self) -> Mapping[str, float]:
        """Exact mean returns of optimal play that lacks a skill, by the missing skill; empty if unknown."""
        return {}

    def absence(self, agent: str) -> str:
        """Reply that `wrappers.Shares` plays in place of an agent's replies to measure what they contribute."""
        return ""

    # PettingZoo's parallel API.

    @property
    def max_turns(self) -> int:
        """Maximum number of turns per episode."""
        return self._max_turns

    @cached_property
    def np_random(self) -> np.random.Generator:
        """NumPy generator for wrappers, seeded by `reset`. The environment itself draws from `rng` only."""
        # Created on use: it costs a tenth of a reset, and most runs never need it.
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
            seed: seed of the random generator. None: the generator continues.
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
            raise TypeError(f"deal() must return a prompt by agent, got {type(prompts).__name__}: {prompts!r}")
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
        """Play a turn with the replies of all live agents."""
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
        """Return the joint history in time order: what each agent read and wrote, with its name."""
        return capped(self._joint, self.state_space.max_length)

    def render(self) -> Any:
        """Return the joint history and the scene in mode "ansi", print them in mode "human"."""
        if self.render_mode == "ansi":
            return f"{self._joint}{self.scene()}"
        if self.render_mode == "human":
            print(f"{shown(self._joint)}{self.scene()}")
        return None

    def close(self) -> None:
        """Do nothing."""

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
        # Replies of models are data: characters that tokenizers refuse are replaced, long texts are cut.
        return _LONE_SURROGATES.sub("\ufffd", text[: self.action_spaces[agent].max_length])

    def _read(self, agent: str, prompt: str | Sequence[Message]) -> None:
        if not isinstance(prompt, Sequence):
            kind = type(prompt).__name__
            raise TypeError(f"{agent!r} must read text or a sequence of messages, got {kind}: {prompt!r}")
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
    """Return the reward of each mover, and refuse an outcome with wrong fields.

    Raises:
        ValueError, TypeError: with the field, the value, and the rule.
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
            raise ValueError(f"play() {what.format(strangers[0])}, who is none of {list(agents)}")
    for name in ("terms", "metrics"):
        for key, value in getattr(outcome, name).items():
            if not _is_number(value):
                raise TypeError(f"play() returned {value!r} in Outcome.{name}[{key!r}], which is no number")
    for agent in movers:
        if agent not in given:
            raise ValueError(f"play() gave no reward to {agent!r}, who moved; rewards were {dict(given)}")
        if not _is_number(given[agent]):
            raise TypeError(f"play() gave {agent!r} the reward {given[agent]!r}, which is no number")
    return {agent: float(given[agent]) for agent in movers}


def _is_number(value: Any) -> bool:
    return isinstance(value, SupportsFloat) and not isinstance(value, Sequence)


def capped(transcript: Transcript, max_length: int) -> Transcript:
    """Shorten a transcript to its first message and as many of its newest messages as fit."""
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
