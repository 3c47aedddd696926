"""Episodes for the report page: an index, and compressed chunks that the browser unpacks on demand."""

from __future__ import annotations

import base64
import gzip
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...algorithms.runs.assembly.trust import needs_trust
from ...algorithms.runs.files import CONFIG_FILE, read_config
from ...envs.games.pictured import PicturedEnv
from ...envs.registration.registry import make, registry
from ...envs.wrappers.recording import turns_by_time
from ..comparison.summaries import has_critic, run_label

CHUNK_SIZE = 40


@dataclass(frozen=True)
class Library:
    runs: Sequence[Mapping[str, Any]]  # algorithm, environment and seed of each run
    index: Mapping[str, Sequence[float]]  # columns `run` (index of `runs`), `update` and `return`; entries: episodes
    chunks: Sequence[str]  # JSON lists of `CHUNK_SIZE` episodes, compressed by gzip and encoded as base64


def slim_episodes(directory: Path, rows: Sequence[Mapping[str, Any]], max_episodes: int) -> Iterator[dict[str, Any]]:
    """Read the episodes of a run, remove the token ids, and add rendered scenes.

    Of more than `max_episodes`, keep the best, the worst, and others evenly spread over training.
    """
    text = [row for row in rows if all("turns" in agent for agent in row["agents"].values())]
    if not text:
        return
    config = read_config(directory)
    label, registered = run_label(directory, config), registry.get(config["env"])
    entry_point = config["env"] if registered is None else registered.entry_point
    module = entry_point if isinstance(entry_point, str) else str(entry_point.__module__)
    heading = {
        "algorithm": label["algorithm"],
        "environment": label["environment"],
        "run_seed": label["seed"],
        "language": "python" if "coding" in module else "text",  # for syntax highlighting
    }
    scenes = Scenes(config["env"], config["env_kwargs"], directory)
    for row in _spread(text, max_episodes):
        yield {**heading, **_slim(row, shows_values=has_critic(config)), **scenes.of(row)}


def pack(episodes: Sequence[Mapping[str, Any]]) -> Library:
    """Compress episodes for the page. Equal episodes give equal bytes."""
    runs: dict[tuple[Any, ...], int] = {}
    described: list[dict[str, Any]] = []
    index: dict[str, list[float]] = {"run": [], "update": [], "return": []}
    chunks = []
    names = ("algorithm", "environment", "run_seed", "language")
    for start in range(0, len(episodes), CHUNK_SIZE):
        rest = []
        for episode in episodes[start : start + CHUNK_SIZE]:
            key = tuple(episode[name] for name in names)
            if key not in runs:
                runs[key] = len(runs)
                described.append(dict(zip(names, key, strict=True)))
            index["run"].append(runs[key])
            index["update"].append(episode["update"])
            index["return"].append(round(episode["return"], 4))
            rest.append({name: value for name, value in episode.items() if name not in names})
        text = json.dumps(rest, ensure_ascii=False, separators=(",", ":"))
        chunks.append(base64.b64encode(gzip.compress(text.encode("utf-8", "backslashreplace"), mtime=0)).decode())
    return Library(described, index, chunks)


def _spread(rows: Sequence[Mapping[str, Any]], count: int) -> list[Mapping[str, Any]]:
    if len(rows) <= count:
        return list(rows)
    by_return = sorted(range(len(rows)), key=lambda i: rows[i]["return"])
    steps = [round(i * (len(rows) - 1) / max(1, count - 1)) for i in range(count)]
    extremes = [by_return[-1], by_return[0]][: max(0, count - 1)]
    chosen = list(dict.fromkeys([*extremes, *steps]))[:count]
    return [rows[i] for i in sorted(chosen)]


def _slim(row: Mapping[str, Any], *, shows_values: bool) -> dict[str, Any]:
    agents = {}
    for agent, record in row["agents"].items():
        turns = []
        for number, (time, turn) in enumerate(turns_by_time(record).items()):
            slim = {"reward": _short(turn["reward"]), "wrote": turn["wrote"], "read": _messages(turn["read"])}
            wanted = ("advantage", "logprob", "entropy", *(("value",) if shows_values else ()))
            slim |= {name: _short(turn[name]) for name in wanted if turn.get(name) is not None}
            if time != number:  # the agent has waited
                slim["time"] = time
            if turn.get("is_cut"):
                slim["is_cut"] = True
            turns.append(slim)
        agents[agent] = {"turns": turns, "last_read": _messages(record["last_read"])}
    infos = [{name: _short(value) for name, value in info.items() if value is not None} for info in row["infos"]]
    update = row.get("update", 0)
    return {"update": update, "seed": row["seed"], "return": row["return"], "agents": agents, "infos": infos}


def _messages(read: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    return [[message["author"] or message["role"], message["content"]] for message in read]


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


class Scenes:
    """Replays recorded episodes of collm's own games, to render them. `env_kwargs`: arguments in training."""

    def __init__(self, env: str, env_kwargs: Mapping[str, Any], directory: Path):
        # A run folder may come from an untrusted person, so only collm's own games are imported.
        entry_point = registry[env].entry_point if env in registry else None
        is_own = isinstance(entry_point, str) and entry_point.startswith("collm.envs.games.")
        reason = needs_trust({"env": env, "env_kwargs": env_kwargs}, directory) if is_own else None
        if reason is not None:
            warnings.warn(f"no pictures of the episodes of {directory}: its {CONFIG_FILE} {reason}", stacklevel=2)
        self._env: Any = make(env, **env_kwargs).unwrapped if is_own and reason is None else None
        self._is_pictured = isinstance(self._env, PicturedEnv)

    def of(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Scenes of an episode (panels before the first turn and after each turn) and their palette.

        Empty if the environment has no pictures, or if the replayed rewards differ from the record.
        """
        if not self._is_pictured:
            return {}
        tracks = {agent: turns_by_time(entry) for agent, entry in record["agents"].items()}
        self._env.reset(seed=record["seed"], options=record.get("options"))
        scenes = [self._panels()]
        for turn in range(len(record["infos"])):
            actions = {agent: tracks[agent][turn]["wrote"] for agent in self._env.movers if turn in tracks[agent]}
            if len(actions) < len(self._env.movers):
                return {}
            _, rewards, *_ = self._env.step(actions)
            if any(abs(rewards[agent] - tracks[agent][turn]["reward"]) > 1e-6 for agent in actions):
                return {}
            scenes.append(self._panels())
        colours = ["#{:02x}{:02x}{:02x}".format(*colour) for colour in self._env.block_colours]
        return {"scenes": scenes, "palette": colours}

    def _panels(self) -> list[list[Any]]:
        """Convert each row of panels to [caption, layers of rows of cells, same shape with 1 for wrong cells]."""

        def plain(layers: Any) -> list[list[list[int]]]:
            return [[[int(cell) for cell in line] for line in layer] for layer in layers]

        return [[row.caption, plain(row.layers), plain(row.wrong)] for row in self._env.panels()]
