"""Rules of the divided class: the terms of the reward.

    score = 2 * methods written / methods asked for  +  2 * tests passed / tests  +  2 [all tests passed]
            -  methods written by more than one / methods asked for

6.0 at most, and 0 where the merged class does not parse. A class that fails a test has less than 4, one that passes all
at least 4. The terms and maxima are those of CoMLRL's code completion task, which pays 4 for the share of tests alone;
a method counts as written if its own programmer or another one filled it with more than a placeholder.
"""

from __future__ import annotations

from collections.abc import Sequence

from .skeletons import ClassTask, Delivery

MAX_SCORE = 6.0


def num_written(task: ClassTask, deliveries: Sequence[Delivery]) -> int:
    """How many of the methods asked for were written, by anybody."""
    return sum(any(name in delivery.methods for delivery in deliveries) for name in task.methods)


def num_overlapping(task: ClassTask, deliveries: Sequence[Delivery]) -> int:
    """How many of the methods asked for were written by more than one."""
    return sum(sum(name in delivery.methods for delivery in deliveries) > 1 for name in task.methods)


def terms(
    task: ClassTask, deliveries: Sequence[Delivery], pass_rate: float | None, *, is_solved: bool
) -> dict[str, float]:
    """The parts of the score.

    Args:
        task: the class.
        deliveries: what each programmer wrote.
        pass_rate: share of the tests that the merged class passed, 0 to 1; None if it did not parse.
        is_solved: whether it passed all, and ran to its end.
    """
    if pass_rate is None:
        return {"methods": 0.0, "tests": 0.0, "overlap": 0.0}
    total = len(task.methods)
    return {
        "methods": 2.0 * num_written(task, deliveries) / total,
        "tests": 2.0 * pass_rate + 2.0 * is_solved,
        "overlap": 0.0 - num_overlapping(task, deliveries) / total,
    }


def published_terms(task: ClassTask, deliveries: Sequence[Delivery], pass_rate: float | None) -> dict[str, float]:
    """The parts of the reward as CoMLRL's task has them, without its shift: every share of the tests is worth alike."""
    own = terms(task, deliveries, pass_rate, is_solved=False)
    return own | {"tests": 4.0 * (pass_rate or 0.0)}
