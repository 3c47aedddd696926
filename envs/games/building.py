"""What StrBuild and HouseBuild share: two builders whose commands are carried out in a box of blocks, turn by turn."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar, get_args

from ..core import Outcome
from .blocks import Box, World, built
from .commands import Orders
from .pictured import TaskEnv
from .settings import refuse_other
from .sources import Source

WorldRule = Literal["rebuilt", "kept"]


class Structure(Protocol):
    """A task with a box to build in."""

    @property
    def id(self) -> str: ...
    @property
    def box(self) -> Box: ...


S = TypeVar("S", bound=Structure)
R = TypeVar("R")


@dataclass(frozen=True)
class BuilderTurn(Generic[S, R]):
    """One builder's turn as it ended: what its feedback is written from."""

    task: S
    world: World  # as it stands now
    world_rule: WorldRule
    builder: int
    orders: Orders  # its own
    value: float  # the turn's reward, before the shift
    score: R  # how the world compares with the task


class BuildingEnv(TaskEnv[S], Generic[S]):
    """Two builders write commands; builder_0's are carried out first; each turn's world is scored.

    Args:
        source: where the tasks come from.
        max_turns: turns of an episode.
        world: "rebuilt" (every turn starts from an empty world) or "kept" (turns add to what stands).
        stop_at: a score at which the episode ends early; None: never.
        shift: added to every turn's reward, after `stop_at` was compared.
        **kwargs: of `TextParallelEnv`.
    """

    def __init__(
        self, source: Source[S], max_turns: int, *, world: WorldRule, stop_at: float | None, shift: float, **kwargs: Any
    ):
        super().__init__(("builder_0", "builder_1"), max_turns, source, **kwargs)
        refuse_other("world", world, get_args(WorldRule))
        self._world_rule: WorldRule = world
        self._stop_at = stop_at
        self._shift = shift

    @abstractmethod
    def orders(self, reply: str, builder: int) -> Orders:
        """The legal commands of a reply."""

    @abstractmethod
    def scored(self, orders: tuple[Orders, Orders]) -> Outcome:
        """What the world that now stands is worth, before the shift, and what the builders read."""

    def told(
        self, orders: tuple[Orders, Orders], value: float, score: R, text: Callable[[BuilderTurn[S, R]], str]
    ) -> dict[str, str]:
        """What each builder reads after a turn."""
        return {
            agent: text(BuilderTurn(self.task, self.world, self._world_rule, builder, orders[builder], value, score))
            for builder, agent in enumerate(self.possible_agents)
        }

    def lay_out(self) -> None:
        self.world: World = self.task.box.empty_world()

    def play(self, replies: Mapping[str, str]) -> Outcome:
        first, second = (self.orders(replies[agent], i) for i, agent in enumerate(self.possible_agents))
        self.world = built(self.next_start, self.task.box, (*first.fills, *second.fills))
        outcome = self.scored((first, second))
        value = outcome.reward
        if isinstance(value, Mapping):
            raise TypeError("a building game has one reward for the team")
        return Outcome(
            value + self._shift,
            feedback=outcome.feedback,
            terms={**outcome.terms, "shift": self._shift} if self._shift else outcome.terms,
            metrics={
                **outcome.metrics,
                "accepted": float(first.num_accepted + second.num_accepted),
                "rejected": float(first.num_rejected + second.num_rejected),
            },
            is_over=self._stop_at is not None and value >= self._stop_at - 1e-9,
        )

    @property
    def next_start(self) -> World:
        """The world in which the next turn's commands are carried out."""
        return self.world if self._world_rule == "kept" else self.task.box.empty_world()
