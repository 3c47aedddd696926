"""Rules of the divided class: the terms of the reward.

    reward = 2 * methods written / methods asked for  +  4 * tests passed / tests  -  methods written twice / asked for

6.0 at most, and 0 where the merged class does not parse. The terms and weights are those of CoMLRL's code completion
task; a method counts as written if its own programmer or the other one filled it with more than a placeholder.
"""

from __future__ import annotations

from .skeletons import ClassTask, Delivery

MAX_REWARD = 6.0


def num_written(task: ClassTask, deliveries: tuple[Delivery, Delivery]) -> int:
    """How many of the methods asked for were written, by anybody."""
    return sum(any(name in delivery.methods for delivery in deliveries) for name in task.methods)


def num_overlapping(task: ClassTask, deliveries: tuple[Delivery, Delivery]) -> int:
    """How many of the methods asked for were written by both."""
    return sum(all(name in delivery.methods for delivery in deliveries) for name in task.methods)


def terms(task: ClassTask, deliveries: tuple[Delivery, Delivery], pass_rate: float | None) -> dict[str, float]:
    """The parts of the reward; their sum is the team's.

    Args:
        task: the class.
        deliveries: what each programmer wrote.
        pass_rate: share of the tests that the merged class passed, 0 to 1; None if it did not parse.
    """
    if pass_rate is None:
        return {"methods": 0.0, "tests": 0.0, "overlap": 0.0}
    total = len(task.methods)
    return {
        "methods": 2.0 * num_written(task, deliveries) / total,
        "tests": 4.0 * pass_rate,
        "overlap": 0.0 - num_overlapping(task, deliveries) / total,
    }
