"""Reinforcement learning from preferences (RLHF): the score of a reward model replaces the reward.

    pairs = preferences(episodes)                 # or human choices; TRL's `RewardTrainer` learns from them
    Trainer(algorithm, collector, critics, references=references, rewarder=ModelRewards(reward_model))

With `reference_kl_coef` above 0, a KL penalty to the starting model is added, as is usual in RLHF.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

from ...agents.language.reward_model import RewardModel
from ..config import RewardModelPays
from ..rollout.episode import Episode
from .rewards import with_rewards


def preferences(episodes: Sequence[Episode], *, min_gap: float = 0.0) -> list[dict[str, str]]:
    """Make preferences from pairs of rollouts of one task: the joint history with the larger return is "chosen".

    Returns one dict per pair with the keys "chosen" and "rejected", as `trl.RewardTrainer` reads them. The episodes
    need joint histories (`RolloutCollector(..., reads_state=True)`). Pairs whose returns differ by at most `min_gap`
    are omitted.
    """
    return [
        {name: str(each.states[-1]) for name, each in zip(("chosen", "rejected"), ranked, strict=True)}
        for pair in combinations(episodes, 2)
        for ranked in [sorted(pair, key=lambda each: -each.team_return)]
        if pair[0].group == pair[1].group and abs(pair[0].team_return - pair[1].team_return) > min_gap
    ]


class ModelRewards:
    """`rewarder` of a trainer: sets the team's reward to a reward model's score of the joint history.

    Agents that act or wait in a turn get equal rewards, whose mean over all agents is the team's reward. Logged returns
    do not change.

    Args:
        reward_model: scores texts.
        pays: "end": the last turn's reward is the score of the whole episode. "differences": each turn's reward is the
            score after the turn minus the score before it (potential-based shaping, Ng et al. 1999).
    """

    def __init__(self, reward_model: RewardModel, pays: RewardModelPays = "end"):
        self.reward_model = reward_model
        self.pays = pays

    def __call__(self, episodes: Sequence[Episode]) -> list[Episode]:
        read = [self._scored_histories(episode) for episode in episodes]
        scores = iter(self.reward_model.rewards([str(state) for states in read for state in states]))
        return [
            _divide_among_agents(episode, self._team_rewards(episode, [next(scores) for _ in states]))
            for episode, states in zip(episodes, read, strict=True)
        ]

    def _scored_histories(self, episode: Episode) -> Sequence[Any]:
        if self.pays == "differences":
            return episode.states
        return episode.states[-1:] if episode.is_complete else ()

    def _team_rewards(self, episode: Episode, scores: Sequence[float]) -> list[float]:
        if self.pays == "differences":
            return [after - before for before, after in pairwise(scores)]
        return [0.0] * (episode.num_turns - len(scores)) + list(scores)


def _divide_among_agents(episode: Episode, team_rewards: Sequence[float]) -> Episode:
    """Return an episode in which each joint turn's reward is divided among the agents that acted or waited."""
    num_present = Counter(turn.time for track in episode.tracks.values() for turn in track)
    num_present.update(time for times in episode.waiting.values() for time in times)
    num_agents = episode.num_agents or len(episode.tracks)
    shares = [reward * num_agents / max(1, num_present[time]) for time, reward in enumerate(team_rewards)]
    rewards = {agent: [shares[turn.time] for turn in track] for agent, track in episode.tracks.items()}
    waiting = {agent: {time: shares[time] for time in times} for agent, times in episode.waiting.items()}
    return replace(with_rewards(episode, rewards), waiting=waiting)
