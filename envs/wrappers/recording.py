"""Records of episodes: transcripts as JSON lines, and animations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from ..._ownership import ForeignFileError, has_keys, holds_run, note, owned, refuse_foreign_files
from ..core import messages_of
from ..games.pictures import Picture, write_gif

FILE = "episodes.jsonl"


class Recorded(BaseParallelWrapper[str, Any, Any]):
    """Every episode is written down when it ends, or is left: one line of `episodes.jsonl`, on request a GIF.

    A line holds `seed`, `task` (as asked for), `return` (of the team), `is_complete`, the `infos` of each turn, and for
    each agent its `turns` (what it `read`, `wrote` and earned, its `reward`), what it read last (`last_read`) and
    `is_terminated`: the fields of the records that a training run keeps. Lines are added to those that are there.

    `env` and `env_kwargs` name the environment where it was made by an id.

    Copies (`copy.deepcopy`, `pickle`) play on without recording: they are branches, not episodes of their own.

    Args:
        env: an environment whose agents read and write texts.
        folder: where the files go; made if need be.
        common: entries of every line besides, such as who played.
        has_gifs: write `episode-<number>.gif` too, for which the environment needs render_mode="rgb_array".

    Raises:
        ValueError: if pictures are wanted and not drawn.
        ForeignFileError: if the folder has an `episodes.jsonl` without transcripts, or holds a training run.
    """

    def __init__(
        self,
        env: ParallelEnv[str, Any, Any],
        folder: str | Path,
        *,
        common: Mapping[str, Any] | None = None,
        has_gifs: bool = False,
    ):
        if has_gifs and getattr(env, "render_mode", None) != "rgb_array":
            raise ValueError(f"has_gifs needs render_mode='rgb_array', in which {env} was not made")
        super().__init__(env)
        self.folder: Path | None = Path(folder)
        _check_folder(self.folder)
        spec = getattr(env, "spec", None)
        made = {} if spec is None else {"env": spec.id, "env_kwargs": dict(spec.kwargs)}
        self._common = {**made, **(common or {})}
        self._has_gifs = has_gifs
        file = self.folder / FILE
        self._number = len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0
        self._record: dict[str, Any] | None = None
        self._observations: Mapping[str, Any] = {}
        self._read: dict[str, tuple[Any, ...]] = {}
        self._frames: list[Picture] = []

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        self._write()
        observations, infos = self.env.reset(seed=seed, options=options)
        if self.folder is not None:
            tracks = {agent: {"turns": [], "last_read": [], "is_terminated": False} for agent in observations}
            self._record = {
                **self._common,
                "index": self._number,
                "seed": seed,
                "task": (options or {}).get("task"),
                **({"options": dict(options)} if options else {}),
                "agents": tracks,
                "infos": [],
            }
            self._observations = observations
            self._read = dict.fromkeys(observations, ())
            self._frames = [self.env.render()] if self._has_gifs else []
        return observations, infos

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        self._add(actions, observations, rewards, terminations, infos)
        return observations, rewards, terminations, truncations, infos

    def close(self) -> None:
        self._write()
        self.env.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "folder": None, "_record": None, "_has_gifs": False, "_frames": []}

    def _add(
        self,
        actions: Mapping[str, Any],
        observations: Mapping[str, Any],
        rewards: Mapping[str, float],
        terminations: Mapping[str, bool],
        infos: Mapping[str, Mapping[str, Any]],
    ) -> None:
        if self._record is None:
            return
        for agent, action in actions.items():
            track = self._record["agents"][agent]
            turn = {"time": len(self._record["infos"]), "reward": rewards[agent], "read": self._newly_read(agent)}
            track["turns"].append(turn | {"wrote": action})
            track["is_terminated"] = terminations[agent]
        self._observations = {**self._observations, **observations}
        self._record["infos"].append(_mean(infos))
        if self._has_gifs:
            self._frames.append(self.env.render())
        if not self.env.agents:
            self._write()

    def _newly_read(self, agent: str) -> list[dict[str, str]]:
        """Messages since the last turn, without the agent's own reply; all of them where its history was rewritten."""
        messages, known = messages_of(self._observations[agent]), self._read[agent]
        self._read[agent] = messages
        if messages[: len(known)] == known:
            messages = messages[len(known) + bool(known) :]
        return [message._asdict() for message in messages]

    def _write(self) -> None:
        record, self._record = self._record, None
        if record is None or self.folder is None or not record["infos"]:
            return
        earned = 0.0
        for agent, track in record["agents"].items():
            track["last_read"] = self._newly_read(agent)
            earned += sum(turn["reward"] for turn in track["turns"])
        record |= {"return": earned / len(record["agents"]), "is_complete": not self.env.agents}
        note(self.folder, [FILE])
        with (self.folder / FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, default=str) + "\n")
        if self._frames:
            with owned(self.folder, f"episode-{self._number:04d}.gif") as new:
                write_gif(new, self._frames)
        self._number += 1


def _check_folder(folder: Path) -> None:
    """Refuse a folder whose `episodes.jsonl` has something else than transcripts, or those of a training run.

    Raises:
        ForeignFileError: if it does.
    """
    file = folder / FILE
    if holds_run(folder):
        raise ForeignFileError(f"{folder} holds a training run, which has an {FILE} of its own; give another folder")
    if file.is_symlink() or not file.is_file() or not has_keys(file, {"agents", "infos"}):
        refuse_foreign_files(folder, [FILE])


def _mean(infos: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Reward terms and metrics of a turn, averaged over the agents that report them."""
    told: dict[str, list[float]] = {}
    for info in infos.values():
        for name, value in info.items():
            if name.startswith(("reward/", "metric/")):
                told.setdefault(name, []).append(float(value))
    return {name: sum(values) / len(values) for name, values in told.items()}
