"""Rules of MiniShift: pure functions on immutable values, free of text and of the agent API.

A shift is an offer per turn. An offer is one (part, material) pair for each builder, no part twice; what is offered in
one turn is gone in the next, so that nothing need be remembered. Moves within an offer are judged as in MiniBuild.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from ..mini_build.rules import MATERIALS, MAX_BUILDERS, PARTS, Goal, Split, is_held_out


@dataclass(frozen=True)
class Offer:
    """What there is to build in one turn."""

    pairs: Goal
    lists: tuple[Goal, ...]  # the pairs as each builder reads them, by seat


def new_shift(
    number: int, *, num_builders: int, num_turns: int, split: Split = "train", is_shuffled: bool = False
) -> tuple[Offer, ...]:
    """The shift with this number in its split: an offer per turn.

    A longer shift begins with the offers of a shorter one, and a shuffled one has the offers of an ordered one.

    Args:
        number: any integer; the same one gives the same shift.
        num_builders: pairs of an offer.
        num_turns: offers.
        split: "train" or "test"; no offer is in both, in any order.
        is_shuffled: each builder reads each offer in an order of its own. False: all read the same list.
    """
    rng = random.Random(f"{split} shift {num_builders} {number}")
    orders = random.Random(f"{split} orders {num_builders} {number}")
    offers = []
    for _ in range(num_turns):
        pairs = new_offer(rng, num_builders, split)
        lists = [tuple(orders.sample(pairs, num_builders)) if is_shuffled else pairs for _ in range(num_builders)]
        offers.append(Offer(pairs, tuple(lists)))
    return tuple(offers)


def new_offer(rng: random.Random, num_pairs: int, split: Split) -> Goal:
    """Different parts, each with any material; drawn again until the offer is in the split."""
    while True:
        pairs = tuple((part, rng.choice(MATERIALS)) for part in rng.sample(PARTS, num_pairs))
        if is_held_out(pairs) == (split == "test"):
            return pairs


def refuse_team(num_builders: int) -> None:
    """Raise if so many builders cannot play."""
    if isinstance(num_builders, bool) or num_builders not in range(2, MAX_BUILDERS + 1):
        raise ValueError(f"num_agents must be 2 to {MAX_BUILDERS}, got {num_builders!r}")
