"""Reinforcement learning from preferences (RLHF): a reward model is trained on pairs, then replaces the reward.

    pairs = preferences(episodes)                          # or a person's choices: Preference(better, worse)
    fit(reward_model, pairs, generator=generator)          # Bradley-Terry
    Trainer(algorithm, collector, critics, references=references, rewarder=ModelRewards(reward_model))

With `reference_kl_coef` above 0 the third line is the usual last step: PPO on the reward model's score minus a KL
penalty to the starting model, which keeps policies near texts that the reward model has learned to judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import torch

from ...agents.language.reward_model import RewardModel
from ..functions.losses import preference_loss
from ..rollout.episode import Episode


class Preference(NamedTuple):
    """Two texts for one task: the better and the worse."""

    better: str
    worse: str


def preferences(episodes: Sequence[Episode], *, min_gap: float = 0.0) -> list[Preference]:
    """Preferences between joint histories of one task, by return.

    Args:
        episodes: groups of rollouts with their joint histories (`RolloutCollector(..., reads_state=True)`).
        min_gap: smallest difference of returns, exclusive, that makes a pair.
    """
    return [
        Preference(*(str(each.states[-1]) for each in sorted(pair, key=lambda each: -each.team_return)))
        for pair in combinations(episodes, 2)
        if pair[0].group == pair[1].group and abs(pair[0].team_return - pair[1].team_return) > min_gap
    ]


def fit(
    reward_model: RewardModel,
    pairs: Sequence[Preference],
    *,
    generator: torch.Generator,
    num_epochs: int = 1,
    batch_size: int = 16,
    learning_rate: float = 1e-4,
) -> dict[str, float]:
    """Train the reward model on preferences; returns the last epoch's mean loss and accuracy.

    Args:
        generator: source of the order of the pairs.

    Raises:
        ValueError: if there is no pair.
    """
    if not pairs:
        raise ValueError("there is no pair to learn from: collect groups of rollouts whose returns differ")
    optimizer = torch.optim.AdamW(reward_model.parameters(), lr=learning_rate, weight_decay=0.0)
    loss_sum = hits = 0.0
    for _ in range(num_epochs):
        loss_sum = hits = 0.0
        order = torch.randperm(len(pairs), generator=generator).tolist()
        for start in range(0, len(pairs), batch_size):
            batch = [pairs[i] for i in order[start : start + batch_size]]
            scores = reward_model.scores([*(pair.better for pair in batch), *(pair.worse for pair in batch)])
            better, worse = scores[: len(batch)], scores[len(batch) :]
            loss = preference_loss(better, worse, len(batch))
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(reward_model.parameters(), 1.0)
            optimizer.step()
            loss_sum += float(loss.detach()) * len(batch)
            hits += float((better > worse).sum())
    return {"loss": loss_sum / len(pairs), "accuracy": hits / len(pairs)}


class ModelRewards:
    """A trainer's `rewarder`: each turn's reward is the reward model's score of the joint history after the turn.

    All agents get the same reward. The logged return stays the environment's.
    """

    def __init__(self, reward_model: RewardModel):
        self.reward_model = reward_model

    def __call__(self, episodes: Sequence[Episode]) -> list[Episode]:
        texts = [str(state) for episode in episodes for state in episode.states[1:]]
        scores = iter(self.reward_model.rewards(texts))
        paid = []
        for episode in episodes:
            of_turn = [next(scores) for _ in range(episode.num_turns)]
            tracks = {
                agent: tuple(replace(turn, reward=of_turn[turn.time]) for turn in track)
                for agent, track in episode.tracks.items()
            }
            paid.append(replace(episode, tracks=tracks))
        return paid
