"""Log-probabilities that rollouts lack: under the reference policies, and of tokens that servers sampled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

import torch
from torch import Tensor

from ..._progress import advance, expect
from ...agents.core import Completion, Evaluation, TrainablePolicy
from ..distribution.group import current
from ..rollout.episode import Episode
from .policy_learner import PolicyLearner, tracks_of

Tracks = Sequence[Sequence[Completion]]


def add_missing_logprobs(learners: Sequence[PolicyLearner], episodes: Sequence[Episode]) -> list[Episode]:
    """Add the log-probabilities and entropies of tokens that servers sampled, computed with the current weights."""
    scored = list(episodes)
    for learner in learners:
        policy = learner.policy
        if not policy.is_scored_later:
            continue
        places = [(n, agent) for n, each in enumerate(scored) for agent in learner.agents if agent in each.tracks]
        if not places:
            continue
        tracks = [[turn.completion for turn in scored[n].tracks[agent]] for n, agent in places]
        found = _evaluated(learner, policy, tracks, lambda each: torch.stack([each.logprobs, each.entropies]).float())
        logprobs, entropies = zip(*(each.reshape(2, -1).cpu().numpy() for each in found), strict=True)
        for (n, agent), completions in zip(places, policy.scored(tracks, logprobs, entropies), strict=True):
            pairs = zip(scored[n].tracks[agent], completions, strict=True)
            track = tuple(replace(turn, completion=completion) for turn, completion in pairs)
            scored[n] = replace(scored[n], tracks={**scored[n].tracks, agent: track})
    return scored


def reference_logprobs(
    learners: Mapping[str, PolicyLearner], references: Mapping[str, TrainablePolicy], episodes: Sequence[Episode]
) -> dict[str, list[Tensor]]:
    """Return the log-probabilities of sampled tokens under each agent's reference policy, one tensor per track."""
    return {
        agent: logprobs(learner, references[agent], tracks_of(episodes, agent)) for agent, learner in learners.items()
    }


def logprobs(learner: PolicyLearner, policy: TrainablePolicy, tracks: Tracks) -> list[Tensor]:
    """Return the log-probabilities of sampled tokens under `policy`, one tensor per track."""
    return _evaluated(learner, policy, tracks, attrgetter("logprobs"))


@torch.no_grad()
def _evaluated(
    learner: PolicyLearner, policy: TrainablePolicy, tracks: Tracks, read: Callable[[Evaluation], Tensor]
) -> list[Tensor]:
    """Evaluate tracks with a policy; returns the tensor [..., K] that `read` selects for each track of K tokens."""
    found: dict[int, Tensor] = {}
    passes = learner.passes(policy, tracks, range(len(tracks)))
    expect(len(passes))
    for batch, _ in passes:
        numbers = read(policy.evaluate([tracks[i] for i in batch]))
        lengths = [sum(len(turn.logprobs) for turn in tracks[i]) for i in batch]
        found |= dict(zip(batch, torch.split(numbers, lengths, dim=-1), strict=True))
        advance()
    found = current().union(found)
    return [found[i] for i in range(len(tracks))]
