"""JSON records of episodes, which a run writes and a replay reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from ..._errors import UserError
from ..._json import explained_content, read_json
from ..._ownership import ForeignFileError, write_text
from ...agents.encoding import TokenRecord
from ...envs.core import Message
from ...envs.vectors.faults import EnvironmentFault
from ...envs.wrappers.recording import new_messages, turns_by_time
from ..distribution.group import current
from ..learning.credit import Credit
from ..rollout.episode import Episode, Turn
from .assembly.trust import run_command
from .files import CONFIG_FILE
from .loggers import read_lines

# Entry of a turn's record -> field of `Credit`
CREDITED = {"value": "values", "advantage": "advantages", "raw_advantage": "raw_advantages", "return_to_go": "returns"}


def episode_records(
    episodes: Sequence[Episode],
    credits: Mapping[str, Credit] | None = None,
    *,
    has_own_returns: bool = False,
    **common: Any,
) -> list[dict[str, Any]]:
    """Convert episodes to dictionaries for JSON, with the keys of `wrappers.Recorded`.

    Args:
        episodes: episodes of one update.
        credits: credit of each agent's turns. Each text turn gets the keys of `CREDITED`: `advantage` is used for
            learning, `raw_advantage` is not normalized, and `return_to_go` is the return of shaped rewards.
        has_own_returns: add the return of each agent, because the agents do not have common interests.
        common: entries that are added to every record, such as the update.
    """
    credited = {
        agent: zip(*(getattr(credit, name).tolist() for name in CREDITED.values()), strict=True)
        for agent, credit in (credits or {}).items()
    }
    records = []
    for episode in episodes:
        agents, played = {}, episode.played or episode
        for agent in episode.is_terminated:
            track, final = played.tracks.get(agent, ()), episode.finals[agent]
            record: dict[str, Any] = {"is_terminated": episode.is_terminated[agent]}
            agents[agent] = record
            if waited := played.waiting.get(agent):
                record["waiting"] = {str(time): reward for time, reward in waited.items()}
            seen = track[0].observation if track else final
            if not isinstance(seen, str):  # vectors: only the data for a replay, to save space
                record["actions"] = [_plain(turn.completion.action) for turn in track]
                record["rewards"] = [turn.reward for turn in track]
                record["version"] = track[0].completion.version if track else 0
                continue
            histories: list[Any] = [None, *(turn.observation for turn in track), final]
            read, is_rewritten = zip(*map(new_messages, histories[1:], histories), strict=True)
            turns = [_turn(turn, track[i - 1] if i else None, read[i]) for i, turn in enumerate(track)]
            if agent in credited:
                learned = {turn.time for turn in episode.tracks.get(agent, ())}
                for turn in turns:
                    if turn["time"] in learned:
                        turn |= dict(zip(CREDITED, next(credited[agent]), strict=True))
            record |= {"turns": turns, "last_read": read[-1]}
            if any(is_rewritten):
                record["rewritten"] = [i for i, each in enumerate(is_rewritten) if each]
        records.append(
            {
                **common,
                "index": episode.index,
                "seed": episode.seed,
                "group": episode.group,
                **({"options": dict(episode.options)} if episode.options else {}),
                "return": episode.team_return + episode.earlier_return,
                **({"returns": episode.own_returns} if has_own_returns else {}),
                "agents": agents,
                "infos": [dict(info) for info in episode.infos],
            }
        )
    return records


def _turn(turn: Turn, before: Turn | None, read: list[dict[str, str]]) -> dict[str, Any]:
    completion = turn.completion
    record: dict[str, Any] = {"time": turn.time, "reward": turn.reward, "read": read, "wrote": completion.action}
    if len(completion.logprobs):
        record["logprob"] = float(completion.logprobs.sum())
        if len(completion.entropies):
            record["entropy"] = float(completion.entropies.mean())
        record |= {"is_cut": completion.is_cut, "version": completion.version}
    tokens = completion.tokens
    if isinstance(tokens, TokenRecord):
        # An extension is stored without the tokens of the previous prompt and completion.
        known = 0
        if before is not None and tokens.is_extension:
            known = len(before.completion.tokens.prompt_ids) + len(before.completion.tokens.completion_ids)
        record |= {
            "prompt_ids": tokens.prompt_ids[known:].tolist(),
            "completion_ids": tokens.completion_ids.tolist(),
            "is_extension": tokens.is_extension,
        }
    return record


def _plain(action: Any) -> Any:
    return action if isinstance(action, str) else np.asarray(action).tolist()


FAILURES = "failures"


@dataclass(frozen=True, slots=True)
class RecordedEpisode:
    """Episode read from a file, for a replay."""

    seed: int | None
    options: dict[str, Any] | None
    actions: list[dict[str, Any]]  # Actions of each joint turn, as dicts with agents as keys
    rewards: list[dict[str, float]]  # Rewards of each joint turn and agent. Empty if the episode ended with a fault.
    read: list[dict[str, str]]  # New text that each agent read before the joint turn. Empty for vector observations.
    split: str = "train"  # Split of the environment's tasks
    problem: str | None = None  # Message of the environment fault that ended the episode


@contextmanager
def failures_kept(directory: Path, env: str, split: str = "train") -> Iterator[None]:
    """Context manager: save an episode whose environment fails, and add the replay command to the error."""
    try:
        yield
    except EnvironmentFault as fault:
        if fault.command is None:
            keep_failure(directory, fault, env, split)
        raise


def keep_failure(directory: Path, fault: EnvironmentFault, env: str, split: str = "train") -> None:
    """Save the seed and actions of an episode with a fault in `failures/<split>-<episode>.json`."""
    fault.env = env
    name = f"{split}-{fault.episode}"
    problem = str(fault)
    fault.command = run_command("replay", directory, "--failure", name, env=env)
    if not current().is_writer:
        return
    row = {
        "split": split,
        "update": fault.update,
        "episode": fault.episode,
        "seed": fault.seed,
        "options": fault.course.options,
        "actions": [{agent: _plain(action) for agent, action in turn.items()} for turn in fault.course.actions],
        "problem": problem,
        "details": fault.details,
    }
    try:
        write_text(directory, f"{FAILURES}/{name}.json", json.dumps(row, indent=1, default=repr) + "\n")
    except ForeignFileError as refusal:
        fault.command = None
        fault.problem += f"; the episode is not saved: {refusal}"


def failed_episode(directory: Path, name: str) -> RecordedEpisode:
    """Read an episode that `keep_failure` saved. Raises `UserError` if no such episode was saved."""
    folder = directory / FAILURES
    names = sorted(path.stem for path in folder.glob("*.json"))
    if name not in names:
        raise UserError(f"{folder} contains no failure {name!r}; saved failures: {', '.join(names) or 'none'}")
    file = folder / f"{name}.json"
    row = read_json(file)
    with explained_content(file):
        actions = [dict(turn) for turn in row["actions"]]
        return RecordedEpisode(row["seed"], row["options"], actions, [], [], row["split"], row["problem"])


def recorded_episode(directory: Path, index: int) -> RecordedEpisode:
    """Read an episode from `episodes.jsonl`, and join its segments. Raises `UserError` if it is missing."""
    file = directory / "episodes.jsonl"
    if not file.is_file():
        raise UserError(f"{directory} has no recorded episodes: {file.name} is missing")
    segments = [row for row in read_lines(file) if row.get("index") == index]
    if not segments:
        raise UserError(f"{file} contains no episode {index}")
    with explained_content(file):
        return _joined(segments)


def read_text_episodes(path: Path) -> list[dict[str, Any]]:
    """Read the rows of an episodes file, or of `episodes.jsonl` in a folder. Raises `UserError` if texts are missing.

    Rows without `env` and `env_kwargs` get these entries from the run in the same folder, if there is one.
    """
    file = path / "episodes.jsonl" if path.is_dir() else path
    rows = read_lines(file) if file.is_file() else []
    if not rows:
        raise UserError(f"{file} has no episodes; give a file of episodes, or a folder with episodes.jsonl")
    config = read_json(file.parent / CONFIG_FILE) if (file.parent / CONFIG_FILE).is_file() else {}
    with explained_content(file):
        for row in rows:
            tracks = row["agents"].values()
            if not all("turns" in track for track in tracks):
                raise UserError(f"{file} has actions that are not texts; give episodes of a text environment")
            ends = [{"read": track["last_read"], "wrote": "", "reward": row["return"]} for track in tracks]
            for turn in [*(turn for track in tracks for turn in track["turns"]), *ends]:  # check the types
                "".join([turn["wrote"], *("".join(Message(**each)) for each in turn["read"])])
                float(turn["reward"])
            times = {int(time) for track in tracks for time in (*turns_by_time(track), *track.get("waiting", ()))}
            if times != set(range(len(row["infos"]))):
                raise ValueError("the number of turns differs from the number of infos")
    return [{**{name: config[name] for name in ("env", "env_kwargs") if name in config}, **row} for row in rows]


def _joined(segments: Sequence[Mapping[str, Any]]) -> RecordedEpisode:
    actions: list[dict[str, Any]] = []
    rewards: list[dict[str, float]] = []
    read: list[dict[str, str]] = []
    for segment in segments:
        turns = {agent: _turns(entry) for agent, entry in segment["agents"].items()}
        for time in range(len(segment["infos"])):
            joint = {agent: of_agent[time] for agent, of_agent in turns.items() if time in of_agent}
            waiting = {agent: entry.get("waiting", {}) for agent, entry in segment["agents"].items()}
            paid = {agent: waited[str(time)] for agent, waited in waiting.items() if str(time) in waited}
            actions.append({agent: turn[0] for agent, turn in joint.items()})
            rewards.append({agent: turn[1] for agent, turn in joint.items()} | paid)
            read.append({agent: turn[2] for agent, turn in joint.items()})
    return RecordedEpisode(segments[0]["seed"], segments[0].get("options"), actions, rewards, read)


def _turns(entry: Mapping[str, Any]) -> dict[int, tuple[Any, float, str]]:
    """Return action, reward and new text of each turn of an agent; keys: indices of joint turns."""
    if "turns" not in entry:
        times = (time for time in count() if str(time) not in entry.get("waiting", ()))
        turns = zip(entry["actions"], entry["rewards"], strict=True)
        return {time: (*turn, "") for time, turn in zip(times, turns, strict=False)}
    return {
        time: (turn["wrote"], turn["reward"], "\n".join(message["content"] for message in turn["read"]))
        for time, turn in turns_by_time(entry).items()
    }


def as_actions(recorded: Mapping[str, Any], action_spaces: Mapping[str, spaces.Space[Any]]) -> dict[str, Any]:
    """Convert actions from JSON to the action spaces. Raises `UserError` if a value is neither text nor numbers."""
    found: dict[str, Any] = {}
    for agent, action in recorded.items():
        try:
            is_plain = isinstance(action, (str, int))
            found[agent] = action if is_plain else np.asarray(action, dtype=action_spaces[agent].dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise UserError(f"the record has {action!r:.80} as an action of {agent!r}: {error}") from error
    return found
