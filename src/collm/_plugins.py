"""What other distributions bring, by entry-point group, loaded when something unknown is first sought.

A plugin declares, in its own `pyproject.toml`,

    [project.entry-points."collm.envs"]
    my_games = "my_package.registrations"

naming a module that calls `collm.register` as it is imported, or a function without arguments that does. Algorithms
come the same way in the group `collm.algorithms`, by `collm.register_algorithm`.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

_failures: dict[EntryPoint, str] = {}
_seen: set[EntryPoint] = set()


def load_plugins(group: str) -> tuple[str, ...]:
    """Load the group's plugins that were not loaded before.

    Returns:
        One sentence for each plugin of the group that failed, now or earlier. One broken plugin must not take the
        others' entries away, so the caller decides whether a failure matters to what was asked.
    """
    for entry_point in entry_points(group=group):
        if entry_point in _seen:
            continue
        _seen.add(entry_point)
        try:
            loaded = entry_point.load()
            if callable(loaded):
                loaded()
        except Exception as error:  # whatever a stranger's module may raise
            source = f" of the distribution {entry_point.dist.name!r}" if entry_point.dist else ""
            _failures[entry_point] = (
                f"the plugin {entry_point.name!r}{source} ({entry_point.value}) failed to load with "
                f"{type(error).__name__}: {error}; repair or uninstall it"
            )
    return tuple(failure for entry_point, failure in _failures.items() if entry_point.group == group)
