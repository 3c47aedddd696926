"""Game trees of small OpenSpiel games: exact values of policies, and exact best responses.

A policy is a list with one entry per information set: the probability of each legal reply, in the order of
`InformationSet.replies`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..._errors import UserError
from .open_spiel import OpenSpiel, players_to_move

TabularPolicy: TypeAlias = Sequence[Sequence[float]]
MAX_NODES = 200_000  # about 10 seconds
MAX_DEPTH = 100  # the recursion needs several frames per move


@dataclass(frozen=True, slots=True)
class InformationSet:
    """States of a game that a player cannot distinguish."""

    player: int
    key: str
    """OpenSpiel's information state string."""
    prompt: str
    """Text that the player reads."""
    replies: tuple[str, ...]
    """Legal replies."""


@dataclass(frozen=True, slots=True, eq=False)  # nodes are keys of dicts
class _Node:
    """Node of a game tree. Decision nodes have an information set, chance nodes have chances, leaves have returns."""

    children: tuple[_Node, ...] = ()
    information_set: int | None = None
    chances: tuple[float, ...] = ()
    returns: tuple[float, ...] = ()


class GameTree:
    """Complete tree of an OpenSpiel game. Simultaneous moves become successive moves that no other player observes.

    Args:
        env: environment of the game. Only its rules and prompts are read.
        max_nodes: maximum number of nodes. Games of more than `MAX_DEPTH` moves are too large, too.

    Raises:
        UserError: if the tree is larger, or the game has no information states with perfect recall.
    """

    def __init__(self, env: OpenSpiel, max_nodes: int = MAX_NODES):
        self.information_sets: list[InformationSet] = []
        self.num_players = env.game.num_players()
        self._env, self._name = env, f"open_spiel/{env.game}"
        if not env.game.get_type().provides_information_state_string:
            raise UserError(f"{self._name} has no information states, which an exact best response needs")
        self._indices: dict[tuple[int, str], int] = {}
        self._recalled: list[tuple[int, int] | None] = []  # the player's previous information set and choice
        self._room = max_nodes
        self._root = self._built(env.game.new_initial_state(), (None,) * self.num_players)

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
        nodes: dict[int, list[tuple[float, _Node]]] = defaultdict(list)

        def weights(node: _Node) -> Sequence[float]:
            return node.chances if node.information_set is None else policy[node.information_set]

        def visit(node: _Node, reach: float) -> None:
            is_own = self._player(node) == player
            if is_own and node.information_set is not None:
                nodes[node.information_set].append((reach, node))
            for index, child in enumerate(node.children):
                visit(child, reach if is_own else reach * weights(node)[index])

        best: dict[int, int] = {}

        def choice(index: int) -> int:
            if index not in best:
                totals = [
                    sum(reach * value(node.children[number]) for reach, node in nodes[index] if reach)
                    for number in range(len(self.information_sets[index].replies))
                ]
                best[index] = totals.index(max(totals))
            return best[index]

        found: dict[_Node, float] = {}

        def value(node: _Node) -> float:
            if node.returns:
                return node.returns[player]
            if node not in found:
                if self._player(node) == player:
                    assert node.information_set is not None
                    found[node] = value(node.children[choice(node.information_set)])
                else:
                    pairs = zip(weights(node), node.children, strict=True)
                    found[node] = sum(weight * value(child) for weight, child in pairs if weight)
            return found[node]

        visit(self._root, 1.0)
        return value(self._root)

    def gains(self, policy: TabularPolicy) -> list[float]:
        """Return what each player gains with a best response, in return units. NashConv is the sum of the gains.

        Source: NashConv, arXiv:1711.00832, section 2.
        """
        values = self.values(policy)
        return [self.best_response_value(policy, player) - value for player, value in enumerate(values)]

    def _player(self, node: _Node) -> int | None:
        return None if node.information_set is None else self.information_sets[node.information_set].player

    def _built(self, state: Any, recalled: tuple[tuple[int, int] | None, ...]) -> _Node:
        self._room -= 1
        if self._room < 0 or state.move_number() > MAX_DEPTH:
            raise UserError(f"{self._name} is too large to enumerate")
        if state.is_terminal():
            return _Node(returns=tuple(state.returns()))
        if state.is_chance_node():
            outcomes, chances = zip(*state.chance_outcomes(), strict=True)
            return _Node(tuple(self._built(state.child(each), recalled) for each in outcomes), chances=chances)
        return self._decided(state, players_to_move(state), {}, recalled)

    def _decided(
        self, state: Any, players: Sequence[int], chosen: dict[int, int], recalled: tuple[tuple[int, int] | None, ...]
    ) -> _Node:
        """Build the decisions of players that move simultaneously, after the decisions in `chosen`."""
        if len(chosen) == len(players):
            after = state.clone()
            if state.is_simultaneous_node():
                after.apply_actions([chosen.get(player, 0) for player in range(self.num_players)])
            else:
                after.apply_action(chosen[players[0]])
            return self._built(after, recalled)
        player = players[len(chosen)]
        index = self._index(state, player, recalled[player])
        children = []
        for number, action in enumerate(self._env.named_actions(state, player).values()):
            known = (*recalled[:player], (index, number), *recalled[player + 1 :])
            children.append(self._decided(state, players, {**chosen, player: action}, known))
        return _Node(tuple(children), index)

    def _index(self, state: Any, player: int, recalled: tuple[int, int] | None) -> int:
        key = player, state.information_state_string(player)
        if key not in self._indices:
            self._indices[key] = len(self.information_sets)
            replies = tuple(self._env.named_actions(state, player))
            self.information_sets.append(InformationSet(*key, self._env.prompt(state, player), replies))
            self._recalled.append(recalled)
        index = self._indices[key]
        if self._recalled[index] != recalled:
            raise UserError(f"{self._name} has players with imperfect recall, so a best response cannot be computed")
        return index
