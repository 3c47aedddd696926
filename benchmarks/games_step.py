"""How long a turn of the building games takes, and how it grows with the number of commands.

Run it: `python -m collm.benchmarks.games_step`.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from ..envs.games.bridge_build import BridgeBuild
from ..envs.games.house_build import HouseBuild
from ..envs.games.mini_build import MiniBuild
from ..envs.games.resource_gathering import ResourceGathering
from ..envs.games.str_build import BLOCKS, PALETTES, StrBuild

_NUM_EPISODES = 30
_NUM_TURNS = 4
Script = Callable[[Any, str], str]


def milliseconds_of_a_step(env: Any, reply: Script) -> float:
    """The median time of one joint turn over several episodes, with replies made beforehand."""
    times = []
    for seed in range(_NUM_EPISODES):
        env.reset(seed=seed)
        while env.agents:
            actions = {agent: reply(env, agent) for agent in env.agents}
            begin = time.perf_counter()
            env.step(actions)
            times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


def random_cells(num_commands: int) -> Script:
    """Half of so many single blocks for each builder, anywhere in the word's box."""
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
    """Half of so many fills of the whole box for each builder: the largest that are free."""

    def reply(env: HouseBuild, agent: str) -> str:
        corners = " ".join(map(str, (*env.task.box.lower, *env.task.box.upper)))
        return "\n".join([f"/fill {corners} air"] * (num_commands // 2))

    return reply


def reference(env: Any, agent: str) -> str:
    """What the reference player writes."""
    reply: str = env.reference_reply(agent)
    return reply


def main() -> None:
    """Print a table."""
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
    for name, what, env, script in rows:
        print(f"{name:<22}{what:<16}{milliseconds_of_a_step(env, script):8.3f} ms")


if __name__ == "__main__":
    main()
