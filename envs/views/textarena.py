"""A game of TextArena as an environment of one player; its other players are played by given policies.

Its games are played in turns, and draw from Python's global random generator, which is lent to them and put back.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from ..core import Message, Outcome, TextParallelEnv, Transcript
from .single_agent import Partner


class TextArena(TextParallelEnv):
    """One seat of a game of TextArena. A turn is one move of its player, and the moves of the others up to its next.

    The reward is TextArena's, paid at the end; what a player reads is each message with its author. Needs
    `pip install textarena`.

    Args:
        game: an id of TextArena's; those that end in "-raw" have none of its wrappers, which join histories by
            themselves.
        num_players: players of the game.
        seat: whose place is taken, from 0 up.
        partners: plays the other seats, `player_0` and so on; None for games of one player.
        max_turns: moves of the player, after which the episode ends without a reward.
        **kwargs: of `TextParallelEnv`.

    Raises:
        ValueError: if there is no such seat, or nobody to play the others.
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
                f"{game} has {num_players} players; give partners, a function (agent, observation, rng) -> reply that "
                "plays the others; on the command line name a function of a module of yours that makes the environment "
                "with them: --env my_module:my_game"
            )
        super().__init__((f"player_{seat}",), max_turns, **kwargs)
        self._seat = seat
        self._num_players = num_players
        self._partners = partners
        self._game: Any = importlib.import_module("textarena").make(game)
        self._randomness: Any = None
        self._histories: dict[int, Transcript] = {}

    def deal(self, task: Any) -> Mapping[str, list[Message]]:
        self._randomness = random.Random(self.rng.randrange(2**31)).getstate()
        self._histories = {}
        with self._lent_randomness():
            self._game.reset(num_players=self._num_players)
            _, news = self._to_own_move(is_over=False)
        return {self.possible_agents[0]: [Message("user", text) for text in news]}

    def play(self, replies: Mapping[str, str]) -> Outcome:
        agent = self.possible_agents[0]
        with self._lent_randomness():
            is_over, _ = self._game.step(replies[agent])
            is_over, news = self._to_own_move(is_over)
        reward = float((self._game.close()[0] or {}).get(self._seat, 0.0)) if is_over else 0.0
        return Outcome(reward, {agent: "\n".join(news)} if news else {}, is_over=is_over)

    def _to_own_move(self, is_over: bool) -> tuple[bool, list[str]]:
        """Whether the game has ended, and what the player read until its next move."""
        while not is_over:
            player, messages = self._game.get_observation()
            news = [text for message in messages if (text := _with_author(message, player)) is not None]
            if player == self._seat:
                return False, news
            history = self._histories.get(player, Transcript()).extended(*(Message("user", text) for text in news))
            assert self._partners is not None  # the constructor has refused several players without
            reply = self._partners(f"player_{player}", history, self.rng)
            self._histories[player] = history.extended(Message("assistant", reply, f"player_{player}"))
            is_over, _ = self._game.step(reply)
        return True, []

    @contextmanager
    def _lent_randomness(self) -> Iterator[None]:
        before = random.getstate()
        random.setstate(self._randomness)
        try:
            yield
        finally:
            self._randomness = random.getstate()
            random.setstate(before)


def _with_author(message: tuple[Any, ...], reader: int) -> str | None:
    """What a player reads of a message; None if it is the player's own.

    A message is its author's number (-1: the game), its text and its kind; some games swap the number and the kind.
    """
    first, text, *rest = message
    author = next((part for part in (first, *rest) if isinstance(part, int)), -1)
    if author == reader:
        return None
    return f"[player_{author}] {text}" if author >= 0 else str(text)
