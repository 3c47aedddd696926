"""Sources of the tasks of a game: a loaded list of tasks, or a generator."""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

from ..data import BUILTIN, Tasks, has_splits, load_tasks

GENERATED = "generated"
Split = Literal["train", "test", "all"]
Data = str | Mapping[str, str]
Difficulty = int | str  # difficulty of generated tasks: a number, or a range such as "1-4"

_TEST_SHARE = 5  # one generated task in five is held out


class Shared:
    """Base class of immutable objects. Copying returns the object itself, so that copied environments share it."""

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self


class GameTask(Protocol):
    """Attributes that every task has."""

    @property
    def id(self) -> str: ...
    @property
    def difficulty(self) -> int | None: ...  # None: unknown


T = TypeVar("T", bound=GameTask)


class Listed(Shared, Generic[T]):
    """Loaded tasks. `pick` takes the index or the id of a task."""

    highest: ClassVar[None] = None  # tasks are not chosen by difficulty

    def __init__(self, tasks: Sequence[T]):
        self.tasks = tuple(tasks)
        self._by_id = {task.id: task for task in self.tasks}

    def pick(self, which: Any, rng: random.Random, difficulty: Difficulty | None = None) -> T:
        if difficulty is not None:
            raise ValueError(f"difficulty={difficulty!r} needs generated tasks; leave it out for a list of tasks")
        if which is None:
            return rng.choice(self.tasks)
        if isinstance(which, str) and which in self._by_id:
            return self._by_id[which]
        if isinstance(which, int) and not isinstance(which, bool) and 0 <= which < len(self.tasks):
            return self.tasks[which]
        raise ValueError(
            f"task {which!r} does not exist; give an index 0..{len(self.tasks) - 1} or an id such as "
            f"{self.tasks[0].id!r}"
        )


@dataclass(frozen=True)
class Generated(Shared, Generic[T]):
    """Generator of one task per number. With several difficulties, successive numbers have successive difficulties."""

    new: Callable[..., T]  # function (number, difficulty) -> task
    difficulties: range
    highest: int  # highest difficulty of the generator

    def pick(self, which: Any, rng: random.Random, difficulty: Difficulty | None = None) -> T:
        chosen = self.difficulties if difficulty is None else difficulties(difficulty, self.highest)
        if which is None:
            which = rng.randrange(2**31)
        if isinstance(which, int) and not isinstance(which, bool) and which >= 0:
            return self.new(which, difficulty=chosen[which % len(chosen)])
        raise ValueError(f"task {which!r} must be an integer >= 0, because tasks are generated")


Source = Listed[T] | Generated[T]


def source_of(
    data: Data,
    split: Split,
    difficulty: Difficulty,
    *,
    highest: int,
    listed: Callable[..., Sequence[T]],
    new: Callable[..., T],
    **settings: Any,
) -> Source[T]:
    """Create the source of a game's tasks from its settings.

    `listed` loads the tasks of data that is not `GENERATED`. `new` generates a task from a number. Both get `settings`.
    """
    if data != GENERATED:
        return Listed(listed(data, split, **settings))
    new_task = partial(new, split=generated_split(split), **settings)
    return Generated(new_task, difficulties(difficulty, highest), highest)


def difficulties(difficulty: Difficulty, highest: int) -> range:
    """Convert a difficulty (a number, or a text such as "1-4") to a range within 1 to `highest`."""
    span = re.fullmatch(r"\s*([0-9]{1,3})\s*-\s*([0-9]{1,3})\s*", difficulty) if isinstance(difficulty, str) else None
    if span is None:
        refuse_difficulty(difficulty, highest)
        return range(int(difficulty), int(difficulty) + 1)
    first, last = int(span[1]), int(span[2])
    if not 1 <= first <= last <= highest:
        raise ValueError(f"difficulty={difficulty!r} must be a range within 1-{highest}")
    return range(first, last + 1)


def refuse_difficulty(difficulty: Difficulty, highest: int) -> None:
    if isinstance(difficulty, bool) or difficulty not in range(1, highest + 1):
        raise ValueError(f"difficulty={difficulty!r} must be 1 to {highest}, or a range such as '1-{highest}'")


def generated_split(split: Split) -> Literal["train", "test"]:
    """Return the split. Raise ValueError if it is "all" or unknown: generated tasks have only "train" and "test"."""
    if split not in ("train", "test"):
        raise ValueError(f"split must be 'train' or 'test' for generated tasks, got {split!r}")
    return split


def is_held_out(content: str) -> bool:
    """Return True if a generated task belongs to the test split. A stable hash of its content decides."""
    return zlib.crc32(content.encode()) % _TEST_SHARE == 0


def tasks_of_split(
    data: Data,
    split: Split,
    made: Callable[[Mapping[str, Any], int], T],
    builtin: Path,
    text_fields: Sequence[str] = (),
    other_fields: Sequence[str] = (),
) -> list[T]:
    """Load the tasks of the split "train", "test" or "all" of the data.

    Data without splits is divided as in the published benchmark: the first four fifths for training, the rest for
    testing. `made` converts a row and its number (from 1) to a task. If `made` raises ValueError, the error gets the
    data's name and the row.
    """
    if split not in ("train", "test", "all"):
        raise ValueError(f"split must be 'train', 'test' or 'all', got {split!r}")
    chosen: Data = str(builtin) if data == BUILTIN else data
    is_cut_already = not isinstance(chosen, str) or "{split}" in chosen or has_splits(Path(chosen).expanduser())
    load = partial(load_tasks, text_fields=text_fields, other_fields=other_fields)
    if not is_cut_already:
        loaded = load(chosen, "train")
        first_test = len(loaded) * 4 // 5
        numbers = {"train": range(first_test), "test": range(first_test, len(loaded)), "all": range(len(loaded))}
        return [_task(loaded, at, at + 1, made) for at in numbers[split]]
    tasks: list[T] = []
    for loaded in [load(chosen, part) for part in (("train", "test") if split == "all" else (split,))]:
        before = len(tasks)
        tasks += [_task(loaded, at, before + at + 1, made) for at in range(len(loaded))]
    return tasks


def _task(loaded: Tasks, at: int, number: int, made: Callable[[Mapping[str, Any], int], T]) -> T:
    row = loaded[at]
    try:
        return made(row, number)
    except ValueError as error:
        raise ValueError(f"{loaded.source}, row {at + 1}: {error}") from error
