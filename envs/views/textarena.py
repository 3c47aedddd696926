"""Games of TextArena as environments for one player."""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, ClassVar

from ..._errors import UserError
from ..core import Message, Outcome, TextParallelEnv, Transcript
from .single_agent import Partner


class TextArena(TextParallelEnv):
    """Environment for one player of a TextArena game. A turn is a move of this player, then of the others.

    The reward is TextArena's reward at the end of the game. Messages begin with the name of the player who wrote them.
    Needs `pip install textarena`.

    Args:
        game: a game id of TextArena. Prefer ids with the ending "-raw": other ids add wrappers that join all messages.
        num_players: number of players.
        seat: index of this player, from 0 to num_players - 1.
        partners: policy of all other players (`player_0`, `player_1`, …). None: only for games with one player.
        max_turns: maximum number of moves of this player. After the last one, the episode ends with reward 0.
        **kwargs: arguments of `TextParallelEnv`.
    """

    metadata: ClassVar[dict[str, Any]] = {**TextParallelEnv.metadata, "name": "text_arena_v0"}

    def __init__(
        self,
        game: str,
        num_players: int = 1,
        seat: int = 0,
        partners: Partner | None = None,
        *,
        max_turns: int = 32,
        **kwargs: Any,
    ):
        if not 0 <= seat < num_players:
            raise ValueError(f"seat must be one of 0 to {num_players - 1}, got {seat}")
        if num_players > 1 and partners is None:
            raise ValueError(
                f"{game} has {num_players} players; give partners, a function (agent, observation, rng) -> reply; on "
                "the command line, pass your own function that builds the environment: --env my_module:my_game"
            )
        if find_spec("textarena") is None:
            raise UserError("the package textarena is not installed; install it: pip install textarena")
        super().__init__((f"player_{seat}",), max_turns, **kwargs)
        self._seat = seat
        self._num_players = num_players
        self._partners = partners
        self._game: Any = importlib.import_module("textarena").make(game)
        self._generator_state: Any = None
        self._histories: dict[int, Transcript] = {}

    def deal(self, task: Any) -> Mapping[str, list[Message]]:
        self._generator_state = random.Random(self.rng.randrange(2**31)).getstate()
        self._histories = {}
        with self._own_generator():
            self._game.reset(num_players=self._num_players)
            _, news = self._to_own_move(is_over=False)
        return {self.possible_agents[0]: [Message("user", text) for text in news]}

    def play(self, replies: Mapping[str, str]) -> Outcome:
        agent = self.possible_agents[0]
        with self._own_generator():
            is_over, _ = self._game.step(replies[agent])
            is_over, news = self._to_own_move(is_over)
        reward = float((self._game.close()[0] or {}).get(self._seat, 0.0)) if is_over else 0.0
        return Outcome(reward, {agent: "\n".join(news)} if news else {}, is_over=is_over)

    def _to_own_move(self, is_over: bool) -> tuple[bool, list[str]]:
        """Play the moves of other players until it is this player's turn. Return (is the game over, new messages)."""
        while not is_over:
            player, messages = self._game.get_observation()
            news = [text for message in messages if (text := _with_author(message, player)) is not None]
            if player == self._seat:
                return False, news
            history = self._histories.get(player, Transcript()).extended(*(Message("user", text) for text in news))
            assert self._partners is not None
            reply = self._partners(f"player_{player}", history, self.rng)
            self._histories[player] = history.extended(Message("assistant", reply, f"player_{player}"))
            is_over, _ = self._game.step(reply)
        return True, []

    @contextmanager
    def _own_generator(self) -> Iterator[None]:
        # TextArena uses Python's global random generator. Its state is replaced during a game and restored afterwards.
        before = random.getstate()
        random.setstate(self._generator_state)
        try:
            yield
        finally:
            self._generator_state = random.getstate()
            random.setstate(before)


def _with_author(message: tuple[Any, ...], reader: int) -> str | None:
    """Return a message's text with its author, or None if the reader wrote the message."""
    # A message is a tuple (author's number, or -1 for the game; text; kind). Some games swap the number and the kind.
    first, text, *rest = message
    author = next((part for part in (first, *rest) if isinstance(part, int)), -1)
    if author == reader:
        return None
    return f"[player_{author}] {text}" if author >= 0 else str(text)
