"""Exact solutions of the games in which agents talk, most by enumeration of a payoff table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations, compress, pairwise, product
from statistics import fmean
from typing import NamedTuple, TypeAlias

Payoffs: TypeAlias = tuple[tuple[tuple[tuple[int, ...], ...], ...], ...]
"""Payoff of both agents: [first card][second card][first action][second action]."""
Table: TypeAlias = Mapping[tuple[int, int], tuple[int, int]]
"""Pair of actions -> payoffs of both agents."""
Pays: TypeAlias = Sequence[Sequence[tuple[float, float]]]
"""Rewards of the adviser and of the decider: [state][action]."""


class Plan(NamedTuple):
    value: float  # mean payoff
    first: tuple[int, ...]  # first agent's action for each of its cards
    second: dict[tuple[int, int], int]  # (second agent's card, first action) -> second agent's action


class Equilibrium(NamedTuple):
    value: float  # mean reward of both agents
    cells: tuple[Sequence[int], ...]  # intervals of states; the adviser names the interval of the state
    actions: tuple[int, ...]  # decider's action per interval


@cache
def best_plan(pays: Payoffs, hears: bool) -> Plan:
    """Return the best deterministic plan. `hears`: True if the second agent reads the first action."""
    cards, actions = range(len(pays)), range(len(pays[0][0]))

    def planned(first: tuple[int, ...]) -> Plan:
        second, total = {}, 0
        for card, said in product(cards, actions):
            possible = [own for own in cards if not hears or first[own] == said]
            gains = [sum(pays[own][card][first[own]][reply] for own in possible) for reply in actions]
            second[card, said] = gains.index(max(gains))
            total += max(gains) if hears or said == 0 else 0
        return Plan(total / len(cards) ** 2, first, second)

    return max(map(planned, product(actions, repeat=len(cards))), key=lambda plan: plan.value)


def best_partition(pays: Pays, max_cells: int) -> Equilibrium:
    """Return the equilibrium with the highest mean reward in which the adviser names one of at most `max_cells` cells.

    All partitions of the states into intervals are tried. The decider plays a best action per cell, and no state's
    adviser prefers the action of another cell.
    """
    found, states, choices = [], range(len(pays)), range(len(pays[0]))
    for cuts in (cuts for count in range(max_cells) for cuts in combinations(states[1:], count)):
        cells = tuple(states[start:end] for start, end in pairwise((0, *cuts, len(states))))
        gains = [[sum(pays[state][action][1] for state in cell) for action in choices] for cell in cells]
        best = [[action for action in choices if gain[action] > max(gain) - 1e-9] for gain in gains]
        for actions in product(*best):
            cases = [(state, action) for cell, action in zip(cells, actions, strict=True) for state in cell]
            if all(pays[state][own][0] >= max(pays[state][a][0] for a in actions) - 1e-9 for state, own in cases):
                found.append(Equilibrium(sum(sum(pays[s][a]) for s, a in cases) / len(states) / 2, cells, actions))
    return max(found, key=lambda each: each.value)


def best_nash(table: Table) -> float:
    """Return the highest mean payoff of both agents in a Nash equilibrium of a game of two actions."""
    means = [
        sum(pays) / 2
        for (row, column), pays in table.items()
        if pays[0] >= table[1 - row, column][0] and pays[1] >= table[row, 1 - column][1]
    ]
    (a, e), (b, f), (c, g), (d, h) = table[0, 0], table[0, 1], table[1, 0], table[1, 1]
    if a - b - c + d and e - f - g + h:
        column, row = (d - b) / (a - b - c + d), (h - g) / (e - f - g + h)  # probabilities of action 0
        if 0 <= row <= 1 and 0 <= column <= 1:
            means.append((column * (a + e) + (1 - column) * (b + f)) * row / 2)
            means[-1] += (column * (c + g) + (1 - column) * (d + h)) * (1 - row) / 2
    return max(means)


def mean_chance(num_options: int, distances: Sequence[Sequence[int]], num_messages: int) -> float:
    """Return the mean probability that an agent names the right option: 1 / (number of options without a known clue).

    Args:
        num_options: options; one clue per wrong option is dealt, to the agents in turn.
        distances: [agent][agent], number of messages after which the second agent knows the clues of the first.
        num_messages: messages before the agents name an option.
    """
    counts = [len(range(seat, num_options - 1, len(distances))) for seat in range(len(distances))]
    known = [sum(compress(counts, [far <= num_messages for far in row])) for row in distances]
    return fmean(1 / (num_options - num) for num in known)
