"""Strategies of scripted players in repeated games of two actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from .solutions import Table

Strategy: TypeAlias = Callable[[Table, Sequence[tuple[int, int]], int], int]
"""Function: payoffs, pairs of actions of the earlier rounds, the player's seat -> action."""


def agreeable(table: Table, played: Sequence[tuple[int, int]], seat: int) -> int:
    """Play the pair of actions with the highest sum of payoffs, and then minimum; in turn if there are several."""
    best = max((sum(pays), min(pays)) for pays in table.values())
    targets = [cell for cell, pays in table.items() if (sum(pays), min(pays)) == best]
    return targets[len(played) % len(targets)][seat]


def safe(table: Table, played: Sequence[tuple[int, int]], seat: int) -> int:
    """Play the action whose lowest payoff is the highest."""
    least = [min(pays[seat] for cell, pays in table.items() if cell[seat] == own) for own in (0, 1)]
    return least.index(max(least))


def grim(table: Table, played: Sequence[tuple[int, int]], seat: int) -> int:
    """Play `agreeable` until the other player deviates from it, and then `safe`."""
    agreed = (agreeable(table, played[:number], 1 - seat) for number in range(len(played)))
    is_agreed = all(cell[1 - seat] == action for cell, action in zip(played, agreed, strict=True))
    return (agreeable if is_agreed else safe)(table, played, seat)


def forgiving(table: Table, played: Sequence[tuple[int, int]], seat: int) -> int:
    """Play `agreeable`, except after a round in which the other player deviated from it; then `safe`."""
    is_agreed = not played or played[-1][1 - seat] == agreeable(table, played[:-1], 1 - seat)
    return (agreeable if is_agreed else safe)(table, played, seat)


STRANGERS: Mapping[str, Strategy] = {
    "agreeable": agreeable,
    "safe": safe,
    "grim": grim,
    "forgiving-held-out": forgiving,
}
