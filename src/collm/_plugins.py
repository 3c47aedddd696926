"""Plugins: modules or functions of other distributions that register environments or algorithms.

They are entry points of the groups `collm.envs` and `collm.algorithms`; see the docstring of `algorithms/registry.py`.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

_failures: dict[EntryPoint, str] = {}
_seen: set[EntryPoint] = set()


def load_plugins(group: str) -> tuple[str, ...]:
    """Load the plugins of an entry-point group, each only once per process.

    Returns one error message per plugin that failed in this or an earlier call. Failures raise no exception, because a
    broken plugin must not block other plugins.
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
