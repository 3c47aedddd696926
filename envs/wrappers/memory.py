"""Wrapper that limits the length of observations in long episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from ..core import Message, ResetResult, Transcript, messages_of

Summary: TypeAlias = Callable[[Sequence[Message]], str]
"""Function: dropped messages, oldest first -> text that summarizes the messages."""


class LastTurns(BaseParallelWrapper[str, Any, Any]):
    """Shortens each observation to the prompt and the last turns. `state()` still returns the whole joint history.

    Args:
        env: an environment whose agents read texts.
        num_turns: number of turns that are kept, at least 1. A turn begins with the agent's own reply.
        summary: function that summarizes the dropped messages. The summary is added to the prompt. None: no summary.
    """

    def __init__(self, env: ParallelEnv[str, Any, Any], num_turns: int, summary: Summary | None = None):
        if num_turns < 1:
            raise ValueError(f"num_turns must be at least 1, got {num_turns}")
        super().__init__(env)
        self.metadata = {**env.metadata, "append_only": False}
        self._num_turns = num_turns
        self._summary = summary

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        observations, infos = self.env.reset(seed=seed, options=options)
        return {agent: self.remembered(text) for agent, text in observations.items()}, infos

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        observations, *rest = self.env.step(actions)
        return {agent: self.remembered(text) for agent, text in observations.items()}, *rest

    def remembered(self, history: str) -> Transcript:
        """Return a transcript of the prompt and the last `num_turns` turns of an agent's history."""
        messages = messages_of(history)
        replies = [place for place, message in enumerate(messages) if message.role == "assistant"]
        if len(replies) <= self._num_turns:
            return Transcript(messages)
        opening, left_out = messages[: replies[0]], messages[replies[0] : replies[-self._num_turns]]
        if self._summary is not None:
            told = self._summary(left_out)
            if not isinstance(told, str):
                raise TypeError(f"summary must return a text, got {told!r}")
            # Added to the last message, because some chat templates reject two messages with the same role in a row.
            *others, last = opening or (Message("user", ""),)
            opening = (*others, last._replace(content=f"{last.content}\n\n{told}".lstrip("\n")))
        return Transcript((*opening, *messages[replies[-self._num_turns] :]))
