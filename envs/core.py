"""Messages, transcripts, and the base class of all text environments.

An author of an environment fills two hooks, `deal` (how an episode starts) and `play` (what a joint turn does). The
base class keeps the histories, the spaces, the random generator and PettingZoo's parallel API.
"""

from __future__ import annotations

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, SupportsFloat

import numpy as np
from pettingzoo import ParallelEnv

from .._terminal import shown
from .spaces import OpenText

ENVIRONMENT = "environment"
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
_LATER_BRACKETS = re.compile("(?<=[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])\\[")  # at the beginning of a line but the first


class Message(NamedTuple):
    """One piece of a history."""

    role: str  # "system", "user" or "assistant", as in chat templates: the reader's own texts are "assistant"
    content: str
    author: str = ENVIRONMENT  # who wrote it: an agent's name, or "environment"


class Transcript(str):
    """A text history: a `str`, so that it lies in a text space, that remembers the messages it was rendered from.

    The text is every message's content, each followed by a line end. A chat model is fed `messages` through its
    template instead. Within an episode a transcript only grows at its end, unless its environment says otherwise.
    """

    messages: tuple[Message, ...]

    def __new__(cls, messages: Iterable[Message] = ()) -> Transcript:
        kept = tuple(messages)
        self = super().__new__(cls, "".join(f"{message.content}\n" for message in kept))
        self.messages = kept
        return self

    def extended(self, *messages: Message) -> Transcript:
        """This history with messages added at its end."""
        return Transcript((*self.messages, *messages))

    def __reduce__(self) -> tuple[Any, ...]:
        return Transcript, (self.messages,)

    def __copy__(self) -> Transcript:
        return self

    def __deepcopy__(self, memo: Any) -> Transcript:
        return self


def messages_of(observation: str) -> tuple[Message, ...]:
    """The messages of a transcript; any other text counts as one user message."""
    return observation.messages if isinstance(observation, Transcript) else (Message("user", str(observation)),)


def as_chat(messages: Iterable[Message]) -> list[dict[str, str]]:
    """Messages in the format of OpenAI's chat completions, built anew."""
    return [{"role": message.role, "content": message.content} for message in messages]


def answer_in(reply: str) -> str:
    """What a reply says after its thoughts: the text behind the last "</think>".

    A reply without the mark is an answer as a whole, unless it begins with "<think>": then it broke off in thought.
    """
    _, closed, answer = reply.rpartition("</think>")
    return "" if not closed and answer.lstrip().startswith("<think>") else answer


def written(agent: str, reply: str) -> Message:
    """How an agent's reply stands in the joint history; no line in it can pass for the beginning of another's."""
    return Message("user", f"[{agent} writes] {_LATER_BRACKETS.sub(' [', reply)}", agent)


def _as_read(message: Message) -> str:
    """How a message stands in the joint history, which it is read from: a reply as `written`, all else as it is."""
    reply = message.role == "assistant"
    return _LATER_BRACKETS.sub(" [", f"\n{message.content}")[1:] if reply else message.content


@dataclass(frozen=True)
class Outcome:
    """What one joint turn did."""

    reward: float | Mapping[str, float]
    """The team's reward, given to every agent; or one reward for each agent that moved."""
    feedback: Mapping[str, str] = field(default_factory=dict)
    """What an agent reads next, after its own reply; agents left out read nothing."""
    terms: Mapping[str, float] = field(default_factory=dict)
    """The parts of the reward, logged as reward/<term>."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Other measures of the turn, logged as metric/<name>."""
    is_over: bool = False
    """True if the game ends here, before its last turn."""
    finished: frozenset[str] = frozenset()
    """Agents that leave while the others play on."""
    rewritten: Mapping[str, Sequence[Message]] = field(default_factory=dict)
    """Whole new histories, for agents whose past is not kept; the feedback is added after them."""


