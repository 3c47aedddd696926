"""Terms of the reward of ClassEval.

    score = 2 * methods written / methods required + 2 * fraction of tests passed + 2 [all tests passed]
            - methods written by more than one programmer / methods required

The score is 0 if the merged class does not parse, less than 4 if it fails a test, and 4 to 6 if it passes all tests.
A method that contains only a placeholder, such as `pass`, does not count as written.
Source: CoMLRL's code completion task. Its term for the tests is 4 * fraction of tests passed.
"""

from __future__ import annotations

from collections.abc import Sequence

from .skeletons import ClassTask, Delivery

MAX_SCORE = 6.0


def num_written(task: ClassTask, deliveries: Sequence[Delivery]) -> int:
    """Return the number of required methods that at least one programmer wrote."""
    return sum(any(name in delivery.methods for delivery in deliveries) for name in task.methods)


def num_overlapping(task: ClassTask, deliveries: Sequence[Delivery]) -> int:
    """Return the number of required methods that more than one programmer wrote."""
    return sum(sum(name in delivery.methods for delivery in deliveries) > 1 for name in task.methods)


def terms(
    task: ClassTask, deliveries: Sequence[Delivery], pass_rate: float | None, *, is_solved: bool
) -> dict[str, float]:
    """Compute the reward terms of a turn by name. `pass_rate` is None if the merged class does not parse."""
    if pass_rate is None:
        return {"methods": 0.0, "tests": 0.0, "overlap": 0.0}
    total = len(task.methods)
    return {
        "methods": 2.0 * num_written(task, deliveries) / total,
        "tests": 2.0 * pass_rate + 2.0 * is_solved,
        "overlap": 0.0 - num_overlapping(task, deliveries) / total,
    }


def published_terms(task: ClassTask, deliveries: Sequence[Delivery], pass_rate: float | None) -> dict[str, float]:
    """Compute the terms of CoMLRL's reward, without the constant that CoMLRL subtracts in each turn."""
    own = terms(task, deliveries, pass_rate, is_solved=False)
    return own | {"tests": 4.0 * (pass_rate or 0.0)}
