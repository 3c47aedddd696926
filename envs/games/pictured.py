"""Base classes of the games: rendering as a picture, and tasks from a source."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast, get_args

from ..core import Message, Outcome, TextParallelEnv, Transcript
from ..templates import Originals, Prompts, places_of, templates
from .pictures import Colour, PanelRow, Picture, ansi, drawn
from .sources import Difficulty, Source, T

Variant = Literal["ours", "published"]  # source of the default settings: this package, or the published task

Constructor = TypeVar("Constructor", bound=Callable[..., None])


def with_published(defaults: Mapping[str, Any]) -> Callable[[Constructor], Constructor]:
    """Return a decorator of constructors: with `variant="published"`, the given values replace the defaults.

    Explicit arguments take precedence, except `prompts=None`. The constructor must have the argument `variant`.
    """

    def decorated(construct: Constructor) -> Constructor:
        @wraps(construct)
        def chosen(*args: Any, **kwargs: Any) -> None:
            variant = kwargs.get("variant", "ours")
            refuse_other("variant", variant, get_args(Variant))
            if variant == "published":
                if kwargs.get("prompts") is None:
                    kwargs.pop("prompts", None)
                kwargs = {**defaults, **kwargs}
            construct(*args, **kwargs)

        return cast(Constructor, chosen)

    return decorated


def refuse_other(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def refuse_count(name: str, value: Any, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{name}={value!r} must be an integer from {low} to {high}")


Memory = Literal["all", "last", "none"]
"""Content of a history besides the first prompt and the newest feedback: all turns, the last reply, or nothing."""


class PicturedEnv(TextParallelEnv):
    """A text environment whose world is rendered as rows of panels.

    `render_mode` "rgb_array" returns a picture. "ansi" returns the histories and the world as letters, and "human"
    prints them, in color if the output is a terminal.
    """

    metadata: ClassVar[dict[str, Any]] = {
        **TextParallelEnv.metadata,
        "render_modes": [*TextParallelEnv.metadata["render_modes"], "rgb_array"],
    }
    block_letters: str
    """One letter for each kind of cell."""
    block_colours: Sequence[Colour]
    """One colour for each kind of cell."""

    @abstractmethod
    def panels(self) -> list[PanelRow]:
        """Return the panels that show the goal and the world."""

    @abstractmethod
    def reference(self, agent: str) -> str:
        """Return the scripted reference player's reply. A team of reference players gets the documented maximum."""

    def reference_reply(self, agent: str) -> str:
        if not self._transcripts:
            raise RuntimeError("no episode is running; call reset() first")
        return self.reference(agent)

    def picture(self) -> Picture:
        """Return the world as pixels of shape [height, width, 3]."""
        return drawn(self.panels(), self.block_colours)

    def scene(self) -> str:
        is_colourful = self.render_mode == "human" and sys.stdout.isatty()
        return ansi(self.panels(), self.block_letters, self.block_colours if is_colourful else None)

    def render(self) -> Any:
        return self.picture() if self.render_mode == "rgb_array" else super().render()


class TaskEnv(PicturedEnv, Generic[T]):
    """Base class of games in which each episode has one task from a source.

    If tasks are generated, `reset(options={"difficulty": "2-4"})` sets the difficulty of one episode, up to
    `metadata["highest_difficulty"]`. Infos have `metric/difficulty` if the difficulty is known.

    Args:
        agents: see `TextParallelEnv`.
        max_turns: turns of an episode.
        source: source of the tasks.
        memory: content of a history: "all" (the whole dialogue), "last" (the prompt and the last turn) or "none" (the
            prompt and the newest feedback).
        prompts: templates that replace the prompts, see `collm.envs.templates`.
        **kwargs: see `TextParallelEnv`.
    """

    own_prompt: ClassVar[str]
    """First prompt, a format string with the placeholders that `start` returns."""
    needed_place: ClassVar[str]
    """Placeholder of the task, which every prompt template must contain."""
    other_places: ClassVar[Mapping[str, bool]] = {}
    """Placeholders that only templates use. True: the placeholder can replace `needed_place`."""
    originals: Originals | None = None
    """Location of the published prompts. None: no published prompts exist."""

    def __init__(
        self,
        agents: Sequence[str],
        max_turns: int,
        source: Source[T],
        *,
        memory: Memory = "all",
        prompts: Prompts | None = None,
        **kwargs: Any,
    ):
        super().__init__(agents, max_turns, **kwargs)
        refuse_other("memory", memory, get_args(Memory))
        places = {**places_of(self.own_prompt, self.needed_place), **self.other_places}
        self._templates = templates(prompts, self.possible_agents, places, self.originals)
        self._source = source
        self._memory: Memory = memory
        if memory != "all":
            self.metadata = {**self.metadata, "append_only": False}  # type: ignore[misc]  # changes only this instance
        if source.highest is not None:
            self.metadata = {**self.metadata, "highest_difficulty": source.highest}  # type: ignore[misc]
        self._asked_difficulty: Difficulty | None = None
        self._fields: Mapping[str, Mapping[str, str | int]] = {}
        self._prompts: dict[str, Sequence[Message]] = {}
        self.task: T = source.pick(0, self.rng)
        self.lay_out()  # so that `render` works before the first episode

    @abstractmethod
    def lay_out(self) -> None:
        """Set the world to its state before the first turn of `self.task`."""

    @abstractmethod
    def start(self) -> Mapping[str, Mapping[str, str | int]]:
        """Sample the random values of an episode except its task. Return the placeholder values of each agent's prompt.

        In later turns, the feedback replaces the text of the placeholder "state", if the prompt has one.
        """

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Transcript], dict[str, dict[str, Any]]]:
        self._asked_difficulty = (options or {}).get("difficulty")
        return super().reset(seed, options)

    def deal(self, task: Any) -> Mapping[str, Sequence[Message]]:
        self.task = self._source.pick(task, self.rng, self._asked_difficulty)
        self.lay_out()
        self._fields = self.start()
        self._prompts = {
            agent: self._templates.opening(agent, fields, self.own_prompt.format(**fields))
            for agent, fields in self._fields.items()
        }
        return self._prompts

    @abstractmethod
    def turned(self, replies: Mapping[str, str]) -> Outcome:
        """Play a turn with the agents' replies; see `TextParallelEnv.play`."""

    def play(self, replies: Mapping[str, str]) -> Outcome:
        outcome = self.turned(replies)
        if self.task.difficulty is not None:
            outcome = replace(outcome, metrics={**outcome.metrics, "difficulty": float(self.task.difficulty)})
        if self._memory == "all":
            return outcome
        return replace(
            outcome,
            feedback={},
            rewritten={
                agent: self._rewritten(agent, replies[agent], outcome.feedback[agent]) for agent in outcome.feedback
            },
        )

    def _rewritten(self, agent: str, reply: str, feedback: str) -> list[Message]:
        *before, prompt = self._prompts[agent]
        if self._memory == "last":
            return [*before, prompt, Message("assistant", reply, agent), Message("user", feedback)]
        first = str(self._fields[agent].get("state", ""))
        text = prompt.content.replace(first, feedback) if first else f"{prompt.content}\n{feedback}"
        return [*before, prompt._replace(content=text)]
