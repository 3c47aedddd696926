"""Base class of StrBuild and HouseBuild: builders write commands that change a box of blocks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, Protocol, TypeVar, get_args

from ..core import Outcome
from .blocks import Box, World, built
from .commands import Orders, run_order
from .pictured import TaskEnv, Variant, refuse_other
from .sources import GameTask, Source

WorldRule = Literal["rebuilt", "kept"]

_FRACTIONS = {2: "half", 3: "a third", 4: "a quarter"}
_NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}
MAX_BUILDERS = max(_NUMBERS)
_LEAVING = "\n/done to play no further turn; {}"
_AFTER_LEAVING = {"kept": "what you built stays", "rebuilt": "your last commands are carried out again in every turn"}

ORIGINAL_CONSTANTS = {
    "system": "DEFAULT_SYSTEM_PROMPT",
    "builder_0": "DEFAULT_USER_TEMPLATE_AGENT1",
    "builder_1": "DEFAULT_USER_TEMPLATE_AGENT2",
}
"""Names of the published prompts in their files."""


class Structure(GameTask, Protocol):
    """Task with a box in which the builders build."""

    @property
    def box(self) -> Box: ...
    @property
    def num_builders(self) -> int: ...


S = TypeVar("S", bound=Structure)
R = TypeVar("R")


@dataclass(frozen=True)
class BuilderTurn(Generic[S, R]):
    """Argument of a feedback function: the result of one turn for one builder."""

    task: S
    world: World  # world after the turn
    world_rule: WorldRule
    builder: int
    orders: Orders  # commands of this builder
    value: float  # the turn's reward, before the shift
    score: R  # comparison of the world with the task


class BuildingEnv(TaskEnv[S], Generic[S]):
    """Environment in which builders write commands. The commands are carried out in the order of the builders.

    Args:
        source: source of the tasks.
        num_agents: builders, 2 to 6.
        max_turns: turns of an episode.
        world: "rebuilt" (every turn starts from an empty world) or "kept" (turns add to the world).
        stop_at: score at which the episode ends early; it needs a `shift`. None: never.
        shift: constant added to every turn's reward, at most -`stop_at`, so that an early end has the highest return.
        can_leave: True: a builder that writes `/done` plays no further turn. In a rebuilt world, its last commands are
            repeated.
        variant: "published": the episode ends if the score is above `stop_at`. "ours": also if it equals `stop_at`.
        **kwargs: see `TaskEnv`.
    """

    def __init__(
        self,
        source: Source[S],
        num_agents: int,
        *,
        max_turns: int = 4,
        world: WorldRule = "rebuilt",
        stop_at: float | None = None,
        shift: float = 0.0,
        can_leave: bool = False,
        variant: Variant = "ours",
        **kwargs: Any,
    ):
        super().__init__([f"builder_{number}" for number in range(num_agents)], max_turns, source, **kwargs)
        refuse_other("world", world, get_args(WorldRule))
        if stop_at is not None and shift > -stop_at:
            raise ValueError(
                f"shift={shift} must be at most {-stop_at} with stop_at={stop_at}: otherwise a turn that does not end "
                "the episode has a higher reward than a turn that ends it"
            )
        self._world_rule, self._can_leave, self._variant = world, can_leave, variant
        self._stop_at, self._shift = stop_at, shift

    @abstractmethod
    def orders(self, reply: str, builder: int) -> Orders:
        """Parse the legal commands of a reply."""

    @abstractmethod
    def scored(self, orders: Sequence[Orders]) -> Outcome:
        """Score `self.world` after a turn. Return an outcome with the feedback and the reward without `shift`."""

    def shared_fields(self, builder: int) -> dict[str, str | int]:
        """Return the placeholder values of a prompt that both games have: the team, the turns and the commands."""
        team = len(self.possible_agents)
        return {
            "number": builder + 1,
            "team": _NUMBERS[team],
            "writing": "Both of you write at the same time, and neither sees what the other writes."
            if team == 2
            else "All of you write at the same time, and nobody sees what the others write.",
            "order": run_order(builder, team),
            "turns": self.max_turns,
            "leaving": _LEAVING.format(_AFTER_LEAVING[self._world_rule]) if self._can_leave else "",
        }

    def told(
        self, orders: Sequence[Orders], value: float, score: R, text: Callable[[BuilderTurn[S, R]], str]
    ) -> dict[str, str]:
        """Return each active builder's feedback, which names the other builders that leave in this turn."""
        gone = [i for i, agent in enumerate(self.possible_agents) if agent in self.agents and orders[i].is_leaving]
        return {
            agent: text(BuilderTurn(self.task, self.world, self._world_rule, builder, orders[builder], value, score))
            + "".join(f" Builder {other + 1} is done." for other in gone if other != builder)
            for builder, agent in enumerate(self.possible_agents)
            if agent in self.agents
        }

    def lay_out(self) -> None:
        self.world: World = self.task.box.empty_world()
        self._kept_orders: dict[str, Orders] = {}  # last commands of builders that left, if the world is rebuilt

    def turned(self, replies: Mapping[str, str]) -> Outcome:
        orders = [
            self.orders(replies[agent], builder) if agent in replies else self._kept_orders.get(agent, Orders())
            for builder, agent in enumerate(self.possible_agents)
        ]
        self.world = built(self.next_start, self.task.box, (fill for order in orders for fill in order.fills))
        outcome = self.scored(orders)
        value = outcome.reward
        if isinstance(value, Mapping):
            raise TypeError("scored() must return one reward for the team, not a mapping of agents to rewards")
        leaving = {agent: order for agent, order in zip(self.possible_agents, orders, strict=True) if order.is_leaving}
        if self._world_rule == "rebuilt":
            self._kept_orders |= {agent: replace(order, num_rejected=0) for agent, order in leaving.items()}
        return Outcome(
            value + self._shift,
            feedback=outcome.feedback,
            terms={**outcome.terms, "shift": self._shift} if self._shift else outcome.terms,
            metrics={
                **outcome.metrics,
                "accepted": float(sum(order.num_accepted for order in orders)),
                "rejected": float(sum(order.num_rejected for order in orders)),
            },
            is_over=self._is_solved(value),
            finished=frozenset(leaving) & frozenset(replies),
        )

    @property
    def next_start(self) -> World:
        """World at the beginning of the next turn."""
        return self.world if self._world_rule == "kept" else self.task.box.empty_world()

    def _is_solved(self, value: float) -> bool:
        if self._stop_at is None:
            return False
        return value > self._stop_at if self._variant == "published" else value >= self._stop_at - 1e-9


def share_advised(num_cells: int, num_builders: int) -> str:
    """Return the advice of a feedback text to build an equal part of the cells."""
    share = _FRACTIONS.get(num_builders, f"one in {_NUMBERS[num_builders]}")
    return f"Take about {share} of them ({max(1, num_cells // num_builders)})"


def refuse_num_builders(num_builders: int) -> None:
    if isinstance(num_builders, bool) or num_builders not in _NUMBERS:
        raise ValueError(f"num_agents must be 2 to {MAX_BUILDERS}, got {num_builders!r}")