class TextParallelEnv(ParallelEnv[str, Transcript, str], ABC):
    """Several agents that read and write text, all at once, for a number of turns.

    Observations are `Transcript`s, actions are strings. One turn: every live agent replies, `play` says what came of
    it, and each agent's history grows by its own reply and by its feedback. The last turn terminates the episode. An
    agent reads only what the environment feeds it; `state()` is the joint history that a centralized critic may read.
    What a reasoning model thinks before "</think>" stands in the histories, and is no part of the reply that is played.

    An episode is a function of the constructor's arguments, the seed and the actions; `copy.deepcopy` and `pickle` in
    the middle of an episode give an independent, identical branch.

    Args:
        agents: names, each a role and a number: "writer_0".
        max_turns: turns of an episode, at least 1; the last one terminates it.
        render_mode: "ansi" (`render` returns the joint history as text), "human" (prints it), or None.
        max_action_length: characters of a reply that are read, thoughts aside; what is longer is cut, and counted in
            `metric/cut_replies`.
        max_observation_length: characters of a history; where it grows longer the oldest messages after the first
            give way, which `metric/dropped_messages` counts.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "text_v0", "render_modes": ["ansi", "human"], "render_fps": 1}
    truth_metric: ClassVar[str | None] = None
    """Name of a metric in `Outcome.metrics` that measures the task independently of the reward, 0 to 1. An example is
    the share of tests passed. `collm check ID --red-team` compares the return with it. None: no such metric."""
    spec: Any = None  # the EnvSpec it was made from; set by `make`
    task: Any = None
    """What the episode is about, for those who judge it: a row of the data, a goal, a map; set by `deal`."""

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

    # What an author fills.

    @abstractmethod
    def deal(self, task: Any) -> Mapping[str, str | Sequence[Message]]:
        """Start an episode, with all randomness from `self.rng`; return what each agent reads first.

        `task` is what `reset(options={"task": ...})` asked for, or None: draw one.
        """

    @abstractmethod
    def play(self, replies: Mapping[str, str]) -> Outcome:
        """What came of one joint turn; `self.turn` counts the turns before it. Score any reply, never raise.

        The replies are those of all live agents, without what a model thought first (`answer_in`).
        """

    def scene(self) -> str:
        """The world as text, shown below the histories by `render`; empty where there is none.

        A terminal gets it as it is, with its colours: what agents wrote has no place in it.
        """
        return ""

    def truth(self) -> str:
        """What is true of the world now and hidden from the agents, as text; empty where nothing is hidden.

        For a privileged critic (`views.PrivilegedState`) alone: it stands in no observation, nor in `state()`. Reading
        it changes nothing.
        """
        return ""

    def reference_reply(self, agent: str) -> str:
        """A good reply of this agent now: a yardstick, and what stands in for a partner. Reading it changes nothing.

        Raises:
            NotImplementedError: where the environment knows none.
        """
        raise NotImplementedError(f"{self} knows no reference replies")

    def exploits(self) -> Mapping[str, Callable[[str], str]]:
        """Players of your own that earn without doing the task, by name: an agent's name -> its reply now.

        `check_env(..., exploits=True)` plays them beside the general ones (`checks.exploits`). Like `reference_reply`
        they may read the whole world, and change nothing.
        """
        return {}

    @property
    def allowed_exploits(self) -> Mapping[str, str]:
        """Degenerate players that the game pays on purpose, by name, each with the reason."""
        return {}

    def honest_players(self) -> Mapping[str, Callable[[str], str]]:
        """Players that do the task and read no more than an agent reads: an agent's name -> its reply now.

        "silent" never tells its partners anything, "talking" does. The difference between their returns is what
        messages are worth. They change nothing.
        """
        return {}

    def ceilings(self) -> Mapping[str, float]:
        """Mean returns of errorless play that lacks something, computed exactly, by what it lacks; empty: not known.

        Between the floor and the reference they say which return needs which skill.
        """
        return {}

    def absence(self, agent: str) -> str:
        """What stands for an agent's replies where it is left out, to see what they were worth (`wrappers.Shares`)."""
        return ""

    # PettingZoo's parallel API.

    @property
    def max_turns(self) -> int:
        """Turns of an episode, if nothing ends it before."""
        return self._max_turns

    @cached_property
    def np_random(self) -> np.random.Generator:
        """A NumPy generator for wrappers, seeded by `reset`. The environment itself draws from `rng` only."""
        # Made on use: it costs a tenth of a reset, and most runs never need it.
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
            seed: starts everything random in it; None goes on with the generator as it stands.
            options: {"task": ...} picks the task; other keys are ignored.
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
        """Play one joint turn: a reply for each live agent."""
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
        _check_outcome(outcome, movers, self.possible_agents)
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
        rewards = outcome.reward if isinstance(outcome.reward, Mapping) else dict.fromkeys(movers, outcome.reward)
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
        return (
            observations,
            {agent: _reward(agent, rewards) for agent in movers},
            terminations,
            dict.fromkeys(movers, False),
            infos,
        )

    def state(self) -> Transcript:
        """The joint history, in order of time: what each agent read and wrote, with its name."""
        return capped(self._joint, self.state_space.max_length)

    def render(self) -> Any:
        """The joint history and the scene: a string in mode "ansi", printed in mode "human"."""
        if self.render_mode == "ansi":
            return f"{self._joint}{self.scene()}"
        if self.render_mode == "human":
            print(f"{shown(self._joint)}{self.scene()}")  # a scene is drawn here, and may have colours
        return None

    def close(self) -> None:
        """Nothing is held."""

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
        # A model's own fault is data: what no tokenizer could read again is replaced, what is too long is cut.
        return _LONE_SURROGATES.sub("\ufffd", text[: self.action_spaces[agent].max_length])

    def _read(self, agent: str, prompt: str | Sequence[Message]) -> None:
        if not isinstance(prompt, Sequence):
            raise TypeError(
                f"{agent!r} must read text or a sequence of messages, got {type(prompt).__name__}: {prompt!r}"
            )
        added = [Message("user", prompt)] if isinstance(prompt, str) else list(prompt)
        self._transcripts[agent] = self._transcripts[agent].extended(*added)

    def _record_reading(self, read: Mapping[str, Sequence[Message]]) -> None:
        """Add what was just read to the joint history, once where all agents read the same."""
        texts = {agent: "\n".join(map(_as_read, messages)) for agent, messages in read.items()}
        readers: dict[str, list[str]] = {}
        for agent, text in texts.items():
            if read[agent]:
                readers.setdefault(text, []).append(agent)
        self._joint = self._joint.extended(
            *(Message("user", f"[{', '.join(agents)} reads] {text}") for text, agents in readers.items())
        )

    def _observation(self, agent: str) -> Transcript:
        return capped(self._transcripts[agent], self.observation_spaces[agent].max_length)


