"""Checks of all data rows when an environment is constructed, so that a bad row cannot end a training run later."""

from __future__ import annotations

import ast
import importlib.util
import logging
import sys
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..data import OnBadRow, Tasks
from .syntax import parsed

Packages = Sequence[str] | Literal["installed"]
_MAX_NAMED = 5
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sources:
    """Source code of a row of the data."""

    tests: str  # code of the tests. If a package that the tests import is missing, the row cannot be used.
    solution: str  # reference solution. If a package that it imports is missing, only the solution cannot be used.


@dataclass(frozen=True)
class Checked:
    """Rows that can be used, and the packages that their programs may import."""

    tasks: Tasks
    packages: tuple[str, ...]
    missing: Mapping[str, tuple[str, ...]]  # by row id: packages that only the solution imports, not in `packages`


_checked: weakref.WeakKeyDictionary[Tasks, dict[Hashable, Checked]] = weakref.WeakKeyDictionary()


def checked(
    tasks: Tasks,
    sources: Callable[[Mapping[str, Any]], Sources],
    packages: Packages,
    on_bad: OnBadRow,
    *,
    variant: Hashable,
) -> Checked:
    """Check all rows of the data. The result is cached, because copies of an environment check the same rows.

    `sources` returns the code of a row, or raises ValueError if the row cannot be used. `variant` is part of the cache
    key: settings that `sources` depends on in addition to the row.

    Raises:
        ValueError: if a row cannot be used and `on_bad` is "error", if no row is left, or if "skip" or "installed" is
            given for data whose rows stay on disk.
    """
    if isinstance(packages, str) and packages != "installed":
        raise ValueError(f"packages={packages!r} must be a tuple of names or 'installed'; write ({packages!r},)")
    if tasks.is_in_place:
        if packages == "installed" or on_bad == "skip":
            raise ValueError(
                f"{tasks.source} is too large for on_bad_row='skip' and packages='installed', which read all rows "
                "first; remove bad rows from the data, and name the packages"
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
    imported: dict[int, tuple[set[str], set[str]]] = {}
    bad: dict[int, str] = {}
    for number, row in enumerate(tasks):
        try:
            code = sources(row)
        except ValueError as error:
            bad[number] = str(error)
        else:
            imported[number] = _imported(code.tests), _imported(code.solution)
    if packages == "installed":
        names = {name for pair in imported.values() for each in pair for name in each}
        chosen = tuple(sorted(filter(_is_installed, names)))
    else:
        chosen = tuple(packages)
    missing = {}
    for number, (by_tests, by_solution) in imported.items():
        if lacking := tuple(sorted(by_tests.difference(chosen))):
            bad[number] = f"the tests import {', '.join(lacking)}: install it and give packages={lacking!r}"
        elif lacking := tuple(sorted(by_solution.difference(chosen))):
            missing[str(tasks[number]["id"])] = lacking
    if bad and (on_bad == "error" or len(bad) == len(tasks)):
        raise ValueError(
            f"{len(bad)} of {len(tasks)} rows of {tasks.source} cannot be used; repair them, or leave them out with "
            f"on_bad_row='skip': {_described(tasks, bad)}"
        )
    if bad:
        _log.warning("%d of %d rows of %s are skipped: %s", len(bad), len(tasks), tasks.source, _described(tasks, bad))
        tasks = Tasks([row for number, row in enumerate(tasks) if number not in bad], tasks.source)
    if missing:
        names = {name for each in missing.values() for name in each}
        _log.warning(
            "the solutions of %d rows of %s, such as %r, import %s, which programs may not import; give packages=%r or "
            "packages='installed'",
            len(missing),
            tasks.source,
            next(iter(missing)),
            sorted(names),
            tuple(sorted(names)),
        )
    return Checked(tasks, chosen, missing)


def _described(tasks: Tasks, bad: Mapping[int, str]) -> str:
    numbers = sorted(bad)
    first = "; ".join(f"row {number}, {tasks[number]['id']!r}: {bad[number]}" for number in numbers[:_MAX_NAMED])
    more = ", ".join(map(str, numbers[_MAX_NAMED:]))
    return f"{first}; also rows {more}" if more else first


def _imported(source: str) -> set[str]:
    """Return the third-party packages that the code imports at top level."""
    names = set()
    for node in parsed(source) or []:  # not inside functions, where a failed import does not end the program
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names - sys.stdlib_module_names


def _is_installed(name: str) -> bool:
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return found is not None and bool(found.submodule_search_locations)
