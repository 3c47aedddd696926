"""Plugins of other distributions, loaded when an unknown environment or algorithm is first requested.

A plugin declares an entry point in its `pyproject.toml`:

    [project.entry-points."collm.envs"]
    my_games = "my_package.registrations"

The entry point is a module, or a function without arguments, that calls `collm.register`. Algorithms use the group
`collm.algorithms` and `collm.register_algorithm`.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

_failures: dict[EntryPoint, str] = {}
_seen: set[EntryPoint] = set()


def load_plugins(group: str) -> tuple[str, ...]:
    """Load the plugins of a group that were not loaded before.

    Returns one error message per plugin of the group that failed, now or earlier. No exception is raised, because a
    broken plugin must not block the others.
    """
    for entry_point in entry_points(group=group):
        if entry_point in _seen:
            continue
        _seen.add(entry_point)
        try:
            loaded = entry_point.load()
            if callable(loaded):
                loaded()
        except Exception as error:  # third-party modules may raise anything
            source = f" of the distribution {entry_point.dist.name!r}" if entry_point.dist else ""
            _failures[entry_point] = (
                f"the plugin {entry_point.name!r}{source} ({entry_point.value}) failed to load with "
                f"{type(error).__name__}: {error}; repair or uninstall it"
            )
    return tuple(failure for entry_point, failure in _failures.items() if entry_point.group == group)
