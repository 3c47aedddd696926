"""Curriculum: difficulty of the training tasks as a function of training progress."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..._errors import UserError
from ...envs.games.sources import difficulties

Curriculum = Callable[[float], int | str]  # fraction of completed updates -> difficulty or range "2-4"

_LINEAR = re.compile(r"\s*linear\s*:(.*)", re.DOTALL)
_STAGE = re.compile(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*:\s*([^:,]+?)\s*")


def curriculum(schedule: str) -> Curriculum:
    """Parse the setting `difficulty_schedule`. Raises `UserError` if the schedule is malformed.

    A schedule is one difficulty or range for all updates ("3", "2-4"); or stages, each after the fraction of updates at
    which it starts ("0: 1, 0.3: 1-3, 0.7: 1-5"); or a range in equal steps ("linear: 1-5").
    """
    if rising := _LINEAR.fullmatch(schedule):
        steps = _parse_range(rising[1], schedule)
        return lambda done: steps[min(int(done * len(steps)), len(steps) - 1)]
    if ":" not in schedule:
        span = _parse_range(schedule, schedule)
        return lambda done: _difficulty_name(span)
    found = [_STAGE.fullmatch(part) for part in schedule.split(",")]
    stages = [(float(stage[1]), _parse_range(stage[2], schedule)) for stage in found if stage]
    starts = [start for start, _ in stages]
    if len(stages) < len(found) or starts[0] != 0 or starts != sorted(set(starts)) or starts[-1] >= 1:
        raise _schedule_error(schedule)
    return lambda done: _difficulty_name([span for start, span in stages if start <= done][-1])


def check_curriculum(schedule: str | None, metadata: dict[str, Any]) -> None:
    """Raise `UserError` if the environment, described by `metadata`, lacks a difficulty of the schedule."""
    if schedule is None:
        return
    chosen = curriculum(schedule)
    highest = metadata.get("highest_difficulty")
    if highest is None:
        raise UserError(
            f"difficulty_schedule={schedule!r} needs 'highest_difficulty' in the environment's metadata, but this key "
            "is missing with these environment arguments; leave difficulty_schedule out"
        )
    for stage in dict.fromkeys(chosen(step / 1000) for step in range(1000)):
        try:
            difficulties(stage, highest)
        except ValueError as error:
            raise UserError(f"difficulty_schedule={schedule!r}: {error}") from error


def _parse_range(text: str, schedule: str) -> range:
    found = re.fullmatch(r"\s*([0-9]{1,3})(?:\s*-\s*([0-9]{1,3}))?\s*", text)
    if found is None or int(found[2] or found[1]) < int(found[1]):
        raise _schedule_error(schedule)
    return range(int(found[1]), int(found[2] or found[1]) + 1)


def _difficulty_name(span: range) -> int | str:
    return span[0] if len(span) == 1 else f"{span[0]}-{span[-1]}"


def _schedule_error(schedule: str) -> UserError:
    return UserError(
        f"difficulty_schedule must be a difficulty or a range ('3', '2-4'), stages by the fraction of updates done "
        f"('0: 1, 0.3: 1-3, 0.7: 1-5'), or 'linear: 1-5'; got {schedule!r}"
    )
