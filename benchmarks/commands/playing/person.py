"""A person at one seat of an episode, whose replies are read from a stream of lines."""

from __future__ import annotations

from typing import Any, TextIO

from gymnasium.spaces import Text
from rich.console import Console

from ...._terminal import shown
from ...errors import UserError

END = "."
"""Line that ends a reply of several lines."""


class Person:
    """The player of one agent.

    Args:
        env: where the person plays.
        agent: its seat.
        lines: where its replies come from, such as the standard input.
        console: where it is asked.

    Raises:
        ValueError: if there is no such agent, or the agent does not write.
    """

    def __init__(self, env: Any, agent: str, lines: TextIO, console: Console):
        if agent not in env.possible_agents:
            raise ValueError(f"--human must be one of {', '.join(env.possible_agents)}, got {agent!r}")
        if not isinstance(env.action_space(agent), Text):
            raise ValueError(f"--human writes texts, but {agent!r} acts in {env.action_space(agent)}")
        self.agent = agent
        self._lines = lines
        self._console = console

    def reply(self) -> str:
        """The lines up to one that holds a single dot, or up to the end of the input.

        Raises:
            UserError: if the input has ended before.
        """
        asked = shown(f"Your reply as {self.agent}; a line with a single dot ends it:")
        self._console.print(asked, style="bold", markup=False)
        written: list[str] = []
        for line in self._lines:
            text = line.rstrip("\r\n")
            if text == END:
                return "\n".join(written)
            written.append(text)
        if not written:
            raise UserError(f"the input ended before the episode; {self.agent} has not replied")
        return "\n".join(written)
