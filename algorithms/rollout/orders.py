"""Orders and deliveries: the episodes that an update is to learn from, before and after they are played.

Version v of the weights is what v updates have made of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch import Tensor

from ...envs.vectors.faults import EnvironmentFault
from .collector import RolloutCollector, together
from .episode import Episode
from .plays import Plan

Weights: TypeAlias = Mapping[str, Mapping[str, Tensor]]
"""`state_dict` of each policy that learns, under the name of the first agent that it plays; tensors on the CPU."""


@dataclass(frozen=True, slots=True)
class Order:
    """Episodes to be played for one update."""

    update: int
    """Number of updates before it."""
    version: int
    """Version of the weights that play them."""
    plans: tuple[Plan, ...]
    """The episodes; with `num_turns` those to draw from where one begins."""
    first: int
    """Index of the first episode; without meaning with `num_turns`."""
    num_turns: int | None = None
    """Joint turns per copy, continuing where the last order stopped. None: whole episodes."""

    def share(self) -> list[tuple[int, Plan]]:
        """Plans with the indices of their episodes."""
        return list(enumerate(self.plans, start=self.first))


@dataclass(frozen=True, slots=True)
class Delivery:
    """An order's episodes, played."""

    episodes: list[Episode]
    skipped: list[EnvironmentFault] = field(default_factory=list)
    """Faults of the episodes that were given up."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time by phase, added up over those that played."""
    wall_s: float = 0.0
    """Time from the beginning to the end."""
    state: Mapping[str, Any] | None = None
    """What `RolloutCollector.state_dict` says after it, where the next order continues its episodes."""


def played(collector: RolloutCollector, order: Order) -> Delivery:
    """Play an order with a collector, by this process alone; its policies have the weights already."""
    start = time.perf_counter()
    collector.seconds.clear()
    collector.version = order.version
    if order.num_turns is None:
        episodes = together([collector.play(order.share(), len(order.plans))], len(order.plans))
        skipped, state = collector.skipped, None
    else:
        draw: Iterator[Plan] = iter(order.plans)
        episodes, skipped = collector.play_turns(order.num_turns, draw), []
        state = collector.state_dict()
    return Delivery(episodes, skipped, dict(collector.seconds), time.perf_counter() - start, state)
