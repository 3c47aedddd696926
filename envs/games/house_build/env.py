"""The environment HouseBuild."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np

from ...core import Outcome
from ..blocks import AIR, Fill, cover
from ..building import BuildingEnv, refuse_num_builders
from ..commands import Orders, allowed, read_orders
from ..pictured import refuse_other, with_published
from ..pictures import PanelRow, colours
from ..sources import GENERATED, Data, Difficulty, Split, source_of, tasks_of_split
from . import prompts as texts
from .rules import HIGHEST_DIFFICULTY, MAX_COMMANDS, House, HouseScore, house, missing, new_house, score, spiders

Reward = Literal["reference", "paper", "iou"]

PUBLISHED = {
    "needs_both": False,
    "spider_attacks": (2, 1, 3),
    "stop_at": 0.9,
    "shift": -1.0,
    "memory": "last",
    "prompts": Path(__file__).parent / "published",
}
"""Published defaults, if different from ours. A published run samples the spiders once; this is one sample."""


class HouseBuild(BuildingEnv[House]):
    """Builders fill cuboids to build a house that is given by layers, and one of them kills the spiders.

    Commands are carried out in the order of the builders. If the house has n cells of a block, each of k builders may
    fill ceil(n / k) cells with this block per turn. The reward of a turn compares the world with the house.

    Args:
        split: "train" or "test", or "all" if `data` is not "generated".
        data: "generated" (random houses), "builtin" (ten houses in the package), or a file or hub name with the
            benchmark's columns.
        variant: "ours", or "published" for the defaults of the published configurations: `needs_both` False,
            `spider_attacks` (2, 1, 3), `stop_at` 0.9, `shift` -1, `memory` "last".
        num_agents: builders, 2 to 6.
        difficulty: difficulty of generated houses, 1 to 5, or a range such as "2-4".
        reward: "reference" (as in the published code, at most 1 per turn; 0.3 to 0.5 for an empty world), "paper" (as
            in the paper, at most 2 per turn) or "iou" (at most 1 per turn; 0 for an empty world). `metric/score` is
            always the reward "reference".
        feedback: "score", "perfect" (wrong cells, divided between the builders), "position" (all cells of the house),
            "position_modification" (the lowest wrong cells), "rect_modification" (rectangles with errors) or
            "resource_schedule" (rectangles that can be built from the remaining stock).
        feedback_limit: number of cells or rectangles in the two modification modes.
        needs_both: True: a builder may fill only an equal part of each block, so that the house needs all builders.
            False: ceil(n / k) + floor(n / 2k) cells, as published.
        spider_attacks: damage of each spider. None: three spiders with random damage of 1 to 3. (): no spiders.
        **kwargs: see `BuildingEnv`, `TaskEnv` and `TextParallelEnv`.

    Raises:
        ValueError: if a setting is invalid.
    """

    metadata: ClassVar[dict[str, Any]] = {**BuildingEnv.metadata, "name": "house_build_v2"}
    truth_metric: ClassVar[str | None] = "exact_iou"

    own_prompt = texts.PROMPT
    needed_place = "layers"
    other_places: ClassVar[Mapping[str, bool]] = {
        "slices": True,
        **dict.fromkeys(("block_list", "lower", "upper", "stock_list"), False),
    }
    originals = texts.ORIGINALS

    @with_published(PUBLISHED)
    def __init__(
        self,
        split: Split = "train",
        *,
        data: Data = GENERATED,
        num_agents: int = 2,
        difficulty: Difficulty = 3,
        reward: Reward = "reference",
        feedback: texts.Feedback = "score",
        feedback_limit: int = 20,
        needs_both: bool = True,
        spider_attacks: Sequence[int] | None = None,
        **kwargs: Any,
    ):
        refuse_num_builders(num_agents)
        settings = {"num_builders": num_agents, "has_spare": not needs_both}
        source = source_of(
            data, split, difficulty, highest=HIGHEST_DIFFICULTY, listed=houses, new=new_house, **settings
        )
        super().__init__(source, num_agents, **kwargs)
        refuse_other("reward", reward, get_args(Reward))
        refuse_other("feedback", feedback, get_args(texts.Feedback))
        if feedback_limit < 1:
            raise ValueError(f"feedback_limit={feedback_limit} must be at least 1")
        if spider_attacks is not None and min(spider_attacks, default=0) < 0:
            raise ValueError(f"spider_attacks={list(spider_attacks)} must not be negative")
        self._needs_both, self._reward = needs_both, reward
        self._feedback, self._feedback_limit = feedback, feedback_limit
        self._fixed_attacks = None if spider_attacks is None else tuple(spider_attacks)
        self._attacks: tuple[int, ...] = ()
        self._is_safe = False

    @property
    def allowed_exploits(self) -> Mapping[str, str]:
        """Exploits that the checks accept, with a reason for each."""
        some = "one command fills a rectangle: two commands of a builder build an eighth of the house on average"
        if self._needs_both:
            return {"others for show": some}
        reason = "one builder may build until its stock is empty, which is three quarters of each block"
        return dict.fromkeys(("others for show", "one does all", *TO_THE_STOCK), reason)

    def start(self) -> Mapping[str, Mapping[str, str | int]]:
        self._attacks = spiders(self.rng) if self._fixed_attacks is None else self._fixed_attacks
        self._is_safe = False
        fields = texts.fields(self.task, self._attacks, self._world_rule)
        return {agent: self.shared_fields(i) | fields for i, agent in enumerate(self.possible_agents)}

    def orders(self, reply: str, builder: int) -> Orders:
        return read_orders(
            reply,
            self.task.box,
            allowed(self.task.blocks, tuple(range(1, len(self.task.blocks)))),
            verb="fill",
            max_commands=MAX_COMMANDS,
            stock=self.task.stock,
            can_kill=True,
            can_leave=self._can_leave,
        )

    def scored(self, orders: Sequence[Orders]) -> Outcome:
        num_kills = sum(order.num_kills for order in orders)
        result = score(self.task, self.world, attacks=self._attacks, num_kills=num_kills, is_safe=self._is_safe)
        if self._world_rule == "kept" and num_kills:
            self._is_safe = True
        value = {"reference": result.published, "paper": result.paper, "iou": result.strict}[self._reward]
        text = partial(texts.feedback, self._feedback, limit=self._feedback_limit)
        return Outcome(
            value,
            feedback=self.told(orders, value, result, text),
            terms=_terms(self._reward, result),
            metrics={
                "score": result.published,
                "match": result.match,
                "iou": result.iou,
                "exact_iou": result.exact_iou,
                "damage": result.damage,
                "success": float(result.match == 1.0),
            },
        )

    def panels(self) -> list[PanelRow]:
        wrong = self.world != self.task.target
        layers = range(self.world.shape[0])
        return [
            PanelRow("TARGET", [self.task.target[y].tolist() for y in layers]),
            PanelRow("BUILT", [self.world[y].tolist() for y in layers], [wrong[y].tolist() for y in layers]),
        ]

    @property
    def block_letters(self) -> str:  # type: ignore[override]
        return "." + self.task.letters[1:]

    @property
    def block_colours(self) -> list[tuple[int, int, int]]:  # type: ignore[override]
        return colours(self.task.blocks)

    def reference(self, agent: str) -> str:
        """Return the commands of a team that builds the house. The first builder kills the spiders."""
        builder = self.possible_agents.index(agent)
        fills = missing(self.task, self.next_start, builder)
        return texts.reply(fills, self.task, is_killing=builder == 0 and not self._is_safe)

    def exploits(self) -> Mapping[str, Callable[[str], str]]:
        return {name: partial(self._exploiting_reply, player) for name, player in EXPLOITS.items()}

    def _exploiting_reply(self, player: Exploit, agent: str) -> str:
        builder = self.possible_agents.index(agent)
        return texts.reply(player(self.task, builder), self.task, is_killing=builder == 0)


def houses(data: Data, split: Split, num_builders: int = 2, has_spare: bool = True) -> list[House]:
    """Load the houses of a file, a hub name, or the package's sample ("builtin")."""
    sample = Path(__file__).parent / "sample.json"
    columns = {"text_fields": ("task_id",), "other_fields": ("inventory", "target_spec")}
    return tasks_of_split(data, split, lambda row, _: house(row, num_builders, has_spare), sample, **columns)


