"""Episodes as JSON lines: transcripts, rewards and token ids, enough to read, replay and score them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..agents.encoding import TokenTrace
from ..envs.core import messages_of
from .credit import Credit
from .episode import Episode, Turn


def episode_records(
    episodes: Sequence[Episode], credits: Mapping[str, Credit] | None = None, **common: Any
) -> list[dict[str, Any]]:
    """One JSON-able dictionary an episode.

    Args:
        credits: of each agent's turns in the order of the episodes; adds values and advantages.
        common: entries that all records get, such as the number of the update.
    """
    credited = {
        agent: iter(zip(credit.values.tolist(), credit.advantages.tolist(), strict=True))
        for agent, credit in (credits or {}).items()
    }
    records = []
    for episode in episodes:
        agents = {}
        for agent, track in episode.tracks.items():
            if not isinstance(track[0].observation, str):
                agents[agent] = _moves(track) | {"is_terminated": episode.is_terminated[agent]}
                continue
            turns = [_turn(turn, track[i - 1] if i else None) for i, turn in enumerate(track)]
            if agent in credited:
                for turn, (value, advantage) in zip(turns, credited[agent], strict=False):
                    turn |= {"value": value, "advantage": advantage}
            final = episode.finals[agent]
            last = _new_messages(final, track[-1].observation, skip=1)
            agents[agent] = {"turns": turns, "last_read": last, "is_terminated": episode.is_terminated[agent]}
        records.append(
            {
                **common,
                "index": episode.index,
                "seed": episode.seed,
                "group": episode.group,
                "return": episode.team_return + episode.earlier_return,
                "agents": agents,
                "infos": [dict(info) for info in episode.infos],
            }
        )
    return records


def _moves(track: Sequence[Turn]) -> dict[str, Any]:
    """Of an agent that acts by vectors: enough to play its episode again, and no more, as there are so many turns."""
    actions = [np.asarray(turn.completion.action).tolist() for turn in track]
    return {"actions": actions, "rewards": [turn.reward for turn in track]}


def _turn(turn: Turn, before: Turn | None) -> dict[str, Any]:
    completion = turn.completion
    record: dict[str, Any] = {
        "time": turn.time,
        "reward": turn.reward,
        "read": _new_messages(turn.observation, before.observation if before else None, skip=1),
        "wrote": completion.action,
    }
    if len(completion.logprobs):
        record |= {
            "logprob": float(completion.logprobs.sum()),
            "entropy": float(completion.entropies.mean()),
            "is_cut": completion.is_cut,
        }
    trace = completion.trace
    if isinstance(trace, TokenTrace):
        # What the earlier prompt and completion hold already is not written again.
        known = 0
        if before is not None and trace.is_extension:
            known = len(before.completion.trace.prompt_ids) + len(before.completion.trace.completion_ids)
        record |= {
            "prompt_ids": trace.prompt_ids[known:].tolist(),
            "completion_ids": trace.completion_ids.tolist(),
            "is_extension": trace.is_extension,
        }
    return record


def _new_messages(observation: str, before: str | None, *, skip: int) -> list[dict[str, str]]:
    """What was read since the observation before, without the agent's own reply."""
    messages = messages_of(observation)
    if before is not None:
        known = messages_of(before)
        if messages[: len(known)] == known:
            messages = messages[len(known) + skip :]
    return [message._asdict() for message in messages]
