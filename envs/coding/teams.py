"""How many programmers one program may have."""

from __future__ import annotations

LARGEST = 4
NUMBERS = {2: "Two", 3: "Three", 4: "Four"}
"""Sizes of a team, in words."""


def refuse_team(count: int, variant: str = "own") -> None:
    """Refuse teams that cannot divide a program.

    Raises:
        ValueError: if there are fewer than 2 or more than 4 programmers, or more than 2 of the published variant.
    """
    if isinstance(count, bool) or count not in NUMBERS:
        raise ValueError(f"num_agents must be 2 to {LARGEST}, got {count!r}")
    if variant == "published" and count != 2:
        raise ValueError(f"variant='published' has two programmers; leave out num_agents={count}")
