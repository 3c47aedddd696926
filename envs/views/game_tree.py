"""Game trees of small games: exact values of policies, and exact best responses.

A policy is a list with one entry per information set: the probability of each legal reply, in the order of
`InformationSet.replies`.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Protocol, TypeAlias, runtime_checkable

from ..._errors import UserError
from ..core import Message, TextParallelEnv, Transcript
from .open_spiel import OpenSpiel, players_to_move

TabularPolicy: TypeAlias = Sequence[Sequence[float]]
_Recalled: TypeAlias = tuple[tuple[int, int] | None, ...]  # previous information set and choice of each player
MAX_NODES = 200_000  # about 10 seconds
MAX_DEPTH = 100  # the recursion needs several frames per move


@dataclass(frozen=True, slots=True)
class InformationSet:
    """States of a game that a player cannot distinguish."""

    player: int
    key: str  # OpenSpiel's information state string, or the player's history
    prompt: Transcript  # history that the player reads
    replies: tuple[str, ...]  # legal replies
    previous: tuple[int, int] | None = None  # the player's previous information set, and the index of its reply there


@dataclass(frozen=True, slots=True, eq=False)  # nodes are keys of dicts
class _Node:
    """Node of a game tree. Decision nodes have an information set, chance nodes have chances, leaves have returns."""

    children: tuple[_Node, ...] = ()
    information_set: int | None = None
    chances: tuple[float, ...] = ()
    returns: tuple[float, ...] = ()


@runtime_checkable
class Enumerable(Protocol):
    """Text environment whose episodes can be enumerated. After the deal, it draws no random numbers."""

    num_deals: int
    """Number of equally likely deals. `reset(options={"task": number})` selects a deal, from 0."""

    def legal_replies(self, agent: str) -> Sequence[str]:
        """Return the replies of an agent that acts in this turn, as texts."""


@dataclass(frozen=True)
class _State:
    """State of a game of OpenSpiel."""

    env: OpenSpiel
    state: Any

    def chances(self) -> Sequence[tuple[float, _State]]:
        outcomes = self.state.chance_outcomes() if self.state.is_chance_node() else []
        return [(chance, replace(self, state=self.state.child(outcome))) for outcome, chance in outcomes]

    def movers(self) -> Sequence[int]:
        return players_to_move(self.state)

    def information(self, player: int) -> tuple[str, Transcript, Sequence[str]]:
        prompt = Transcript([Message("user", self.env.prompt(self.state, player))])
        return self.state.information_state_string(player), prompt, tuple(self.env.named_actions(self.state, player))

    def after(self, chosen: Mapping[int, int]) -> _State:
        actions = [0] * self.state.num_players()  # actions of players without legal actions are ignored
        for player, index in chosen.items():
            actions[player] = [*self.env.named_actions(self.state, player).values()][index]
        after = self.state.clone()
        if self.state.is_simultaneous_node():
            after.apply_actions(actions)
        else:
            after.apply_action(actions[self.state.current_player()])
        return replace(self, state=after)

    def returns(self) -> Sequence[float]:
        return list(self.state.returns())


@dataclass(frozen=True)
class _Episode:
    """Episode of a text environment so far. Without histories, before the deal."""

    env: Any  # a `TextParallelEnv` that is `Enumerable`
    histories: Mapping[str, Transcript] = field(default_factory=dict)
    earned: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def saved(self) -> bytes:
        return pickle.dumps(self.env)  # faster than a deep copy

    def chances(self) -> Sequence[tuple[float, _Episode]]:
        deals = range(0 if self.histories else self.env.num_deals)
        return [(1 / len(deals), self._next("reset", None, {"task": task})) for task in deals]

    def movers(self) -> Sequence[int]:
        return [self.env.possible_agents.index(agent) for agent in self.env.movers]

    def information(self, player: int) -> tuple[str, Transcript, Sequence[str]]:
        agent = self.env.possible_agents[player]
        return self.histories[agent], self.histories[agent], tuple(self.env.legal_replies(agent))

    def after(self, chosen: Mapping[int, int]) -> _Episode:
        agents = self.env.possible_agents
        replies = {agents[each]: self.env.legal_replies(agents[each])[index] for each, index in chosen.items()}
        return self._next("step", replies)

    def returns(self) -> Sequence[float]:
        return [self.earned[agent] for agent in self.env.possible_agents]

    def _next(self, method: str, *given: Any) -> _Episode:
        env = pickle.loads(self.saved)
        drawn = env.rng.getstate()
        histories, rewards, *_ = getattr(env, method)(*given)
        if env.rng.getstate() != drawn:
            raise UserError(f"{env} draws random numbers after the deal, so it cannot be enumerated")
        paid = rewards if self.histories else {}  # a reset returns infos instead of rewards
        earned = {agent: self.earned.get(agent, 0.0) + paid.get(agent, 0.0) for agent in env.possible_agents}
        return _Episode(env, histories, earned)


_Position: TypeAlias = _State | _Episode
"""A chance node if it has `chances`, otherwise a leaf if it has no `movers`. `information` returns the key of the
player's information set, its history, and the legal replies. `after` takes the index of the reply of each mover."""


