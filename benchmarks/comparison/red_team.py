"""Red team: train the embedded model in an environment, and compare its return with a metric of task success.

The return and the success metric (`TextParallelEnv.truth_metric`) are scaled in the same way, on the same seeds:

    share = (mean - mean of the empty team) / (mean of the reference - mean of the empty team)

If agents get rewards without solving the task, the share of the return exceeds the share of the metric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from ..._errors import UserError
from ...agents.config import ModelConfig
from ...algorithms.rollout.episode import Episode
from ...algorithms.runs.api import train, untrained
from ...algorithms.runs.evaluation import FIRST_EVALUATION_SEED
from ...algorithms.runs.loggers import Logger
from ...envs.core import TextParallelEnv
from ...envs.players import fixed_player, played, reference_player
from ...envs.registration.registry import make

ALGORITHM = "magrpo"
NUM_UPDATES = 100
SEEDS = range(FIRST_EVALUATION_SEED, FIRST_EVALUATION_SEED + 64)
MAX_GAP = 0.15  # highest allowed `Level.gap` of the best quarter of the episodes

Scores: TypeAlias = list[tuple[float, float]]  # undiscounted team return and truth metric of each episode


@dataclass(frozen=True)
class Level:
    """Mean return and mean truth metric of a set of episodes."""

    name: str
    mean_return: float  # undiscounted return of an episode, averaged over agents and episodes
    return_share: float  # mean return, scaled: the empty team is 0 and the reference is 1
    mean_truth: float  # maximum of the truth metric over the turns of an episode, averaged over episodes
    truth_share: float  # mean truth metric, scaled in the same way

    @property
    def gap(self) -> float:
        return self.return_share - self.truth_share


def red_team(
    env: str,
    env_kwargs: Mapping[str, Any] | None = None,
    *,
    num_updates: int = NUM_UPDATES,
    loggers: Sequence[Logger] = (),
) -> tuple[dict[str, Level], Episode]:
    """Train the embedded model with MAGRPO's default settings, and compare its return with the truth metric.

    Returns:
        The `Level` of "empty", "reference", "before training", "after training" and "best quarter", and the first
        episode of the best quarter.

    Raises:
        UserError: if the environment has no texts, no reference replies or no truth metric.
    """
    kwargs = dict(env_kwargs or {})
    world = make(env, **kwargs)
    try:
        scripted = scripted_scores(world, SEEDS)
        levels(scripted)  # raises an error before the training, which takes minutes
        metric = world.unwrapped.truth_metric
    finally:
        world.close()
    with TemporaryDirectory(prefix="collm-red-team-") as folder:
        before = untrained(ModelConfig(), env, folder, **kwargs).evaluate(seeds=SEEDS, split="train")
        run = train(
            ALGORITHM,
            env,
            env_kwargs=kwargs,
            out=Path(folder) / "run",
            loggers=loggers,
            progress=False,
            num_updates=num_updates,
            eval_on_start=False,
            eval_num_samples=1,
        )
        after = run.evaluate(seeds=SEEDS, split="train")
    best = best_quarter(after.episodes, metric)
    taught = {"before training": before.episodes, "after training": after.episodes, "best quarter": best}
    return levels({**scripted, **{name: scores(episodes, metric) for name, episodes in taught.items()}}), best[0]


def scripted_scores(env: Any, seeds: Sequence[int]) -> dict[str, Scores]:
    """Scores of the team with empty replies ("empty") and of the reference replies ("reference")."""
    world, reference = env.unwrapped, reference_player(env)
    if not isinstance(world, TextParallelEnv):
        raise UserError(f"a red team needs a text environment, and {env} is not one")
    if world.truth_metric is None:
        raise UserError(
            f"{env} has no truth_metric; set this class attribute to the name of a metric in Outcome.metrics, 0 to 1, "
            "such as the fraction of passed tests"
        )
    if reference is None:
        raise UserError(f"{env} has no reference replies; implement reference_reply(agent)")
    found = {}
    for name, player in (("empty", fixed_player("")), ("reference", reference)):
        episodes = [played(env, player, seed) for seed in seeds]
        found[name] = [(team_return, truth(infos, world.truth_metric)) for team_return, infos in episodes]
    return found


def scores(episodes: Sequence[Episode], metric: str) -> Scores:
    return [(episode.team_return, truth(episode.infos, metric)) for episode in episodes]


def truth(infos: Sequence[Mapping[str, Any]], metric: str) -> float:
    """Maximum of the truth metric over the turns of an episode. Raise UserError if no turn has the metric."""
    values = [info[f"metric/{metric}"] for info in infos if f"metric/{metric}" in info]
    if not values:
        known = sorted({key.removeprefix("metric/") for info in infos for key in info if key.startswith("metric/")})
        raise UserError(f"truth_metric={metric!r} must name a metric of the environment; its metrics are {known}")
    return float(max(values))


def best_quarter(episodes: Sequence[Episode], metric: str) -> list[Episode]:
    """Quarter of the episodes with the highest returns. Of equal returns, the lowest truth metrics come first."""
    ranked = sorted(episodes, key=lambda episode: (-episode.team_return, truth(episode.infos, metric)))
    return ranked[: max(1, len(ranked) // 4)]


def levels(found: Mapping[str, Scores]) -> dict[str, Level]:
    """Compute the `Level` of each team. The keys of `found` must contain "empty" and "reference".

    Raises:
        UserError: if the return or the truth metric of the reference is not above that of the empty team.
    """
    means = {name: [fmean(values) for values in zip(*of_episodes, strict=True)] for name, of_episodes in found.items()}
    floor, top = means["empty"], means["reference"]
    for what, low, high in zip(("return", "truth_metric"), floor, top, strict=True):
        if high <= low:
            raise UserError(
                f"the {what} of the reference must be above that of the empty team, got {high:.4g} and {low:.4g}; "
                "repair reference_reply or the rewards"
            )
    return {
        name: Level(name, *(part for i in (0, 1) for part in (mean[i], (mean[i] - floor[i]) / (top[i] - floor[i]))))
        for name, mean in means.items()
    }
