"""Summaries of runs → arrays to estimate from: which algorithms, where, with which seeds, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..curves import cost_to_reach
from ..statistics import Floats
from ..summaries import RunSummary


@dataclass(frozen=True)
class Comparison:
    """Finished runs, sorted out."""

    summaries: Sequence[RunSummary]

    @property
    def finished(self) -> list[RunSummary]:
        return [each for each in self.summaries if each.is_finished]

    @property
    def algorithms(self) -> list[str]:
        """Those with a finished run, in the order of the suite."""
        return list(dict.fromkeys(each.algorithm for each in sorted(self.finished, key=lambda each: each.place[1])))

    @property
    def environments(self) -> list[str]:
        """Those with a finished run, in the order of the suite."""
        return list(dict.fromkeys(each.environment for each in sorted(self.finished, key=lambda each: each.place[0])))

    @property
    def thresholds(self) -> dict[str, float]:
        """Of the environments that have one."""
        found = {each.environment: each.threshold for each in self.finished if each.threshold is not None}
        return {name: found[name] for name in self.environments if name in found}

    @property
    def has_one_scale(self) -> bool:
        """Whether all returns lie in 0..1, so that those of different environments can be taken together."""
        return all(0 <= each.score(how) <= 1 for each in self.finished for how in ("sampled", "greedy"))

    def writes_text(self, environment: str) -> bool:
        """Whether agents generate tokens there."""
        return any(each.writes_text for each in self.finished if each.environment == environment)

    def costs_to_reach(self, algorithm: str, environment: str, cost: str) -> list[float]:
        """What it cost each run to come to the environment's threshold; `NEVER` where it did not."""
        threshold = self.thresholds[environment]
        runs = self.runs(algorithm, environment)
        return [cost_to_reach(each.curve(cost), each.curve("return"), threshold) for each in runs]

    def runs(self, algorithm: str, environment: str) -> list[RunSummary]:
        """Finished runs, by seed."""
        found = [each for each in self.finished if (each.algorithm, each.environment) == (algorithm, environment)]
        return sorted(found, key=lambda each: each.seed)

    def scores(self, algorithm: str, environment: str, how: str = "sampled") -> Floats:
        """[R] returns, by seed: held out at the end, "sampled" or "greedy", or of the last half of "training"."""
        return np.array([each.score(how) for each in self.runs(algorithm, environment)])

    def paired_scores(self, first: str, second: str, environment: str, how: str = "sampled") -> tuple[Floats, Floats]:
        """[R, 1] and [R, 1]: of the seeds that both have finished."""
        by_seed = [{each.seed: each.score(how) for each in self.runs(name, environment)} for name in (first, second)]
        seeds = sorted(by_seed[0].keys() & by_seed[1].keys())
        one, other = (np.array([[scores[seed]] for seed in seeds]).reshape(-1, 1) for scores in by_seed)
        return one, other

    def matrix(self, algorithm: str) -> Floats | None:
        """[R, K] over the seeds finished in all environments; None where there is no such seed."""
        seeds = [{each.seed for each in self.runs(algorithm, name)} for name in self.environments]
        common = sorted(set.intersection(*seeds)) if seeds else []
        if not common:
            return None
        columns = [
            [{each.seed: each.score() for each in self.runs(algorithm, name)}[seed] for seed in common]
            for name in self.environments
        ]
        scores: Floats = np.array(columns).T
        return scores

    def reference(self) -> str:
        """Whom the others are compared with: multi-agent actor-critic where it takes part, else the first."""
        by_kind = {each.experiment["algorithm"]: each.algorithm for each in reversed(self.finished)}
        return by_kind.get("maac", self.algorithms[0] if self.finished else "none")
