"""Verification: whether a collector that nobody vouches for has played what it says.

An episode is a function of its seed and its actions, and so are the log-probabilities of its tokens of the weights.
Both are computed again, for some episodes that the collector cannot foresee.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from random import SystemRandom
from typing import Any

import numpy as np
import torch

from ...agents.core import Completion, Policy, Request, TrainablePolicy
from ...envs.vectors.faults import EnvironmentFault
from .collector import Played, RolloutCollector
from .episode import Episode
from .plays import Plan
from .replay import is_same
from .requests import RolloutRequest, Weights
from .sources import load_weights

MAX_ERROR = 0.05
"""Largest difference of a token's log-probability, in nats: twice what bfloat16 on another device was seen to make."""


class _OtherCourse(Exception):
    """An episode asks for a decision that its record does not have."""


class Playback(Policy):
    """Decides as an agent did in recorded episodes, whatever it is shown."""

    def __init__(self, episodes: Sequence[Episode], agent: str):
        tracks = ((episode.index, episode.tracks.get(agent, ())) for episode in episodes)
        self._said = {(index, turn.time): turn.completion for index, track in tracks for turn in track}

    def act(self, requests: Sequence[Request], *, greedy: bool = False) -> list[Completion]:
        return [self._completion(request.stream[1], request.stream[3]) for request in requests]

    def _completion(self, index: int, time: int) -> Completion:
        if (index, time) not in self._said:
            raise _OtherCourse
        return self._said[index, time]


class Verifier:
    """Says what is wrong with what a collector has played.

    Args:
        collector: collector with copies of the environments and of the policies, which nobody else uses.
        share: share of the episodes that are played and evaluated again, 0..1.
    """

    def __init__(self, collector: RolloutCollector, share: float):
        self.collector = collector
        self.share = share
        self._random = SystemRandom()  # a seed of the run's would tell a collector which episodes are looked at
        self._version: int | None = None
        self._team = dict(collector.policies)

    def __call__(
        self, order: RolloutRequest, weights: Weights, share: Sequence[tuple[int, Plan]], played: Played
    ) -> str | None:
        """What is wrong; None if nothing is.

        Args:
            order: what was ordered.
            weights: weights that were to play it.
            share: the part of the order that was this collector's.
            played: what it says that came of it.
        """
        problem = _not_as_ordered(order, share, played)
        if problem is not None:
            return problem
        if self._version != order.version:
            self.collector.policies = self._team
            load_weights(self.collector, weights)
            self._version = order.version
        for episode in played.done:
            if self._random.random() < self.share:
                problem = self._wrong(episode, dict(share)[episode.index])
                if problem is not None:
                    return f"episode {episode.index} (seed {episode.seed}) {problem}"
        return None

    def _wrong(self, episode: Episode, plan: Plan) -> str | None:
        return self._replayed(episode, plan) or self._rescored(episode)

    def _replayed(self, episode: Episode, plan: Plan) -> str | None:
        """Play an episode again with the actions that it has."""
        self.collector.policies = {agent: Playback([episode], agent) for agent in self._team}
        try:
            ((again,), _, _) = self.collector.play([(episode.index, plan)], 1)
        except _OtherCourse:
            return "ends before its actions lead to an end"
        except EnvironmentFault as fault:
            return f"has actions that its environment cannot take ({fault})"
        finally:
            self.collector.policies = self._team
        for name in (each.name for each in fields(Episode) if each.name != "tracks"):
            if not _is_equal(getattr(again, name), getattr(episode, name)):
                return f"has other {name} when it is played again"
        for agent in self._team:
            one, other = again.tracks.get(agent, ()), episode.tracks.get(agent, ())
            if len(one) != len(other):
                return f"has {len(other)} turns of {agent}, but {len(one)} when it is played again"
            for mine, told in zip(one, other, strict=True):
                if not is_same(mine.observation, told.observation):
                    return f"shows {agent} something else in turn {told.time + 1} when it is played again"
                if mine.reward != told.reward:
                    return f"pays {agent} {mine.reward:g} in turn {told.time + 1}, not {told.reward:g}"
        return None

    def _rescored(self, episode: Episode) -> str | None:
        """Compute the log-probabilities of an episode again."""
        for agent, track in episode.tracks.items():
            policy = self._team[agent]
            if not isinstance(policy, TrainablePolicy):
                continue
            previous: Completion | None = None
            for turn in track:
                if not policy.is_own(turn.observation, previous, turn.completion):
                    return f"has other tokens of {agent} in turn {turn.time + 1} than it read and wrote"
                previous = turn.completion
            completions = [turn.completion for turn in track]
            with torch.no_grad():
                found = policy.evaluate([completions]).logprobs.float().cpu().numpy()
            told = np.concatenate([each.logprobs for each in completions])
            if found.shape != told.shape:
                return f"has {len(told)} log-probabilities of {agent} for {len(found)} tokens"
            error = float(np.abs(found - told).max(initial=0.0))
            if not error <= MAX_ERROR:
                return f"has log-probabilities of {agent} that are wrong by {error:.3g} nats"
        return None


def _not_as_ordered(order: RolloutRequest, share: Sequence[tuple[int, Plan]], played: Played) -> str | None:
    """What is wrong as can be seen without playing anything."""
    plans = dict(share)
    missing = {index for index, plan in share if plan.group not in played.lost}
    for episode in played.done:
        plan = plans.get(episode.index)
        if plan is None or (episode.seed, episode.group) != (plan.seed, plan.group):
            return f"episode {episode.index} (seed {episode.seed}) was not ordered"
        missing.discard(episode.index)
        for track in episode.tracks.values():
            versions = {turn.completion.version for turn in track}
            if versions != {order.version}:
                return f"episode {episode.index} is by version {max(versions)} of the weights, not {order.version}"
    if missing:
        return f"episode {min(missing)} is missing"
    return None


def _is_equal(one: Any, other: Any) -> bool:
    """Equality of what an episode holds, where tuples may hold mappings, and mappings None."""
    if one is None or other is None or isinstance(one, (bool, str)):
        return bool(one == other)
    if isinstance(one, Mapping):
        return (
            isinstance(other, Mapping) and one.keys() == other.keys() and all(_is_equal(one[k], other[k]) for k in one)
        )
    if isinstance(one, (tuple, list)):
        return isinstance(other, (tuple, list)) and len(one) == len(other) and all(map(_is_equal, one, other))
    return is_same(one, other)
