"""Messages, transcripts, and `TextParallelEnv`, the base class of all text environments."""

from __future__ import annotations

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import Any, ClassVar, Literal, NamedTuple, SupportsFloat, TypeAlias, get_args

import numpy as np
from pettingzoo import ParallelEnv

from .._terminal import shown
from .spaces import WAITS, OpenText

Interests: TypeAlias = Literal["common", "mixed", "opposed"]
Infos: TypeAlias = dict[str, dict[str, Any]]
ResetResult: TypeAlias = tuple[dict[str, Any], Infos]
"""Result of `reset`: observations and infos. The keys are agents."""
StepResult: TypeAlias = tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], Infos]
"""Result of `step`: observations, rewards, terminations, truncations and infos. The keys are agents."""
THOUGHT, THOUGHT_END = "<think>", "</think>"
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
_LATER_BRACKETS = re.compile("(?<=[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])\\[")  # "[" at line starts, except the first line


class Message(NamedTuple):
    """A chat message in an agent's history."""

    role: str  # "system", "user" or "assistant", as in chat templates; "assistant" for the agent's own replies
    content: str
    author: str = "environment"  # name of the agent that wrote the text, or "environment"


class Transcript(str):
    """Text history of an agent: a `str` with the attribute `messages`.

    The string is the content of all messages, each followed by a line feed. Chat models read only `messages`.
    During an episode, messages are only appended, unless the environment's metadata["append_only"] is False.
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
    """Return the messages of a transcript. Any other string is returned as a single user message."""
    return observation.messages if isinstance(observation, Transcript) else (Message("user", str(observation)),)


def as_chat(messages: Iterable[Message]) -> list[dict[str, str]]:
    """Convert messages to a list of dicts in the format of OpenAI's chat completions API.

    Neighboring messages of one role are joined by an empty line, because many servers and chat templates refuse them.
    """
    return [
        {"role": role, "content": "\n\n".join(message.content for message in neighbors)}
        for role, neighbors in groupby(messages, key=attrgetter("role"))
    ]


def answer_in(reply: str) -> str:
    """Return the part of a model's reply after its last "</think>", or the whole reply if it has no such tag.

    If this part begins with "<think>", the model used up its tokens while thinking: return "".
    """
    answer = reply.rpartition(THOUGHT_END)[2]
    return "" if answer.lstrip().startswith(THOUGHT) else answer


def written(agent: str, reply: str) -> Message:
    """Format an agent's reply as a message of the joint history: "[agent writes] reply".

    A space is added before each line that starts with "[". Otherwise, a reply could imitate messages of other agents.
    """
    return Message("user", f"[{agent} writes] {_LATER_BRACKETS.sub(' [', reply)}", agent)


def joint_reading(read: Mapping[str, Sequence[Message]]) -> list[Message]:
    """Format messages that agents read as messages of the joint history: "[agent reads] text".

    Agents that read equal texts share one message.
    """
    readers: dict[str, list[str]] = {}
    for agent, messages in read.items():
        if messages:
            texts = [
                _LATER_BRACKETS.sub(" [", f"\n{text}")[1:] if role == "assistant" else text
                for role, text, _ in messages
            ]
            readers.setdefault("\n".join(texts), []).append(agent)
    return [Message("user", f"[{', '.join(agents)} reads] {text}") for text, agents in readers.items()]


@dataclass(frozen=True)
class Outcome:
    """Result of one turn, returned by `TextParallelEnv.play`.

    Args:
        reward: team reward, which every agent gets, or a mapping: live agent -> reward.
        feedback: mapping: agent -> text that is appended to the agent's history after its own reply.
        terms: parts of the reward by name, logged as reward/<name>.
        metrics: other numbers by name, logged as metric/<name>.
        is_over: True: the episode terminates with this turn, for all agents.
        finished: agents whose episode terminates with this turn while the other agents continue.
        rewritten: mapping: agent -> messages that replace the agent's history. `feedback` is appended to these.
        movers: agents that act in the next turn. The other live agents wait. None: all live agents act.
    """

    reward: float | Mapping[str, float]
    feedback: Mapping[str, str] = field(default_factory=dict)
    terms: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    is_over: bool = False
    finished: frozenset[str] = frozenset()
    rewritten: Mapping[str, Sequence[Message]] = field(default_factory=dict)
    movers: Collection[str] | None = None


def declared_interests(env: Any) -> Interests:
    """Return the `interests` of an environment or of the environment inside its wrappers. Default: "common"."""
    found: Interests = getattr(env, "interests", getattr(env.unwrapped, "interests", "common"))
    if found not in get_args(Interests):
        raise ValueError(f"interests={found!r} of {env} must be one of {', '.join(get_args(Interests))}")
    return found


class TextParallelEnv(ParallelEnv[str, Transcript, str], ABC):
    """Base class of environments in which agents write texts in parallel for a number of turns.

    Subclasses define two methods: `deal` starts an episode and `play` plays a turn. Actions are strings. Observations
    are `Transcript`s: each agent observes its own history. In each turn, every live agent replies, `play` computes the
    result, and each agent's reply and feedback are appended to its history. Turn `max_turns` terminates the episode.
    `state()` returns the joint history of all agents, for centralized critics. `play` gets the replies without the text
    before "</think>", which stays in the histories.

    Episodes are deterministic given the constructor's arguments, the seed and the actions. During an episode, an
    environment can be copied with `copy.deepcopy` or `pickle`; the copy continues the same episode independently.

    Args:
        agents: agent names of the form role_number, such as "writer_0".
        max_turns: turns per episode, at least 1.
        render_mode: "ansi" (`render` returns the joint history as text), "human" (prints it), or None.
        max_action_length: maximum length of a reply in characters, without text before "</think>". Longer replies are
            cut, and counted in `metric/cut_replies`.
        max_observation_length: maximum length of a history in characters. In longer histories, the oldest messages
            except the first are dropped, and counted in `metric/dropped_messages`.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "text_v0", "render_modes": ["ansi", "human"], "render_fps": 1}
    interests: Interests = "common"
    """Relation of the agents' rewards: equal ("common"), with a constant sum ("opposed"), or neither ("mixed")."""
    truth_metric: ClassVar[str | None] = None
    """Name of a metric in `Outcome.metrics`, from 0 to 1, that measures success independently of the reward, such as
    the fraction of passed tests. `collm check ID --red-team` compares the return with this metric. None: no metric."""
    protocol_instructions: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Additional instructions if agents reply in a pipeline or a discussion: protocol name -> agent -> text."""
    spec: Any = None  # the EnvSpec from which `make` built this environment
    task: Any = None
    """Task of the running episode: a data row, a goal or a map. Set by `deal` and read by reward functions."""

    def __init__(
        self,
        agents: Sequence[str],
        max_turns: int,
        *,
        render_mode: str | None = None,
        max_action_length: int = 16_384,
        max_observation_length: int = 1_048_576,
    ):
        limits = {"max_turns": max_turns, "max_action_length": max_action_length}
        for name, limit in (limits | {"max_observation_length": max_observation_length}).items():
            if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
                raise ValueError(f"{name} must be at least 1, got {limit}")
        wrong = [name for name in agents if not re.fullmatch(r"[a-z]+(_[a-z]+)*_[0-9]+", name)]
        if wrong or not agents or len(set(agents)) < len(agents):
            raise ValueError(f"agents must be unique names like 'writer_0', got {list(agents)}")
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(f"render_mode must be None or one of {self.metadata['render_modes']}, got {render_mode!r}")
        self.possible_agents = list(agents)
        self.agents: list[str] = []
        self.movers: list[str] = []
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
        """Start an episode and return each agent's prompt: a text or messages. Use only `self.rng` for random numbers.

        If some agents wait in the first turn, set `self.movers` to the agents that act.

        Args:
            task: task from `reset(options={"task": ...})`. None: sample a task.
        """

    @abstractmethod
    def play(self, replies: Mapping[str, str]) -> Outcome:
        """Play one turn and return its result. Any reply must get a reward; a bad reply must not raise an error.

        `self.turn` is the number of earlier turns in the episode.

        Args:
            replies: reply of each agent in `self.movers`, without the text before "</think>".
        """

    def scene(self) -> str:
        """Return the environment's state as text, which `render` shows below the joint history.

        ANSI color codes are allowed. Do not include text of agents, because its control characters are not escaped.
        """
        return ""

    def truth(self) -> str:
        """Return hidden information of the environment as text, for a privileged critic (`views.PrivilegedState`).

        Observations and `state()` do not contain this text. The method must not change the environment.
        """
        return ""

    def reference_reply(self, agent: str) -> str:
        """Return a good reply of an agent in the current turn. The method must not change the environment.

        Raises:
            NotImplementedError: if the environment has no reference replies.
        """
        raise NotImplementedError(f"{self} has no reference replies; define reference_reply(agent)")

    def exploits(self) -> Mapping[str, Callable[[str], str]]:
        """Return scripted policies that may get reward without doing the task: name -> function (agent -> reply).

        `check_env(..., exploits=True)` measures the return of each policy. The functions may read hidden information of
        the environment, but must not change the environment.
        """
        return {}

    def partners(self) -> Mapping[str, Callable[[str], str]]:
        """Return scripted partners that play the game honestly: name -> function (agent -> reply).

        Teams are tested with these strangers (`collm crossplay --partners`). Names that end with "-held-out" are for
        tests only; the other partners may also be used in training. The functions must not change the environment.
        """
        return {}

    @property
    def allowed_exploits(self) -> Mapping[str, str]:
        """Scripted policies for which `check_env` accepts a high return, as a dict: name of the policy -> reason."""
        return {}

    def honest_players(self) -> Mapping[str, Callable[[str], str]]:
        """Return scripted policies that read only observations, as a dict: name -> function (agent -> reply).

        The policy "talking" sends information to the other agents. The policy "silent" sends none. The difference of
        both returns is the benefit of communication. The functions must not change the environment.
        """
        return {}

    def ceilings(self) -> Mapping[str, float]:
        """Return known mean returns of ideal teams, averaged over the agents. {}: unknown.

        Usual names: "optimum", "equilibrium", "silent" (best team without messages), "strangers" (best team without a
        common convention). Other names are skills that a team lacks, such as {"no memory": 0.5}.
        """
        return {}

    def absence(self, agent: str) -> str:
        """Return a reply without content, with which `wrappers.Shares` measures the agent's share of the return."""
        return ""

    # PettingZoo's parallel API.

    @property
    def max_turns(self) -> int:
        """Maximum number of turns per episode."""
        return self._max_turns

    @cached_property
    def np_random(self) -> np.random.Generator:
        """NumPy generator for wrappers, seeded by `reset`. The environment itself uses only `rng`."""
        # Created on first use, because it takes a tenth of the time of a reset and most runs do not use it.
        return np.random.default_rng(None if self._np_seed is None else self._np_seed % 2**64)

    def observation_space(self, agent: str) -> OpenText:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> OpenText:
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Transcript], Infos]:
        """Start an episode.

        Args:
            seed: seed of the random generator. None: the generator is not seeded again.
            options: {"task": ...} selects the task. Other keys are ignored.
        """
        if seed is not None or not self._transcripts:
            self._np_seed = None if seed is None else int(seed)
            self.rng = random.Random(self._np_seed)
            self.__dict__.pop("np_random", None)
        self.agents = list(self.possible_agents)
        self.movers = list(self.agents)
        self.turn = 0
        prompts = self.deal((options or {}).get("task"))
        if not isinstance(prompts, Mapping):
            raise TypeError(f"deal() must return a dict agent -> prompt, got {type(prompts).__name__}: {prompts!r}")
        if missing := set(self.agents) ^ set(prompts):
            raise ValueError(f"deal() must return one prompt for each of {self.agents}; wrong or missing: {missing}")
        self._transcripts = {agent: Transcript() for agent in self.agents}
        for agent in self.agents:
            self._read(agent, prompts[agent])
        self._joint = Transcript(joint_reading({agent: self._transcripts[agent].messages for agent in self.agents}))
        self.movers = self._next_movers(self.movers)
        return {agent: self._observation(agent) for agent in self.agents}, self._waits()

    def step(
        self, actions: Mapping[str, str]
    ) -> tuple[dict[str, Transcript], dict[str, float], dict[str, bool], dict[str, bool], Infos]:
        """Play one turn with `actions`: agent -> reply.

        Replies of agents that wait (`infos[agent]["waits"]` is True) may be left out and are ignored.
        """
        live, movers = list(self.agents), self.movers
        if not live:
            raise RuntimeError("no episode is running; call reset() first")
        written_out = {agent: self._checked(agent, actions) for agent in movers}
        replies = {agent: self._readable(agent, text) for agent, text in written_out.items()}
        answers = {agent: self._readable(agent, answer_in(text)) for agent, text in written_out.items()}
        cut = sum(len(answer_in(text)) > len(answers[agent]) for agent, text in written_out.items())
        outcome = self.play(answers)
        if not isinstance(outcome, Outcome):
            raise TypeError(f"play() must return an Outcome, got {type(outcome).__name__}: {outcome!r}")
        rewards = _checked_rewards(outcome, live, self.possible_agents)
        self.turn += 1
        for agent in movers:
            self._transcripts[agent] = self._transcripts[agent].extended(Message("assistant", replies[agent], agent))
        self._joint = self._joint.extended(*(written(agent, replies[agent]) for agent in movers))
        known = {agent: len(self._transcripts[agent].messages) for agent in live}
        for agent, history in outcome.rewritten.items():
            self._transcripts[agent], known[agent] = Transcript(history), 0
        for agent, text in outcome.feedback.items():
            self._read(agent, text)
        read = {agent: self._transcripts[agent].messages[known[agent] :] for agent in live}
        self._joint = self._joint.extended(*joint_reading(read))
        is_over = outcome.is_over or self.turn >= self._max_turns
        terminations = {agent: is_over or agent in outcome.finished for agent in live}
        observations = {agent: self._observation(agent) for agent in live}
        self.agents = [agent for agent in live if not terminations[agent]]
        self.movers = self._next_movers(outcome.movers)
        numbers = {f"reward/{name}": float(value) for name, value in outcome.terms.items()}
        numbers |= {f"metric/{name}": float(value) for name, value in outcome.metrics.items()}
        if cut:
            numbers["metric/cut_replies"] = float(cut)
        infos: Infos = {agent: dict(numbers) for agent in live}
        for agent, waits in self._waits().items():
            infos[agent] |= waits
        for agent in live:
            if dropped := len(self._transcripts[agent].messages) - len(observations[agent].messages):
                infos[agent]["metric/dropped_messages"] = float(dropped)
        return observations, rewards, terminations, dict.fromkeys(live, False), infos

    def state(self) -> Transcript:
        """Return the joint history: all texts that agents read or wrote, in time order, with the agents' names."""
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

    def _next_movers(self, named: Collection[str] | None) -> list[str]:
        """Return the live agents that act in the next turn, in the order of `agents`."""
        if named is None or not self.agents:
            return list(self.agents)
        strangers = [agent for agent in named if agent not in self.possible_agents]
        movers = [agent for agent in self.agents if agent in named]
        if isinstance(named, str) or strangers or not movers:
            raise ValueError(f"movers must name at least one of the live agents {self.agents}, got {named!r}")
        return movers

    def _waits(self) -> Infos:
        return {agent: {} if agent in self.movers else {WAITS: True} for agent in self.agents}

    def _checked(self, agent: str, actions: Mapping[str, str]) -> str:
        if agent not in actions:
            raise ValueError(f"step() needs a reply of each agent that acts, {self.movers}; {agent!r} is missing")
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

    def _observation(self, agent: str) -> Transcript:
        return capped(self._transcripts[agent], self.observation_spaces[agent].max_length)


