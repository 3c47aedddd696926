"""The bases of the games: a picture of the world besides the text, and tasks from a source."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic

from ..core import TextParallelEnv
from .pictures import Colour, Picture, Row, ansi, drawn
from .sources import Source, T


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
    def panels(self) -> list[Row]:
        """The world as it stands: what is wanted, then what was built."""

    @abstractmethod
    def reference_reply(self, agent: str) -> str:
        """The scripted reference player's reply for this turn; if all follow it, they reach the documented maximum."""

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

    Args:
        agents: see `TextParallelEnv`.
        max_turns: turns of an episode.
        source: where the tasks come from.
        **kwargs: of `TextParallelEnv`.
    """

    def __init__(self, agents: Sequence[str], max_turns: int, source: Source[T], **kwargs: Any):
        super().__init__(agents, max_turns, **kwargs)
        self._source = source
        self.task: T = source.pick(0, self.rng)
        self.lay_out()  # what is rendered before the first episode is the first task

    @abstractmethod
    def lay_out(self) -> None:
        """Set the world to what it is before the first turn of `self.task`."""

    @abstractmethod
    def start(self) -> Mapping[str, str]:
        """Draw what else the episode needs, and return the prompts; the world is laid out."""

    def deal(self, task: Any) -> Mapping[str, str]:
        self.task = self._source.pick(task, self.rng)
        self.lay_out()
        return self.start()
