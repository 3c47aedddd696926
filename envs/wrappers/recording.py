"""Wrapper that records episodes as lines of JSON and as GIF animations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from ..._ownership import ForeignFileError, holds_run, note, owned, refuse_foreign_files
from ..core import ResetResult, messages_of
from ..games.pictures import Picture, write_gif
from ..spaces import movers_of

FILE = "episodes.jsonl"


class Recorded(BaseParallelWrapper[str, Any, Any]):
    """Appends each episode to the file `episodes.jsonl`, and optionally writes a GIF.

    An episode is written when it ends, at the next reset, or at `close`. Each line is a JSON object. Training runs use
    the same field names: `seed`, `task` (from the options of `reset`), `return` (mean over the agents),
    `is_complete`, `infos` (one per turn) and `agents`. The entry of an agent contains `turns` (each with `read`,
    `wrote` and `reward`), `last_read` (messages after its last turn) and `is_terminated`. An entry `waiting` maps the
    index of each turn in which the agent waited to its reward. An entry `rewritten`
    lists the turns whose `read` is a whole rewritten history (the number of turns: `last_read`). If the environment was
    built from an id, the line also contains the id (`env`) and the arguments (`env_kwargs`). Copies by `copy.deepcopy`
    or `pickle` record nothing, because callers use copies to try other actions.

    Args:
        env: an environment whose agents read and write texts.
        folder: folder of the files, created if it does not exist.
        common: additional entries of every line, such as the names of the policies.
        has_gifs: also write `episode-<number>.gif`. The environment needs render_mode="rgb_array".

    Raises:
        ForeignFileError: if the folder contains a training run, or an `episodes.jsonl` that collm did not write.
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
            raise ValueError(f"has_gifs=True needs render_mode='rgb_array'; build {env} with this argument")
        super().__init__(env)
        self.folder: Path | None = Path(folder)
        file = self.folder / FILE
        if holds_run(self.folder):
            raise ForeignFileError(f"{folder} is the folder of a training run with its own {FILE}; give another folder")
        refuse_foreign_files(self.folder, [FILE])
        spec = getattr(env, "spec", None)
        made = {} if spec is None else {"env": spec.id, "env_kwargs": dict(spec.kwargs)}
        self._common = {**made, **(common or {})}
        self._has_gifs = has_gifs
        self._number = len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0
        self._record: dict[str, Any] | None = None
        self._observations: Mapping[str, Any] = {}
        self._movers: list[str] = []
        self._known: dict[str, Any] = {}  # observation of each agent before its last reply
        self._frames: list[Picture] = []

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
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
            self._observations, self._movers = observations, movers_of(observations, infos)
            self._known = {}
            self._frames = [self.env.render()] if self._has_gifs else []
        return observations, infos

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        if self._record is not None:
            time = len(self._record["infos"])
            for agent, reward in rewards.items():
                track = self._record["agents"][agent]
                if agent in self._movers:
                    read = {"read": self._newly_read(agent, track), "wrote": actions[agent]}
                    track["turns"].append({"time": time, "reward": reward, **read})
                else:
                    track.setdefault("waiting", {})[str(time)] = reward
                track["is_terminated"] = terminations[agent]
            self._movers = movers_of(self.env.agents, infos)
            self._observations = {**self._observations, **observations}
            self._record["infos"].append(mean_info(infos))
            if self._has_gifs:
                self._frames.append(self.env.render())
            if not self.env.agents:
                self._write()
        return observations, rewards, terminations, truncations, infos

    def close(self) -> None:
        self._write()
        self.env.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "folder": None, "_record": None, "_has_gifs": False, "_frames": []}

    def _newly_read(self, agent: str, track: dict[str, Any]) -> list[dict[str, str]]:
        observation, before = self._observations[agent], self._known.get(agent)
        self._known[agent] = observation
        messages, is_rewritten = new_messages(observation, before)
        if is_rewritten:
            track.setdefault("rewritten", []).append(len(track["turns"]))
        return messages

    def _write(self) -> None:
        record, self._record = self._record, None
        if record is None or self.folder is None or not record["infos"]:
            return
        earned = 0.0
        for agent, track in record["agents"].items():
            track["last_read"] = self._newly_read(agent, track)
            earned += recorded_return(track)
        record |= {"return": earned / len(record["agents"]), "is_complete": not self.env.agents}
        note(self.folder, [FILE])
        with (self.folder / FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, default=str) + "\n")
        if self._frames:
            with owned(self.folder, f"episode-{self._number:04d}.gif") as new:
                write_gif(new, self._frames)
        self._number += 1


def turns_by_time(track: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """Return the turns in an agent's entry of a record; keys: indices of joint turns. Old records have no "time"."""
    return {turn.get("time", number): turn for number, turn in enumerate(track.get("turns", ()))}


def recorded_return(track: Mapping[str, Any]) -> float:
    """Return the sum of the rewards in an agent's entry of a record."""
    return float(sum(turn["reward"] for turn in track["turns"]) + sum(track.get("waiting", {}).values()))


def new_messages(observation: str, before: str | None) -> tuple[list[dict[str, str]], bool]:
    """Return the messages after the agent's reply to the observation `before`, and if the history was rewritten.

    A rewritten history does not extend `before` by at least the reply; all its messages are returned.
    """
    messages, known = messages_of(observation), () if before is None else messages_of(before)
    is_rewritten = before is not None and (messages[: len(known)] != known or len(messages) == len(known))
    start = 0 if before is None or is_rewritten else len(known) + 1
    return [message._asdict() for message in messages[start:]], is_rewritten


def mean_info(infos: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return reward terms, metrics and differences of a joint turn, each averaged over the agents that report it."""
    values: dict[str, list[float]] = {}
    for info in infos.values():
        for name, value in info.items():
            if name.startswith(("reward/", "metric/", "difference/")):
                values.setdefault(name, []).append(float(value))
    return {name: sum(each) / len(each) for name, each in values.items()}
