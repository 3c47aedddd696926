"""Scores of finished runs as arrays, selected by algorithm, environment and seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...algorithms.rollout.intervals import Floats
from ...envs.registration.registry import Range, specs
from ..comparison.summaries import RunSummary
from .statistics import UNBOUNDED, cost_to_reach

Score = str | Callable[[RunSummary], float]  # argument of `RunSummary.score`, or a function of a run


@dataclass(frozen=True)
class Comparison:
    summaries: Sequence[RunSummary]

    @property
    def finished(self) -> list[RunSummary]:
        return [each for each in self.summaries if each.is_finished]

    @property
    def algorithms(self) -> list[str]:
        """Methods with a finished run, in the order of the suite."""
        return list(dict.fromkeys(each.algorithm for each in sorted(self.finished, key=lambda each: each.place[1])))

    @property
    def environments(self) -> list[str]:
        """Environments with a finished run, in the order of the suite."""
        return list(dict.fromkeys(each.environment for each in sorted(self.finished, key=lambda each: each.place[0])))

    @property
    def thresholds(self) -> dict[str, float]:
        found = {each.environment: each.threshold for each in self.finished if each.threshold is not None}
        return {name: found[name] for name in self.environments if name in found}

    @property
    def has_one_scale(self) -> bool:
        """True if all returns are between 0 and 1. Only then can they be averaged over environments."""
        return all(0 <= each.score(how) <= 1 for each in self.finished for how in ("sampled", "greedy"))

    def bounds(self, *environments: str) -> Range:
        """Declared lowest and highest return. Infinite if an environment declares none or a run has a reward model."""
        known = {spec.id: spec for spec in specs()}
        found = []
        for run in {each.environment: each for each in self.finished if each.environment in environments}.values():
            spec = known.get(run.experiment["env"])
            is_judged = run.experiment["config"].get("reward_model") is not None
            kwargs = run.experiment["env_kwargs"]
            found.append((None if spec is None or is_judged else spec.given(**kwargs).return_range) or UNBOUNDED)
        return min(low for low, _ in found), max(high for _, high in found)

    def writes_text(self, environment: str) -> bool:
        return any(each.writes_text for each in self.finished if each.environment == environment)

    def costs_to_reach(self, algorithm: str, environment: str, cost: str) -> list[float]:
        """Cost of reaching the environment's threshold, per run. `NEVER`: the run did not reach the threshold."""
        threshold = self.thresholds[environment]
        runs = self.runs(algorithm, environment)
        return [cost_to_reach(*each.learning_curve(cost), threshold) for each in runs]

    def runs(self, algorithm: str, environment: str) -> list[RunSummary]:
        found = [each for each in self.finished if (each.algorithm, each.environment) == (algorithm, environment)]
        return sorted(found, key=lambda each: each.seed)

    def scores(self, algorithm: str, environment: str, how: str = "sampled") -> Floats:
        """Returns of all seeds, [R]: final held-out returns ("sampled", "greedy"), or the last half of "training"."""
        return np.array(list(self._scores_by_seed(algorithm, environment, how).values()))

    def start(self, environment: str, how: str = "sampled") -> float | None:
        """Mean return before training. None: no run was evaluated before training."""
        found = [each.start_score(how) for each in self.finished if each.environment == environment]
        known = [each for each in found if np.isfinite(each)]
        mean = float(np.mean(known)) if known else np.nan
        return mean if np.isfinite(mean) else None

    def _scores_by_seed(self, algorithm: str, environment: str, how: Score) -> dict[int, float]:
        """Finite scores of a method in an environment. Keys: seeds. A run without finished episodes has no score."""
        runs = self.runs(algorithm, environment)
        scores = {each.seed: each.score(how) if isinstance(how, str) else how(each) for each in runs}
        return {seed: score for seed, score in scores.items() if np.isfinite(score)}

    def matrix(self, algorithm: str) -> Floats | None:
        """Returns of the R seeds that finished in all K environments, [R, K]. None: no seed finished in all."""
        seeds, scores = self.seeds_and_scores(algorithm, self.environments)
        return scores if seeds else None

    def seeds_and_scores(
        self, algorithm: str, environments: Sequence[str], how: Score = "sampled"
    ) -> tuple[list[int], Floats]:
        """Seeds with a return in each of K environments, in ascending order, and their returns, [R, K]."""
        columns = [self._scores_by_seed(algorithm, name, how) for name in environments]
        common = sorted(set.intersection(*(set(column) for column in columns))) if columns else []
        scores: Floats = np.array([[column[seed] for column in columns] for seed in common])
        return common, scores.reshape(len(common), len(columns))

    def reference(self) -> str:
        """Method that is compared with each other method: MAAC if it was run, else the first method."""
        by_kind = {each.experiment["algorithm"]: each.algorithm for each in reversed(self.finished)}
        return by_kind.get("maac", self.algorithms[0] if self.finished else "none")


def paired(first: tuple[list[int], Floats], second: tuple[list[int], Floats]) -> tuple[Floats, Floats]:
    """Select the scores of the seeds that two methods share, in the same order. Inputs: [R, K] and [S, K]."""
    common = sorted(set(first[0]) & set(second[0]))
    one, other = (scores[[seeds.index(seed) for seed in common]] for seeds, scores in (first, second))
    return one, other


Nested = dict[str, dict[str, dict[str, dict[str, Any]]]]


def marl_eval_json(summaries: Sequence[RunSummary]) -> Nested:
    """Evaluations in the format of marl-eval: environment, task, algorithm, run, then steps and absolute metrics.

    The environment is the namespace of the id. The absolute metric is that of the last evaluation, because a run
    returns the team after its last update.
    """
    found: Nested = {}
    for summary in summaries:
        if not summary.is_finished or not summary.evaluations:
            continue
        metrics = [
            {"return": [row["evaluation/sampled/return"]], "greedy_return": [row["evaluation/greedy/return"]]}
            for row in summary.evaluations
        ]
        run: dict[str, Any] = {
            f"step_{number}": {"step_count": int(row["environment_steps"]), **metrics[number]}
            for number, row in enumerate(summary.evaluations)
        }
        run["absolute_metrics"] = metrics[-1]
        tasks = found.setdefault(summary.experiment["env"].partition("/")[0], {})
        runs = tasks.setdefault(summary.environment, {}).setdefault(summary.algorithm, {})
        runs[f"seed_{summary.seed}"] = run
    return found
