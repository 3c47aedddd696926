"""Games of TextArena as environments: turn-based text games in which every player is an agent."""

from __future__ import annotations

import importlib
import random
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any, ClassVar

from ..._errors import UserError, nearest
from ..core import Message, Outcome, TextParallelEnv

_TURNS_PER_PLAYER = 32
_METRICS = {"unfinished": 0.0, "invalid_move": 0.0, "game_error": 0.0}
# Two comes before one, because some games for two players also start with one player, but cannot be played.
_PLAYER_NUMBERS = 2, 1, *range(3, 16)


class TextArena(TextParallelEnv):
    """Environment of a TextArena game. Agents: `player_0`, `player_1`, … A turn is a move of one player; others wait.

    The rewards are TextArena's rewards at the end of the game. If the game raises an error, the player who moved gets
    -1. Metrics: `unfinished` (the episode reached `max_turns`), `invalid_move` (an invalid move ended the game) and
    `game_error`.

    Messages begin with the name of the player who wrote them. TextArena's wrappers change replies as usual, for example
    by adding brackets. Its wrappers of observations are left out, because each player's history has all messages; so
    ids with and without "-train" are the same. `wrappers.Partnered` lets other policies play some players.

    Needs `pip install textarena`. Source: https://github.com/LeonGuertler/TextArena.

    Args:
        game: a game id of TextArena, such as "TicTacToe-v0".
        num_players: number of players. None: 2, or else the smallest number with which the game starts.
        max_turns: maximum number of moves of all players, after which the episode ends with reward 0. None: 32 per
            player.
        **kwargs: arguments of `TextParallelEnv`.

    Raises:
        UserError: if TextArena is not installed or has no such game, or the game does not start.
    """

    metadata: ClassVar[dict[str, Any]] = {**TextParallelEnv.metadata, "name": "text_arena_v0"}

    def __init__(self, game: str, num_players: int | None = None, *, max_turns: int | None = None, **kwargs: Any):
        if find_spec("textarena") is None:
            raise UserError("the package textarena is not installed; install it: pip install textarena")
        self._id = game
        self._generator_state: Any = random.Random(0).getstate()
        with self._own_generator():
            self._game, self._action_wrappers = _made(game)
            names = [f"player_{number}" for number in range(_checked_players(game, num_players))]
        super().__init__(names, _TURNS_PER_PLAYER * len(names) if max_turns is None else max_turns, **kwargs)
        self.interests = "common" if len(names) == 1 else "mixed"

    def deal(self, task: Any) -> Mapping[str, str | list[Message]]:
        seed = self.rng.randrange(2**31)
        self._generator_state = random.Random(seed).getstate()
        with self._own_generator():
            self._game, _ = _made(self._id)  # a new game, because some games keep cards of earlier episodes
            self._game.reset(num_players=len(self.possible_agents), seed=seed)
            mover, text = self._observe()
        self.movers = [mover]
        return {agent: text if agent == mover else [] for agent in self.possible_agents}

    def play(self, replies: Mapping[str, str]) -> Outcome:
        ((mover, reply),) = replies.items()
        with self._own_generator():
            try:
                for wrapper in self._action_wrappers:
                    reply = wrapper(self._game).action(reply)
                is_over, _ = self._game.step(reply)
                if is_over:
                    return self._final(*self._game.close())
                agent, text = self._observe()
            except Exception as error:  # games raise errors for some replies, such as [999…] with thousands of digits
                warnings.warn(f"textarena/{self._id} ends with -1, because it raised {_reason(error)}", stacklevel=2)
                rewards = {name: -1.0 if name == mover else 0.0 for name in self.possible_agents}
                return Outcome(rewards, metrics={**_METRICS, "game_error": 1.0}, is_over=True)
        metrics = {**_METRICS, "unfinished": float(self.turn + 1 >= self.max_turns)}
        return Outcome(0.0, {agent: text}, metrics=metrics, movers=[agent])

    def partners(self) -> Mapping[str, Callable[[str], str]]:
        """Return a player that repeats a text in brackets from its last message: in most games, often a legal move."""
        return {"bracketed": partial(_bracketed, self)}

    def _observe(self) -> tuple[str, str]:
        """Return the agent that moves next, and its new messages."""
        player, messages = self._game.get_observation()
        text = "\n".join(filter(None, (_with_author(message, player) for message in messages)))
        return self.possible_agents[player], text or f"It is the turn of player_{player}."

    def _final(self, rewards: Mapping[int, Any] | None, infos: Mapping[int, Any]) -> Outcome:
        """Return the outcome of the last move, from TextArena's rewards and infos of the players."""
        earned, is_invalid = {}, False
        for player, agent in enumerate(self.possible_agents):
            reward, info = (rewards or {}).get(player, 0.0), infos.get(player, {})
            is_invalid = is_invalid or isinstance(reward, str) or bool(info.get("invalid_move"))
            if isinstance(reward, str):  # some games swap the reward of an invalid move and its reason
                number = re.search(r"-?\d+(\.\d+)?$", str(info.get("reason")))
                reward = number[0] if number else -1
            earned[agent] = float(reward)
        return Outcome(earned, metrics={**_METRICS, "invalid_move": float(is_invalid)}, is_over=True)

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


