"""Collector of counterfactual rollouts: alternatives to single decisions of an episode.

A base episode is played. Then decisions of it are drawn: one agent in one turn. Each decision is repeated in branches:
the environment is replayed from its seed with the recorded replies up to this turn, also with the replies of the other
agents in this turn. The agent samples another reply, and the team continues to the end. Source: C3 (arXiv:2603.06859).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...agents.core import Policy, TrainablePolicy
from ...envs.vectors.vector import VectorEnv
from ..config import C3Config
from .collector import Played, RolloutCollector
from .episode import Cost, Episode, Turn
from .plays import UNREPEATABLE, Plan, ReplayError, is_same

WEIGHT = "metric/decision_weight"
"""Entry of `Episode.infos`: number of decisions of the base episode divided by the number of drawn decisions."""
MAX_DECISIONS = 2**20  # per episode, if all decisions are drawn


class Decision(NamedTuple):
    """Decision of a base episode that is repeated."""

    base: Episode
    agent: str
    turn: Turn
    group: int
    weight: float
    first: int  # index of the first branch's episode

    def plan(self) -> Plan:
        """Return the plan of a branch. Only the agent's reply of this turn, and all later replies, are missing."""
        script: list[dict[str, Any]] = [{} for _ in range(self.turn.time + 1)]
        for agent, turn in self._repeated():
            script[turn.time][agent] = turn.completion
        options = self.base.options or {}
        return Plan(self.base.seed, self.group, options.get("task"), options.get("difficulty"), tuple(script))

    def of_base(self, is_first: bool) -> Episode:
        """Return the alternative of the base episode. The first decision counts the cost of the base episode."""
        cost = Cost(self.base.num_turns, self.base.num_tokens) if is_first else Cost(0, 0)
        return self.alternative(self.base, self.first - 1, cost)

    def of_branch(self, branch: Episode) -> Episode:
        """Return the alternative of a branch. Raises `ReplayError` if the replay gave other observations."""
        for agent, track in self.base.tracks.items():
            for turn, found in zip(track, branch.tracks.get(agent, ()), strict=False):
                if turn.time <= self.turn.time and not is_same(turn.observation, found.observation):
                    name = f"episode {self.base.index} (seed {self.base.seed})"
                    raise ReplayError(
                        f"{name} has another observation of {agent} in turn {turn.time} when {UNREPEATABLE}"
                    )
        num_replayed = sum(len(turn.completion.logprobs) for _, turn in self._repeated())
        return self.alternative(branch, branch.index, Cost(branch.num_turns, branch.num_tokens - num_replayed))

    def alternative(self, episode: Episode, index: int, cost: Cost) -> Episode:
        """Return an episode whose only turn to learn from is this decision.

        The rewards of all other turns are kept as rewards of agents that wait, so that returns do not change.
        """
        time = self.turn.time
        waiting: dict[str, Mapping[int, float]] = dict(episode.waiting)
        for agent, track in episode.tracks.items():
            others = {turn.time: turn.reward for turn in track if (agent, turn.time) != (self.agent, time)}
            waiting[agent] = {**waiting.get(agent, {}), **others}
        infos = list(episode.infos)
        infos[time] = {**infos[time], WEIGHT: self.weight}
        tracks = {self.agent: tuple(turn for turn in episode.tracks[self.agent] if turn.time == time)}
        changes: dict[str, Any] = {"tracks": tracks, "waiting": waiting, "infos": tuple(infos), "played": episode}
        return replace(episode, index=index, group=self.group, cost=cost, **changes)

    def _repeated(self) -> list[tuple[str, Turn]]:
        """Return all turns before the decision, and those of the other agents at the same time."""
        turns = [(agent, turn) for agent, track in self.base.tracks.items() for turn in track]
        return [(agent, turn) for agent, turn in turns if turn.time <= self.turn.time and turn is not self.turn]


class BranchingCollector(RolloutCollector):
    """Collector that returns K alternatives of each drawn decision as a group: one of the base episode, K - 1 branches.

    Episodes contain one turn to learn from. The environment steps of replays are counted in `Episode.cost`.

    Args:
        vector, policies, options: see `RolloutCollector`. Decisions of agents that do not learn are not drawn.
        config: K (`num_alternatives`), and the decisions drawn per base episode, without replacement.
    """

    def __init__(self, vector: VectorEnv, policies: Mapping[str, Policy], config: C3Config, **options: Any):
        super().__init__(vector, policies, **options)
        self.num_alternatives, self.num_decisions = config.num_alternatives, config.num_decisions
        self._max_drawn = config.num_decisions or MAX_DECISIONS
        self._deciders = [agent for agent, each in self.policies.items() if isinstance(each, TrainablePolicy)]

    def play(self, indexed_plans: Sequence[tuple[int, Plan]], num_plans: int, *, greedy: bool = False) -> Played:
        # Indices between two base episodes are those of the branches and of repeated base episodes.
        stride = self.num_alternatives * self._max_drawn
        bases = super().play([(index * stride, plan) for index, plan in indexed_plans], num_plans, greedy=greedy)
        decisions = [each for base in bases.done for each in self.decisions(base)]
        num_branches = self.num_alternatives - 1
        owners = {each.first + number: each for each in decisions for number in range(num_branches)}
        most = num_plans * num_branches * (self.num_decisions or 1)
        branches = super().play([(index, each.plan()) for index, each in owners.items()], most, greedy=greedy)
        found = [each.of_base(is_first=(each.first - 1) % stride == 0) for each in decisions]
        found += [owners[branch.index].of_branch(branch) for branch in branches.done]
        self.skipped = [*bases.skipped, *branches.skipped]
        first_decisions = {number * self._max_drawn for number in bases.lost}
        return Played(found, first_decisions | branches.lost, self.skipped)

    def decisions(self, base: Episode) -> list[Decision]:
        """Draw decisions of a base episode. The draw depends on its seed and its index."""
        places = [(agent, turn) for agent in self._deciders for turn in base.tracks.get(agent, ())]
        num_drawn = len(places) if self.num_decisions is None else min(self.num_decisions, len(places))
        drawn = sorted(np.random.default_rng([base.seed, base.index]).permutation(len(places))[:num_drawn])
        found = []
        for number, place in enumerate(drawn):
            agent, turn = places[place]
            group = base.group * self._max_drawn + number
            first = base.index + number * self.num_alternatives + 1
            found.append(Decision(base, agent, turn, group, len(places) / num_drawn, first))
        return found