def position_of(env: TextParallelEnv) -> _Position:
    """Return the first position of an environment's game."""
    if isinstance(env, OpenSpiel):
        if not env.game.get_type().provides_information_state_string:
            raise UserError(f"open_spiel/{env.game} has no information states, which an exact best response needs")
        return _State(env, env.game.new_initial_state())
    if not isinstance(env, Enumerable):
        raise UserError(f"NashConv needs a game of OpenSpiel or an environment with `legal_replies`, got {env}")
    started = pickle.loads(pickle.dumps(env))
    started.reset(seed=0)
    return _Episode(started)


class GameTree:
    """Complete tree of a game. Simultaneous moves become successive moves that no other player observes.

    Args:
        env: game of OpenSpiel, or `Enumerable` environment. The tree does not change it.
        max_nodes: maximum number of nodes. Games of more than `MAX_DEPTH` moves are too large, too.

    Raises:
        UserError: if the tree is larger, the game cannot be enumerated, or players do not have perfect recall.
    """

    def __init__(self, env: TextParallelEnv, max_nodes: int = MAX_NODES):
        self.information_sets: list[InformationSet] = []
        self.num_players = len(env.possible_agents)
        self._name = f"open_spiel/{env.game}" if isinstance(env, OpenSpiel) else str(env)
        self._indices: dict[tuple[int, str], int] = {}
        self._room = max_nodes
        first = position_of(env)
        if isinstance(env, Enumerable) and env.num_deals > max_nodes:
            raise UserError(f"{self._name} has {env.num_deals} deals, which are too many to enumerate")
        self._root = self._built(first, (None,) * self.num_players)

    def values(self, policy: TabularPolicy) -> list[float]:
        """Return the expected return of each player if all players follow the policy."""

        def value(node: _Node) -> list[float]:
            if node.returns:
                return list(node.returns)
            weights = node.chances if node.information_set is None else policy[node.information_set]
            weighted = [(weight, value(child)) for weight, child in zip(weights, node.children, strict=True) if weight]
            return [sum(weight * each[player] for weight, each in weighted) for player in range(self.num_players)]

        return value(self._root)

    def best_response_value(self, policy: TabularPolicy, player: int) -> float:
        """Return the maximum expected return of a player if the other players follow the policy.

        At each information set I, the best response chooses argmax_a of the sum, over the nodes h in I, of
        P(chance and other players reach h) * value(h, a).
        """
        own = [index for index, each in enumerate(self.information_sets) if each.player == player]
        nodes: dict[int, list[tuple[float, _Node]]] = {index: [] for index in own}

        def weights(node: _Node) -> Sequence[float]:
            return node.chances if node.information_set is None else policy[node.information_set]

        def visit(node: _Node, reach: float) -> None:
            is_own = node.information_set in nodes
            if node.information_set in nodes:
                nodes[node.information_set].append((reach, node))
            for index, child in enumerate(node.children):
                visit(child, reach if is_own else reach * weights(node)[index])

        @cache
        def choice(index: int) -> int:
            totals = [
                sum(reach * value(node.children[number]) for reach, node in nodes[index] if reach)
                for number in range(len(self.information_sets[index].replies))
            ]
            return totals.index(max(totals))

        @cache
        def value(node: _Node) -> float:
            if node.returns:
                return node.returns[player]
            if node.information_set in nodes:
                return value(node.children[choice(node.information_set)])
            pairs = zip(weights(node), node.children, strict=True)
            return sum(weight * value(child) for weight, child in pairs if weight)

        visit(self._root, 1.0)
        return value(self._root)

    def gains(self, policy: TabularPolicy) -> list[float]:
        """Return what each player gains with a best response, in return units. NashConv is the sum of the gains.

        Source: NashConv, arXiv:1711.00832, section 2.
        """
        values = self.values(policy)
        return [self.best_response_value(policy, player) - value for player, value in enumerate(values)]

    def _built(self, position: _Position, recalled: _Recalled, depth: int = 0) -> _Node:
        self._room -= 1
        if self._room < 0 or depth > MAX_DEPTH:
            raise UserError(f"{self._name} is too large to enumerate")
        if pairs := position.chances():
            chances, outcomes = zip(*pairs, strict=True)
            return _Node(tuple(self._built(each, recalled, depth + 1) for each in outcomes), chances=chances)
        if movers := position.movers():
            return self._decided(position, movers, {}, recalled, depth + 1)
        return _Node(returns=tuple(position.returns()))

    def _decided(
        self, position: _Position, movers: Sequence[int], chosen: dict[int, int], recalled: _Recalled, depth: int
    ) -> _Node:
        """Build the decisions of players that move simultaneously, after the decisions in `chosen`."""
        if len(chosen) == len(movers):
            return self._built(position.after(chosen), recalled, depth)
        player = movers[len(chosen)]
        index = self._index(position, player, recalled[player])
        children = []
        for number in range(len(self.information_sets[index].replies)):
            known = (*recalled[:player], (index, number), *recalled[player + 1 :])
            children.append(self._decided(position, movers, {**chosen, player: number}, known, depth))
        return _Node(tuple(children), index)

    def _index(self, position: _Position, player: int, recalled: tuple[int, int] | None) -> int:
        key, prompt, replies = position.information(player)
        if (player, key) not in self._indices:
            self._indices[player, key] = len(self.information_sets)
            self.information_sets.append(InformationSet(player, key, prompt, tuple(replies), recalled))
        index = self._indices[player, key]
        if self.information_sets[index].previous != recalled:
            raise UserError(f"{self._name} has players with imperfect recall, so a best response cannot be computed")
        return index