def _made(id: str) -> tuple[Any, list[Any]]:
    """Return (game without TextArena's wrappers, classes of its action wrappers from outside to inside)."""
    textarena, games = (importlib.import_module(f"textarena{name}") for name in ("", ".envs.registration"))
    if id not in games.ENV_REGISTRY:
        raise UserError(f"textarena/{id}: TextArena has no such game; {nearest(id, games.ENV_REGISTRY)}")
    try:
        game = textarena.make(id)
    except Exception as error:
        raise UserError(f"textarena/{id} cannot be built: {_reason(error)}") from error
    wrappers = []
    while isinstance(game, textarena.Wrapper):
        wrappers += [type(game)] * isinstance(game, textarena.ActionWrapper)
        game = game.env
    return game, wrappers


def _checked_players(id: str, num_players: int | None) -> int:
    """Return the number of players with which the game starts. Raises UserError if it does not start."""
    problems: list[Exception] = []
    for number in _PLAYER_NUMBERS if num_players is None else [num_players]:
        try:
            _made(id)[0].reset(num_players=number, seed=0)
            return number
        except Exception as error:
            problems.append(error)
    asked = "" if num_players is None else f" with num_players={num_players}; leave num_players out, or see"
    raise UserError(f"textarena/{id} does not start{asked}: {_reason(problems[0])}")


def _reason(error: Exception) -> str:
    """Return the reason why a game cannot be played, with the remedy if it is known, in one line."""
    text = " ".join(str(error).split())
    if isinstance(error, SyntaxError):
        return "its source code needs Python 3.12 or newer"
    if resource := re.search(r"nltk\.download\('(\w+)'\)", text):
        return f"it needs data of nltk; run python -m nltk.downloader {resource[1]}"
    if package := re.search(r"No module named '(\w+)'", text):
        return f"it needs the package {package[1]}; run pip install {package[1]}"
    return text[:200] if isinstance(error, (AssertionError, ValueError)) else f"{type(error).__name__}: {text[:200]}"


def _bracketed(env: TextArena, agent: str) -> str:
    texts = re.findall(r"\[(?!player_)[^\[\]\n]+\]", env._transcripts[agent].messages[-1].content)
    return str(random.Random(f"{env.state()} {agent}").choice(texts or [""]))


def _with_author(message: tuple[Any, ...], reader: int) -> str | None:
    """Return a message's text with its author, or None if the reader wrote the message."""
    # A message has the author's number (-1: the game), the text and the kind. Some games swap these fields.
    author = next((part for part in message if isinstance(part, int)), -1)
    text = next((part for part in message if isinstance(part, str)), "")
    if author == reader:
        return None
    return f"[player_{author}] {text}" if author >= 0 else text
