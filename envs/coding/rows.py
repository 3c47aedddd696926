"""Rows that can be dealt, found out before the first episode: one that cannot must not end a training in the middle."""

from __future__ import annotations

import ast
import importlib.util
import logging
import sys
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..data import Tasks
from .syntax import parsed

OnBadRow = Literal["error", "skip"]
Packages = Sequence[str] | Literal["installed"]
_MAX_NAMED = 5
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sources:
    """What is run for a row."""

    tests: str
    """What the tests' jail runs: without a package that it imports, the row cannot be played."""
    solution: str
    """What solves it: without a package that it imports, the row cannot be solved in that way."""


@dataclass(frozen=True)
class Checked:
    """The rows that are kept."""

    tasks: Tasks
    packages: tuple[str, ...]
    """Installed packages that the programs may import."""
    missing: Mapping[str, tuple[str, ...]]
    """By the row's id: packages that its solution imports and that the programs may not."""


_checked: weakref.WeakKeyDictionary[Tasks, dict[Hashable, Checked]] = weakref.WeakKeyDictionary()


def checked(
    tasks: Tasks,
    sources: Callable[[Mapping[str, Any]], Sources],
    packages: Packages,
    on_bad: OnBadRow,
    *,
    variant: Hashable,
) -> Checked:
    """The rows that can be dealt; looked for once, since many copies of an environment ask for them.

    Args:
        tasks: all rows.
        sources: what is run for a row; raises ValueError if it cannot be dealt.
        packages: importable besides the standard library, or "installed": of those that rows import, what is installed.
        on_bad: "error" or "skip".
        variant: what else `sources` depends on.

    Raises:
        ValueError: if rows cannot be dealt and are not to be skipped, or none is left; if rows in place are to be
            skipped.
    """
    if isinstance(packages, str) and packages != "installed":
        raise ValueError(f"packages={packages!r} must be a tuple of names or 'installed'; write ({packages!r},)")
    if tasks.is_in_place:
        if packages == "installed" or on_bad == "skip":
            raise ValueError(
                f"{tasks.source} is so large that its rows are looked at only when they are dealt; take bad ones out "
                "of it, and name the packages, instead of on_bad_row='skip' and packages='installed'"
            )
        return Checked(tasks, tuple(packages), {})
    asked = (variant, packages if isinstance(packages, str) else tuple(packages), on_bad)
    known = _checked.setdefault(tasks, {})
    if asked not in known:
        known[asked] = _check(tasks, sources, packages, on_bad)
    return known[asked]


def _check(
    tasks: Tasks, sources: Callable[[Mapping[str, Any]], Sources], packages: Packages, on_bad: OnBadRow
) -> Checked:
    found: dict[int, Sources] = {}
    bad: dict[int, str] = {}
    for number, row in enumerate(tasks):
        try:
            found[number] = sources(row)
        except ValueError as error:
            bad[number] = str(error)
    imported = {number: (_imported(each.tests), _imported(each.solution)) for number, each in found.items()}
    chosen = _installed(imported.values()) if packages == "installed" else tuple(packages)
    missing = {}
    for number, (of_tests, of_solution) in imported.items():
        if of_tests - set(chosen):
            bad[number] = _needs("its tests import", of_tests - set(chosen))
        elif of_solution - set(chosen):
            missing[str(tasks[number]["id"])] = tuple(sorted(of_solution - set(chosen)))
    if bad and (on_bad == "error" or len(bad) == len(tasks)):
        raise ValueError(
            f"{len(bad)} of {len(tasks)} rows of {tasks.source} cannot be dealt; repair them, or leave them out with "
            f"on_bad_row='skip': {_named(tasks, bad)}"
        )
    if bad:
        _log.warning("%d of %d rows of %s are skipped: %s", len(bad), len(tasks), tasks.source, _named(tasks, bad))
        tasks = Tasks([row for number, row in enumerate(tasks) if number not in bad], tasks.source)
    if missing:
        names = sorted({name for each in missing.values() for name in each})
        _log.warning(
            "the solutions of %d rows of %s, such as %r, import %s, which programs here may not: give packages=%r, or "
            "packages='installed' for those that are",
            len(missing),
            tasks.source,
            next(iter(missing)),
            names,
            tuple(names),
        )
    return Checked(tasks, chosen, missing)


def _needs(what: str, names: Iterable[str]) -> str:
    return f"{what} {', '.join(sorted(names))}: install it and give packages={tuple(sorted(names))!r}"


def _named(tasks: Tasks, bad: Mapping[int, str]) -> str:
    numbers = sorted(bad)
    told = "; ".join(f"row {number}, {tasks[number]['id']!r}: {bad[number]}" for number in numbers[:_MAX_NAMED])
    more = ", ".join(map(str, numbers[_MAX_NAMED:]))
    return f"{told}; also rows {more}" if more else told


def _imported(source: str) -> frozenset[str]:
    """Packages besides the standard library that a source imports at top level, where a failure would end it."""
    names = set()
    for node in parsed(source) or []:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return frozenset(names - sys.stdlib_module_names)


def _installed(imported: Iterable[tuple[frozenset[str], frozenset[str]]]) -> tuple[str, ...]:
    names = {name for pair in imported for each in pair for name in each}
    return tuple(sorted(name for name in names if _is_package(name)))


def _is_package(name: str) -> bool:
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return found is not None and bool(found.submodule_search_locations)
