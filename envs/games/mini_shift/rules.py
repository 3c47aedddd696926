"""Rules of MiniShift: pure functions on immutable values.

An episode (shift) has one list of parts (offer) per turn. A list has one (part, material) pair per builder, each with
a different part. Moves follow the rules of MiniBuild.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from ..mini_build.rules import MATERIALS, PARTS, Goal, Split, is_held_out


@dataclass(frozen=True)
class Offer:
    pairs: Goal  # parts of one turn
    lists: tuple[Goal, ...]  # for each builder: the pairs in the order in which the builder reads them


def new_shift(
    number: int, *, num_builders: int, num_turns: int, split: Split = "train", is_shuffled: bool = False
) -> tuple[Offer, ...]:
    """Generate the lists of parts of an episode, one per turn.

    A longer episode begins with the lists of a shorter one. `is_shuffled` does not change the parts in a list.

    Args:
        number: any integer; the same number gives the same lists.
        num_builders: pairs per list.
        num_turns: number of lists.
        split: "train" or "test"; no list is in both, in any order of its pairs.
        is_shuffled: True: each builder reads each list in its own random order.
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
    """Sample a list of different parts with random materials. Lists of the other split are sampled again."""
    while True:
        pairs = tuple((part, rng.choice(MATERIALS)) for part in rng.sample(PARTS, num_pairs))
        if is_held_out(pairs) == (split == "test"):
            return pairs
