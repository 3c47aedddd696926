"""The bases of the games: a picture of the world besides the text, and tasks from a source."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast, get_args

from ..core import Message, Outcome, TextParallelEnv, Transcript
from ..templates import Prompts, places_of, templates
from .pictures import Colour, PanelRow, Picture, ansi, drawn
from .sources import Difficulty, Source, T

Variant = Literal["ours", "published"]
"""Whose defaults: this package's, or those of the published task."""

Constructor = TypeVar("Constructor", bound=Callable[..., None])


def with_published(defaults: Mapping[str, Any]) -> Callable[[Constructor], Constructor]:
    """Let a constructor's argument `variant` choose between its own defaults and the published ones.

    An argument that is given counts before either. The constructor takes `variant` too, and sees which one it is.

    Args:
        defaults: the published values of those arguments whose own defaults differ.
    """

    def decorated(construct: Constructor) -> Constructor:
        @wraps(construct)
        def chosen(*args: Any, **kwargs: Any) -> None:
            variant = kwargs.get("variant", "ours")
            refuse_other("variant", variant, get_args(Variant))
            construct(*args, **({**defaults, **kwargs} if variant == "published" else kwargs))

        return cast(Constructor, chosen)

    return decorated


def refuse_other(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise if a setting is none of its choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


Memory = Literal["all", "last", "none"]
"""What stands in a history besides the first prompt and the newest feedback: all turns, the own last reply, nothing."""


class PicturedEnv(TextParallelEnv):
    """A text environment whose world is rows of panels.

    `render_mode` "rgb_array" returns a picture; "ansi" the histories and the world in letters; "human" prints the
    same, in colour where the output is a terminal.
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
        """The world as it stands: what is wanted, then what was built."""

    @abstractmethod
    def reference(self, agent: str) -> str:
        """The scripted reference player's reply for this turn; if all follow it, they reach the documented maximum."""

    def reference_reply(self, agent: str) -> str:
        """The scripted reference player's reply for this turn, with full knowledge of the task.

        Raises:
            RuntimeError: before the first episode.
        """
        if not self._transcripts:
            raise RuntimeError("no episode is running; call reset() first")
        return self.reference(agent)

    def picture(self) -> Picture:
        """The world in pixels, [height, width, 3]."""
        return drawn(self.panels(), self.block_colours)

    def scene(self) -> str:
        is_colourful = self.render_mode == "human" and sys.stdout.isatty()
        return ansi(self.panels(), self.block_letters, self.block_colours if is_colourful else None)

    def render(self) -> Any:
        return self.picture() if self.render_mode == "rgb_array" else super().render()


class TaskEnv(PicturedEnv, Generic[T]):
    """A game whose every episode is one task of a source.

    Where tasks are generated, `reset(options={"difficulty": "2-4"})` says how hard this episode's is, in place of the
    setting; `metadata["highest_difficulty"]` is the highest one. Infos tell `metric/difficulty` where it is known.

    Args:
        agents: see `TextParallelEnv`.
        max_turns: turns of an episode.
        source: where the tasks come from.
        memory: what stays in a history: "all" (a dialogue), "last" (the prompt and the last turn) or "none" (the prompt
            and the newest feedback).
        prompts: templates in place of the own prompts, see `collm.envs.templates`.
        **kwargs: of `TextParallelEnv`.
    """

    own_prompt: ClassVar[str]
    """What an agent reads first, a format string of the fields of `start`."""
    needed_place: ClassVar[str]
    """Field that tells the task, which templates of a user need."""

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
        self._templates = templates(prompts, self.possible_agents, places_of(self.own_prompt, self.needed_place))
        self._source = source
        self._memory: Memory = memory
        if memory != "all":
            self.metadata = {**self.metadata, "append_only": False}  # type: ignore[misc]  # of this one alone
        if source.highest is not None:
            self.metadata = {**self.metadata, "highest_difficulty": source.highest}  # type: ignore[misc]
        self._asked_difficulty: Difficulty | None = None
        self._fields: Mapping[str, Mapping[str, str | int]] = {}
        self._prompts: dict[str, Sequence[Message]] = {}
        self.task: T = source.pick(0, self.rng)
        self.lay_out()  # what is rendered before the first episode is the first task

    @abstractmethod
    def lay_out(self) -> None:
        """Set the world to what it is before the first turn of `self.task`."""

    @abstractmethod
    def start(self) -> Mapping[str, Mapping[str, str | int]]:
        """Draw what else the episode needs, and return the fields of each agent's prompt; the world is laid out.

        The field "state", if there is one, is what a later turn's feedback says anew.
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
        """What came of one joint turn; see `TextParallelEnv.play`."""

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
        """A history of which only so much is kept as the memory says."""
        *before, prompt = self._prompts[agent]
        if self._memory == "last":
            return [*before, prompt, Message("assistant", reply, agent), Message("user", feedback)]
        first = str(self._fields[agent].get("state", ""))
        text = prompt.content.replace(first, feedback) if first else f"{prompt.content}\n{feedback}"
        return [*before, prompt._replace(content=text)]
