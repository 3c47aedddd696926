"""Wall time of a joint turn of the building games, and how it grows with the number of commands."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...envs.games.bridge_build import BridgeBuild
from ...envs.games.house_build import HouseBuild
from ...envs.games.mini_build import MiniBuild
from ...envs.games.resource_gathering import ResourceGathering
from ...envs.games.str_build import BLOCKS, PALETTES, StrBuild
from ..markdown import markdown_table
from .timing import look

_NUM_EPISODES = 30
_NUM_TURNS = 4
Script = Callable[[Any, str], str]


@dataclass(frozen=True, slots=True)
class GameRow:
    """One game with one kind of replies."""

    game: str
    replies: str
    milliseconds: float  # per joint turn, wall time


def milliseconds_per_turn(env: Any, reply: Script) -> float:
    """Median wall time of one joint turn over several episodes, with replies made beforehand."""
    times = []
    look()
    for seed in range(_NUM_EPISODES):
        env.reset(seed=seed)
        while env.agents:
            actions = {agent: reply(env, agent) for agent in env.agents}
            begin = time.perf_counter()
            env.step(actions)
            times.append(1e3 * (time.perf_counter() - begin))
    look()
    return statistics.median(times)


def random_cells(num_commands: int) -> Script:
    """A reply of half the commands per builder: single blocks anywhere in the word's box."""
    rng = random.Random(0)

    def reply(env: StrBuild, agent: str) -> str:
        x, y, _ = env.task.box.upper
        palette = PALETTES[env.possible_agents.index(agent)]
        return "\n".join(
            f"/setblock {rng.randint(0, x)} {rng.randint(0, y)} 0 {BLOCKS[rng.choice(palette)]}"
            for _ in range(num_commands // 2)
        )

    return reply


def whole_boxes(num_commands: int) -> Script:
    """A reply of half the commands per builder: fills of the whole box, the largest commands that are free."""

    def reply(env: HouseBuild, agent: str) -> str:
        corners = " ".join(map(str, (*env.task.box.lower, *env.task.box.upper)))
        return "\n".join([f"/fill {corners} air"] * (num_commands // 2))

    return reply


def reference(env: Any, agent: str) -> str:
    """What the reference player writes."""
    reply: str = env.reference_reply(agent)
    return reply


def measure() -> list[GameRow]:
    """Every game with its reference player; the largest buildings with as many commands as they take, and with more."""
    rows: list[tuple[str, str, Any, Script]] = [
        *(
            ("StrBuild, 8 letters", f"{n} commands", StrBuild(difficulty=8, max_turns=_NUM_TURNS), random_cells(n))
            for n in (30, 75, 150, 300)
        ),
        *(
            ("HouseBuild, 9 by 9", f"{n} commands", HouseBuild(difficulty=5, max_turns=_NUM_TURNS), whole_boxes(n))
            for n in (75, 150, 300, 600)
        ),
        ("MiniBuild", "reference", MiniBuild(), reference),
        ("StrBuild", "reference", StrBuild(), reference),
        ("HouseBuild", "reference", HouseBuild(), reference),
        ("BridgeBuild", "reference", BridgeBuild(), reference),
        ("ResourceGathering", "reference", ResourceGathering(), reference),
    ]
    return [GameRow(game, replies, milliseconds_per_turn(env, script)) for game, replies, env, script in rows]


def table(rows: Sequence[GameRow]) -> str:
    """The rows as Markdown."""
    cells = [(row.game, row.replies, f"{row.milliseconds:.3f}") for row in rows]
    return markdown_table(("game", "replies", "ms per joint turn"), cells)
