"""Recorded episodes → data of the page: a slim index, and compressed chunks that the browser unpacks on demand."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...algorithms.runs.files import read_config
from ...envs.registration.registry import registry
from ..comparison.summaries import has_critic, run_label
from .scenes import Scenes

CHUNK_SIZE = 40


@dataclass(frozen=True)
class Library:
    """Episodes in the form that the page holds."""

    runs: Sequence[Mapping[str, Any]]
    """Algorithm, environment and seed by the number in an episode's `run`."""
    index: Mapping[str, Sequence[float]]
    """Columns run, update and return, one entry per episode."""
    chunks: Sequence[str]
    """JSON lists of `CHUNK_SIZE` episodes, gzip, base64."""


def slim_episodes(directory: Path, rows: Sequence[Mapping[str, Any]], max_episodes: int) -> Iterator[dict[str, Any]]:
    """Episodes of a run without token ids and with their scenes.

    Where there are more than `max_episodes`: its best, its worst, and even steps through training.
    """
    text = [row for row in rows if all("turns" in agent for agent in row["agents"].values())]
    if not text:
        return
    config = read_config(directory)
    heading = _heading(directory, config)
    scenes = Scenes(config["env"], config["env_kwargs"], directory)
    for row in _spread(text, max_episodes):
        yield {**heading, **_slim(row, shows_values=has_critic(config)), **scenes.of(row)}


def _heading(directory: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Names of a run, and the language in which the page shows its replies."""
    label = run_label(directory, config)
    return {
        "algorithm": label["algorithm"],
        "environment": label["environment"],
        "run_seed": label["seed"],
        "language": "python" if "coding" in _module(config["env"]) else "text",
    }


def pack(episodes: Sequence[Mapping[str, Any]]) -> Library:
    """Episodes for the page; the same bytes for the same episodes."""
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
        for turn in record["turns"]:
            slim = {"reward": _short(turn["reward"]), "wrote": turn["wrote"]}
            slim["read"] = [[message["author"] or message["role"], message["content"]] for message in turn["read"]]
            wanted = ("advantage", "logprob", "entropy", *(("value",) if shows_values else ()))
            slim |= {name: _short(turn[name]) for name in wanted if turn.get(name) is not None}
            if turn.get("is_cut"):
                slim["is_cut"] = True
            turns.append(slim)
        last = [[message["author"] or message["role"], message["content"]] for message in record["last_read"]]
        agents[agent] = {"turns": turns, "last_read": last}
    infos = [{name: _short(value) for name, value in info.items() if value is not None} for info in row["infos"]]
    return {
        "update": row.get("update", 0),
        "seed": row["seed"],
        "return": row["return"],
        "agents": agents,
        "infos": infos,
    }


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _module(env: str) -> str:
    registered = registry.get(env)
    entry_point = env if registered is None else registered.entry_point
    return entry_point if isinstance(entry_point, str) else str(entry_point.__module__)
