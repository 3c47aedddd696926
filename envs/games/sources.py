"""Where a game's tasks come from: a list that was loaded, or a generator that never ends."""

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
Difficulty = int | str
"""How hard generated tasks are: a number, or a range of them, "1-4"."""

_TEST_SHARE = 5  # one generated task in five is held out


class Shared:
    """A base of values that never change, so that copies of an environment share them."""

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self


class GameTask(Protocol):
    """What every game's task has."""

    @property
    def id(self) -> str: ...
    @property
    def difficulty(self) -> int | None:
        """How hard it is; None where nobody says."""


T = TypeVar("T", bound=GameTask)
T_co = TypeVar("T_co", bound=GameTask, covariant=True)


class Source(Protocol[T_co]):
    """Tasks, from which an episode takes one."""

    @property
    def highest(self) -> int | None:
        """The highest difficulty that may be asked for; None where tasks are not dealt by it."""

    def pick(self, which: Any, rng: random.Random, difficulty: Difficulty | None = None) -> T_co:
        """The task asked for; one drawn from the generator where `which` is None.

        Args:
            which: number or id of a task.
            rng: the generator.
            difficulty: how hard it is to be, in place of what the source was made for.
        """


class Listed(Shared, Generic[T]):
    """A list of tasks.

    Args:
        tasks: at least one, with ids that differ.
    """

    highest: ClassVar[None] = None

    def __init__(self, tasks: Sequence[T]):
        self.tasks = tuple(tasks)
        self._by_id = {task.id: task for task in self.tasks}

    def pick(self, which: Any, rng: random.Random, difficulty: Difficulty | None = None) -> T:
        if difficulty is not None:
            raise ValueError(f"a list of tasks is not dealt by difficulty, only generated ones are; got {difficulty!r}")
        if which is None:
            return rng.choice(self.tasks)
        if isinstance(which, str) and which in self._by_id:
            return self._by_id[which]
        if isinstance(which, int) and not isinstance(which, bool) and 0 <= which < len(self.tasks):
            return self.tasks[which]
        raise ValueError(
            f"there is no task {which!r}; give an index 0..{len(self.tasks) - 1} or an id such as {self.tasks[0].id!r}"
        )


@dataclass(frozen=True)
class Generated(Shared, Generic[T]):
    """Tasks without end, numbered; where there are several difficulties, they take turns with the numbers."""

    new: Callable[..., T]  # the task with a number, of a `difficulty`
    difficulties: range
    highest: int  # of the generator's difficulties

    def pick(self, which: Any, rng: random.Random, difficulty: Difficulty | None = None) -> T:
        chosen = self.difficulties if difficulty is None else difficulties(difficulty, self.highest)
        if which is None:
            which = rng.randrange(2**31)
        if isinstance(which, int) and not isinstance(which, bool) and which >= 0:
            return self.new(which, difficulty=chosen[which % len(chosen)])
        raise ValueError(f"generated tasks go by their number, a whole number from 0 up; got {which!r}")


def source_of(
    data: Data,
    split: Split,
    difficulty: Difficulty,
    *,
    highest: int,
    listed: Callable[[Data, Split], Sequence[T]],
    new: Callable[..., T],
) -> Source[T]:
    """Where a game's tasks come from, by its settings: a list of the data, or generated tasks of some difficulty.

    Args:
        data: `GENERATED`, or what `listed` reads.
        split: "train" or "test"; or "all", of data that is a list.
        difficulty: how hard generated tasks are: a number, or a range as "1-4".
        highest: the highest difficulty that the generator has.
        listed: the tasks of some data and split.
        new: the generated task with a number; takes `difficulty` and `split` by name.

    Raises:
        ValueError: if the generator has no such difficulty or split, or the data is not what `listed` reads.
    """
    if data != GENERATED:
        return Listed(listed(data, split))
    return Generated(partial(new, split=generated_split(split)), difficulties(difficulty, highest), highest)


def difficulties(difficulty: Difficulty, highest: int) -> range:
    """The difficulties that a number or a range stands for.

    Raises:
        ValueError: if the generator does not have all of them.
    """
    span = re.fullmatch(r"\s*([0-9]{1,3})\s*-\s*([0-9]{1,3})\s*", difficulty) if isinstance(difficulty, str) else None
    if span is None:
        refuse_difficulty(difficulty, highest)
        return range(int(difficulty), int(difficulty) + 1)
    first, last = int(span[1]), int(span[2])
    if not 1 <= first <= last <= highest:
        raise ValueError(f"a range of difficulties must lie within 1-{highest}, got {difficulty!r}")
    return range(first, last + 1)


def refuse_difficulty(difficulty: Difficulty, highest: int) -> None:
    """Raise if the difficulty is not one the generator has."""
    if isinstance(difficulty, bool) or difficulty not in range(1, highest + 1):
        raise ValueError(
            f"difficulty must be 1 to {highest} (a range, as '1-{highest}', draws from several), got {difficulty!r}"
        )


def generated_split(split: Split) -> Literal["train", "test"]:
    """The split as a generator has it.

    Raises:
        ValueError: if it is not "train" or "test"; there is no end of tasks that could be "all".
    """
    if split not in ("train", "test"):
        raise ValueError(f"split must be 'train' or 'test' for generated tasks, got {split!r}")
    return split


def is_held_out(content: str) -> bool:
    """Whether a generated task is one of the test split: by a stable hash of what it is, not of how it was drawn."""
    return zlib.crc32(content.encode()) % _TEST_SHARE == 0


def tasks_of_split(
    data: Data,
    split: Split,
    made: Callable[[Mapping[str, Any], int], T],
    *,
    builtin: Path,
    text_fields: Sequence[str] = (),
    other_fields: Sequence[str] = (),
) -> list[T]:
    """The tasks of one split.

    Data without splits of its own is cut as the published benchmark cuts its ten: the first four fifths are for
    training, the rest for testing; "all" is both.

    Args:
        data: as of `load_tasks`.
        split: "train", "test" or "all".
        made: the task of a row; takes its number in the whole data too, from 1.
        builtin: file of the built-in data.
        text_fields: columns that hold text.
        other_fields: further columns that a row needs.

    Raises:
        ValueError: for an unknown split, as `load_tasks` does, and for a row that is no task, with its place.
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
