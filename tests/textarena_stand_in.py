"""A stand-in for the package textarena, with games whose behaviour a test chooses."""

from __future__ import annotations

import enum
import random
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, ClassVar

import pytest


class Kind(enum.Enum):
    PROMPT = 1


class Game:
    """Game of two players, who move by turns. The fourth move ends it, and player 1 wins."""

    num_players = 2
    rewards: ClassVar[Any] = {0: -1, 1: 1}
    infos: ClassVar[Any] = {0: {}, 1: {}}

    def reset(self, num_players: int, seed: int | None = None) -> None:
        assert num_players == self.num_players, f"The number of players has to be {self.num_players}"
        self.seed, self.player, self.moves = seed, 0, 0
        self.card = random.Random(seed).random()
        self.mail: dict[int, list[Any]] = {n: [(-1, self.prompt(n), Kind.PROMPT)] for n in range(num_players)}

    def prompt(self, player: int) -> str:
        return f"You are player {player}."

    def get_observation(self) -> tuple[int, Any]:
        seen, self.mail[self.player] = self.mail[self.player], []
        return self.player, seen

    def step(self, action: str) -> tuple[bool, dict[str, Any]]:
        for letters in self.mail.values():
            letters.append((self.player, action, Kind.PROMPT))
        self.moves += 1
        self.player = self.following()
        return self.moves == 4, {}

    def following(self) -> int:
        return (self.player + 1) % self.num_players

    def close(self) -> tuple[Any, Any]:
        return self.rewards, self.infos


class Wrapper:
    """As in textarena 0.7.4: it cannot be unpickled, because it looks up missing attributes in the missing `env`."""

    def __init__(self, env: Any):
        self.env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def reset(self, num_players: int, seed: int | None = None) -> None:
        self.env.reset(num_players=num_players, seed=seed)

    def step(self, action: str) -> Any:
        return self.env.step(action)


class JoiningWrapper(Wrapper):
    def get_observation(self) -> tuple[int, str]:
        player, seen = self.env.get_observation()
        return player, "\n".join(text for _, text, _ in seen)


class ActionWrapper(Wrapper):
    def step(self, action: str) -> Any:
        return self.env.step(self.action(action))

    def action(self, action: str) -> str:
        raise NotImplementedError


class Brackets(ActionWrapper):
    def action(self, action: str) -> str:
        return f"[{action}]"


def install(monkeypatch: pytest.MonkeyPatch, **games: Callable[[], Any]) -> None:
    """Put the stand-in into `sys.modules`. Game ids are the names with "-v0" added."""
    registry = {f"{name}-v0": build for name, build in games.items()}
    registration = ModuleType("textarena.envs.registration")
    vars(registration)["ENV_REGISTRY"] = registry
    package = ModuleType("textarena")
    package.__spec__ = ModuleSpec("textarena", None)
    vars(package).update(
        make=lambda game: registry[game](),
        Wrapper=Wrapper,
        ActionWrapper=ActionWrapper,
    )
    monkeypatch.setitem(sys.modules, "textarena", package)
    monkeypatch.setitem(sys.modules, "textarena.envs", ModuleType("textarena.envs"))
    monkeypatch.setitem(sys.modules, "textarena.envs.registration", registration)
