"""Reward function: similarity of replies to reference summaries, computed by the package `rouge-score`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import Any

from ..._extras import require
from .reward_functions import JudgedTurn


@dataclass(frozen=True)
class Rouge:
    """Reward function: mean of ROUGE-2 F1 and ROUGE-L F1 with the most similar reference, averaged over the agents.

    The reward is between 0 and 1. In `reward_funcs`, write "collm.envs.wrappers.rouge:target" for the column "target"
    of the data set SciTLDR.

    Source: ROUGE (aclanthology.org/W04-1013), as implemented by `rouge_score`, with stemming.

    Args:
        column: column of the task with a reference text or a list of reference texts.

    Raises:
        ModuleNotFoundError: if `rouge-score` is not installed.
        ValueError: if the task of an episode has no text in the column.
    """

    column: str
    __name__ = "rouge"

    def __call__(self, turn: JudgedTurn) -> float:
        found = turn.task.get(self.column) if isinstance(turn.task, dict) else None
        references = [found] if isinstance(found, str) else list(found or ())
        if not any(references):
            raise ValueError(f"the task has no reference text in the column {self.column!r}; choose another column")
        return fmean(max(_agreement(reference, reply) for reference in references) for reply in turn.replies.values())


target = Rouge("target")


def _agreement(reference: str, reply: str) -> float:
    return fmean(score.fmeasure for score in _scorer().score(reference, reply).values())


@cache
def _scorer() -> Any:
    require("rouge_score")
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(("rouge2", "rougeL"), use_stemmer=True)
