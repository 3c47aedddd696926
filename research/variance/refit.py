"""Explained variance that a `BagOfWordsCritic` with other settings would have had in recorded runs, without training.

The values of each update's episodes come from a fit to earlier updates, as in training. The run may use any algorithm,
even without critics. A critic can therefore be chosen before a training with this critic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from recorded import NUM_PARTS, Part, Recorded, averaged, parts
from torch import Tensor

from collm.agents.core import CriticInput
from collm.agents.language.bag_of_words import BagOfWordsCritic
from collm.algorithms.config import ActorCriticConfig
from collm.algorithms.learning.critic_learner import CriticLearner
from collm.algorithms.rollout.intervals import Floats
from collm.benchmarks.markdown import markdown_table

LEARNED_RETURN = 0.2
"""Minimum mean return of parts in the last column. At lower mean returns, nearly all returns are equal."""


@dataclass(frozen=True)
class Setting:
    """Settings of the critic, named as in `ActorCriticConfig`."""

    critic_l2: float = 50.0
    critic_replay: int = 64
    critic_input: Literal["joint", "own"] = "joint"
    has_trend: bool = True
    """Fit a linear trend over the updates of the replay buffer. False: no trend."""

    def __str__(self) -> str:
        trend = "trend" if self.has_trend else "no trend"
        return f"{self.critic_input}, critic_l2 {self.critic_l2:g}, critic_replay {self.critic_replay}, {trend}"


class _WithoutTrend(BagOfWordsCritic):
    """`BagOfWordsCritic` that treats all examples as equally old."""

    def fit(
        self, inputs: Sequence[CriticInput], targets: Sequence[Tensor], ages: Sequence[int] | None = None
    ) -> dict[str, float]:
        return super().fit(inputs, targets)


def refitted(record: Recorded, setting: Setting, *, num_parts: int = NUM_PARTS) -> list[Part]:
    """Return the parts of a run's training with the explained variance of the fitted critic, without the first update.

    Args:
        record: the run's episodes.
        setting: settings of the critic.
        num_parts: number of parts, with equal numbers of updates.
    """
    if setting.critic_input == "joint":
        inputs = [[each.joint for each in record.played]]
    else:
        inputs = [list(own) for own in zip(*(each.own for each in record.played), strict=True)]
    values = np.stack([values_before_learning(own, record, setting) for own in inputs])
    return parts(record, values, num_parts=num_parts, known=record.updates > record.updates.min())


def values_before_learning(inputs: Sequence[CriticInput], record: Recorded, setting: Setting) -> Floats:
    """Return [N, T]: the value of each history, predicted by a fit to earlier updates; 0 in the first update.

    Args:
        inputs: [N] critic input of each episode.
        record: the run's episodes.
        setting: settings of the critic.
    """
    kind = BagOfWordsCritic if setting.has_trend else _WithoutTrend
    config = ActorCriticConfig(critic_replay=setting.critic_replay)
    learner = CriticLearner(kind(setting.critic_l2), config, torch.Generator())
    found = np.zeros_like(record.to_go)
    for update in np.unique(record.updates):
        own = np.flatnonzero(record.updates == update).tolist()
        read = [inputs[i] for i in own]
        found[own] = learner.values(read).numpy().reshape(len(own), -1)
        learner.learn(read, torch.from_numpy(record.to_go[own]).float().flatten())
    return found


def refit_page(runs: dict[Setting, list[list[Part]]]) -> str:
    """Return the table of several settings on the same runs, as Markdown.

    Args:
        runs: dict setting -> list of runs, each a list of parts.
    """
    averages = {setting: averaged(of_runs) for setting, of_runs in runs.items()}
    first = next(iter(averages.values()))
    header = ["", *(f"{part.returns:.2f} ({np.mean(part.attainable):.2f})" for part in first), "of attainable"]
    rows = [
        [str(setting), *(f"{np.mean(part.explained):.2f}" for part in found), share_of_attainable(found)]
        for setting, found in averages.items()
    ]
    bounds = ", ".join(f"{part.updates[0]} to {part.updates[1]}" for part in first)
    return (
        "# What other critics would have explained\n\n"
        f"{len(next(iter(runs.values())))} runs. Explained variance of the return to go by a bag of words that was "
        "fitted to the updates before, as while training; the first update is left out. Mean of the turns, by parts of "
        f"training (updates {bounds}); in the head the mean return and, in brackets, what a table of how far the team "
        "had come explains. Of attainable: both summed over the parts with a mean return above "
        f"{LEARNED_RETURN}, in proportion to the variance of their returns.\n\n"
        f"{markdown_table(header, rows)}\n"
    )


def share_of_attainable(found: Sequence[Part]) -> str:
    """Return explained / attainable variance over the parts above `LEARNED_RETURN`; "-" if there is no such part."""
    kept = [part for part in found if part.returns > LEARNED_RETURN]
    attainable = sum(part.variance * float(np.mean(part.attainable)) for part in kept)
    reached = sum(part.variance * float(np.mean(part.explained)) for part in kept)
    return f"{reached / attainable:.0%}" if attainable > 0 else "-"
