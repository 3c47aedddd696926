"""Pictures of the world after each turn of a recorded episode, which is played again from its seed and actions."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...algorithms.runs.assembly.trust import needs_trust
from ...algorithms.runs.files import CONFIG_FILE
from ...envs.games.pictured import PicturedEnv
from ...envs.registration.registry import make, registry

Panels = list[list[Any]]


class Scenes:
    """Plays recorded episodes of one of this package's games again; of others there are no scenes.

    Args:
        env: registered id of the environment.
        env_kwargs: arguments of the environment in training.
        directory: folder of the run.
    """

    def __init__(self, env: str, env_kwargs: Mapping[str, Any], directory: Path):
        # A report is about data, often somebody else's: it imports nothing but this package's own games.
        entry_point = registry[env].entry_point if env in registry else None
        is_own = isinstance(entry_point, str) and entry_point.startswith("collm.envs.games.")
        reason = needs_trust({"env": env, "env_kwargs": env_kwargs}, directory) if is_own else None
        if reason is not None:
            warnings.warn(f"no pictures of the episodes of {directory}: its {CONFIG_FILE} {reason}", stacklevel=2)
        self._env: Any = make(env, **env_kwargs).unwrapped if is_own and reason is None else None
        self._is_pictured = isinstance(self._env, PicturedEnv)

    def of(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Entries to add to an episode: `scenes`, panels before the first turn and after each, and their `palette`.

        Nothing where the world has no picture, or where the actions do not lead to the recorded rewards again, as in
        an environment that has changed since.
        """
        if not self._is_pictured:
            return {}
        tracks = {agent: entry["turns"] for agent, entry in record["agents"].items()}
        self._env.reset(seed=record["seed"], options=record.get("options"))
        scenes = [self._panels()]
        for turn in range(max(len(track) for track in tracks.values())):
            actions = {agent: tracks[agent][turn]["wrote"] for agent in self._env.agents if turn < len(tracks[agent])}
            if len(actions) < len(self._env.agents):
                return {}
            _, rewards, *_ = self._env.step(actions)
            if any(abs(rewards[agent] - tracks[agent][turn]["reward"]) > 1e-6 for agent in actions):
                return {}
            scenes.append(self._panels())
        colours = ["#{:02x}{:02x}{:02x}".format(*colour) for colour in self._env.block_colours]
        return {"scenes": scenes, "palette": colours}

    def _panels(self) -> Panels:
        """[caption, layers of rows of cells, the same with 1 where a cell is wrong] for each row of panels."""
        return [
            [
                row.caption,
                [[[int(cell) for cell in line] for line in layer] for layer in row.layers],
                [[[int(cell) for cell in line] for line in layer] for layer in row.wrong],
            ]
            for row in self._env.panels()
        ]