def _check_outcome(outcome: Outcome, movers: Sequence[str], agents: Sequence[str]) -> None:
    """Refuse an outcome that an author has filled wrongly.

    Raises:
        ValueError, TypeError: naming the field, the value, and what belongs there.
    """
    for name in ("feedback", "terms", "metrics", "rewritten"):
        value = getattr(outcome, name)
        if not isinstance(value, Mapping):
            raise TypeError(f"play() returned Outcome({name}={value!r}), but {name} must be a mapping; leave it out")
    for agent in outcome.feedback:
        if agent not in agents:
            raise ValueError(f"play() gave feedback to {agent!r}, who is none of {list(agents)}")
    for name, named in (("finished", outcome.finished), ("rewritten", outcome.rewritten)):
        if isinstance(named, str) or not isinstance(named, Iterable):
            raise TypeError(f"play() returned Outcome({name}={named!r}), but {name} must be a set of agents")
        if strangers := [agent for agent in named if agent not in agents]:
            raise ValueError(f"play() named {strangers[0]!r} in Outcome.{name}, who is none of {list(agents)}")
    for name in ("terms", "metrics"):
        for key, value in getattr(outcome, name).items():
            if not isinstance(value, SupportsFloat) or isinstance(value, Sequence):
                raise TypeError(f"play() returned {value!r} in Outcome.{name}[{key!r}], which is no number")
    rewards = outcome.reward if isinstance(outcome.reward, Mapping) else dict.fromkeys(movers, outcome.reward)
    for agent in movers:
        _reward(agent, rewards)
    if strangers := [agent for agent in rewards if agent not in agents]:
        raise ValueError(f"play() gave a reward to {strangers[0]!r}, who is none of {list(agents)}")


def _reward(agent: str, rewards: Mapping[str, Any]) -> float:
    if agent not in rewards:
        raise ValueError(f"play() gave no reward to {agent!r}, who moved; rewards were {dict(rewards)}")
    reward = rewards[agent]
    if not isinstance(reward, SupportsFloat) or isinstance(reward, Sequence):
        raise TypeError(f"play() gave {agent!r} the reward {reward!r}, which is no number")
    return float(reward)


def capped(transcript: Transcript, max_length: int) -> Transcript:
    """The transcript within the space: its first message and as many of its newest as fit."""
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