def _checked_rewards(outcome: Outcome, live: Sequence[str], agents: Sequence[str]) -> dict[str, float]:
    """Return the reward of each live agent. Raises ValueError or TypeError if the outcome is invalid."""
    for name in ("feedback", "terms", "metrics", "rewritten"):
        value = getattr(outcome, name)
        if not isinstance(value, Mapping):
            raise TypeError(
                f"play() returned Outcome({name}={value!r}), but {name} must be a mapping; leave {name} out"
            )
    if isinstance(outcome.finished, str) or not isinstance(outcome.finished, Iterable):
        raise TypeError(f"play() returned Outcome(finished={outcome.finished!r}), but finished must be a set of agents")
    given = outcome.reward if isinstance(outcome.reward, Mapping) else dict.fromkeys(live, outcome.reward)
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
    for agent in live:
        if agent not in given:
            raise ValueError(f"play() gave no reward to {agent!r}, which is in the episode; got rewards {dict(given)}")
        if not _is_number(given[agent]):
            raise TypeError(f"play() gave {agent!r} the reward {given[agent]!r}, which is not a number")
    return {agent: float(given[agent]) for agent in live}


def _is_number(value: Any) -> bool:
    return isinstance(value, SupportsFloat) and not isinstance(value, Sequence)


def capped(transcript: Transcript, max_length: int) -> Transcript:
    """Shorten a transcript to at most `max_length` characters: keep the first message and the newest messages."""
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
