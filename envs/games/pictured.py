"""The base of games that can be seen: besides the text, a picture of the world."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from ..core import TextParallelEnv
from .pictures import Colour, Picture, Row, ansi, drawn


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
