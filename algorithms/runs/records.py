"""Episodes as JSON lines: transcripts, rewards and token ids, enough to read, replay and rescore them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...agents.encoding import TokenRecord
from ...envs.core import messages_of
from ..learning.credit import Credit
from ..rollout.episode import Episode, Turn

CREDITED = {"value": "values", "advantage": "advantages", "raw_advantage": "raw_advantages", "return_to_go": "returns"}
"""Fields of `Credit` that each turn's record holds, by their name in the record."""


def episode_records(
    episodes: Sequence[Episode], credits: Mapping[str, Credit] | None = None, **common: Any
) -> list[dict[str, Any]]:
    """One JSON-able dictionary per episode.

    Args:
        credits: credit of each agent's turns, in the order of the episodes; adds to each turn `value`, `advantage` (as
            learned from), `raw_advantage` (before normalization) and `return_to_go` (of the shaped rewards),
            except where agents act by vectors.
        common: entries of all records, such as the number of the update.
    """
    credited = {
        agent: zip(*(getattr(credit, name).tolist() for name in CREDITED.values()), strict=True)
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
                for turn, numbers in zip(turns, credited[agent], strict=False):
                    turn |= dict(zip(CREDITED, numbers, strict=True))
            final = episode.finals[agent]
            last = new_messages(final, track[-1].observation, skip=1)
            agents[agent] = {"turns": turns, "last_read": last, "is_terminated": episode.is_terminated[agent]}
        records.append(
            {
                **common,
                "index": episode.index,
                "seed": episode.seed,
                "group": episode.group,
                **({"options": dict(episode.options)} if episode.options else {}),
                "return": episode.team_return + episode.earlier_return,
                "agents": agents,
                "infos": [dict(info) for info in episode.infos],
            }
        )
    return records


def _moves(track: Sequence[Turn]) -> dict[str, Any]:
    """Turns of an agent that acts by vectors: enough to play its episode again, and no more, as there are so many."""
    actions = [np.asarray(turn.completion.action).tolist() for turn in track]
    rewards = [turn.reward for turn in track]
    return {"actions": actions, "rewards": rewards, "version": track[0].completion.version}


def _turn(turn: Turn, before: Turn | None) -> dict[str, Any]:
    completion = turn.completion
    record: dict[str, Any] = {
        "time": turn.time,
        "reward": turn.reward,
        "read": new_messages(turn.observation, before.observation if before else None, skip=1),
        "wrote": completion.action,
    }
    if len(completion.logprobs):
        record |= {
            "logprob": float(completion.logprobs.sum()),
            **({"entropy": float(completion.entropies.mean())} if len(completion.entropies) else {}),
            "is_cut": completion.is_cut,
            "version": completion.version,
        }
    tokens = completion.tokens
    if isinstance(tokens, TokenRecord):
        # The tokens of the earlier prompt and completion are not written again.
        known = 0
        if before is not None and tokens.is_extension:
            known = len(before.completion.tokens.prompt_ids) + len(before.completion.tokens.completion_ids)
        record |= {
            "prompt_ids": tokens.prompt_ids[known:].tolist(),
            "completion_ids": tokens.completion_ids.tolist(),
            "is_extension": tokens.is_extension,
        }
    return record


def new_messages(observation: str, before: str | None, *, skip: int) -> list[dict[str, str]]:
    """Messages read since the observation before, without the agent's own reply."""
    messages = messages_of(observation)
    if before is not None:
        known = messages_of(before)
        if messages[: len(known)] == known:
            messages = messages[len(known) + skip :]
    return [message._asdict() for message in messages]