def _terms(reward: Reward, score: HouseScore) -> dict[str, float]:
    """Return the named terms of a turn's reward. The sum of the terms is the reward."""
    if reward == "reference":
        return {"match": score.match, "spiders": -0.1 * score.damage}
    if reward == "paper":
        return {"coverage": 2.0 * score.coverage, "redundancy": -1.5 * score.redundancy, "spiders": -0.2 * score.damage}
    return {
        "iou": score.exact_iou,
        "spiders": -0.1 * score.damage,
        "needless_kills": score.strict - score.exact_iou + 0.1 * score.damage,
    }


Exploit: TypeAlias = Callable[[House, int], list[Fill]]


def solid_floor(house: House, builder: int) -> list[Fill]:
    """Exploit: each builder fills one layer with the most frequent block."""
    block = max(house.stock, key=lambda each: house.stock[each])
    (x, y, z), (x2, y2, z2) = house.box.lower, house.box.upper
    rows = min(z2 - z + 1, house.stock[block] // house.box.width)
    return [Fill(x, min(y + builder, y2), z, x2, min(y + builder, y2), z + rows - 1, block)] if rows else []


def walls_unread(house: House, builder: int) -> list[Fill]:
    """Exploit: each builder sets the outline of one layer above the floor, of the most frequent block."""
    block = max(house.stock, key=lambda each: house.stock[each])
    (x, y, z), (x2, y2, z2) = house.box.lower, house.box.upper
    height = min(y + 1 + builder, y2)
    sides = [(x, z, x2, z), (x, z2, x2, z2), (x, z + 1, x, z2 - 1), (x2, z + 1, x2, z2 - 1)]
    return [Fill(x1, height, z1, x3, height, z3, block) for x1, z1, x3, z3 in sides if x1 <= x3 and z1 <= z3]


TO_THE_STOCK: Mapping[str, Exploit] = {
    "one builds to its stock": lambda house, builder: _from_below(house) if builder == 0 else [],
    "one builds, others set one cell of each block": lambda house, builder: (
        _from_below(house) if builder == 0 else _from_below(house, is_reversed=True, most=1)
    ),
    "all build from below": lambda house, builder: _from_below(house),
    "all build from above": lambda house, builder: _from_below(house, is_reversed=True),
}
"""Exploits in which a builder uses up its stock."""
EXPLOITS: Mapping[str, Exploit] = {
    "kill only": lambda house, builder: [],
    **TO_THE_STOCK,
    "floors, house unread": solid_floor,
    "walls, house unread": walls_unread,
}


def _from_below(house: House, *, is_reversed: bool = False, most: int | None = None) -> list[Fill]:
    """Return the lowest or topmost cells of each block, within one builder's stock."""
    part = np.full(house.target.shape, AIR, np.uint8)
    for block, stock in house.stock.items():
        cells = np.argwhere(house.target == block)
        chosen = (cells[::-1] if is_reversed else cells)[: stock if most is None else min(stock, most)]
        part[tuple(chosen.T)] = block
    return cover(part, house.box)
