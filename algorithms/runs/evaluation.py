"""Evaluation on held-out tasks: fixed seeds, greedy and sampled, with intervals, transcripts and a picture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..._ownership import replaced
from ...envs.core import TextParallelEnv
from ...envs.games.pictures import write_gif
from ...envs.registration.turn_limit import watched_turns
from ..rollout.collector import Plan, RolloutCollector
from ..rollout.episode import Episode
from ..rollout.intervals import Interval, bootstrap_interval
from ..rollout.summary import episode_metrics

# Far from what training draws by chance; where an environment has splits, its test tasks differ anyway.
FIRST_EVALUATION_SEED = 2**31


@dataclass(frozen=True, slots=True)
class DifficultyResult:
    """Statistics of the episodes whose tasks have one difficulty (`metric/difficulty`)."""

    num_episodes: int
    team_return: Interval
    """Mean undiscounted team return, with its 95 % bootstrap interval over these episodes."""
    success: Interval | None
    """Share of the episodes with a turn in which `metric/success` is 1, with its interval. None: none tells it."""

    def numbers(self) -> dict[str, float]:
        """The statistics by name, as a run logs them."""
        told = {"return": self.team_return, **({} if self.success is None else {"success": self.success})}
        found: dict[str, float] = {}
        for name, interval in told.items():
            found |= {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
        return {"num_episodes": float(self.num_episodes), **found}


@dataclass(frozen=True, slots=True, repr=False)
class EvaluationResult:
    """Episodes of a team on held-out tasks, with their statistics."""

    episodes: Sequence[Episode]
    """Episodes in the order of their seeds. Observations that are no texts are None."""
    team_return: Interval
    """Mean undiscounted team return, with its 95 % bootstrap interval over episodes."""
    metrics: dict[str, float]
    """Means over the episodes, under the names of a training update's metrics."""
    by_difficulty: Mapping[int, DifficultyResult]
    """Statistics of the episodes of each difficulty, from the lowest; empty where environments tell none."""

    def __repr__(self) -> str:
        """One line, as a notebook or a prompt shows it."""
        return f"EvaluationResult({len(self.episodes)} episodes, return {self.team_return})"

    @property
    def num_cut(self) -> int:
        """Number of episodes that the evaluation's limit of turns has truncated."""
        return sum(episode.is_cut for episode in self.episodes)

    def cut_line(self) -> str:
        """Line on the episodes that the evaluation's limit of turns has truncated."""
        most = max(episode.num_turns for episode in self.episodes)
        return (
            f"{self.num_cut} of {len(self.episodes)} episodes were truncated after {most:,} joint turns; "
            "--eval-max-turns sets another limit"
        )

    @property
    def best(self) -> Episode:
        return max(self.episodes, key=lambda episode: episode.team_return)

    @property
    def worst(self) -> Episode:
        return min(self.episodes, key=lambda episode: episode.team_return)


def evaluate(
    collector: RolloutCollector,
    num_episodes: int,
    *,
    greedy: bool,
    first_seed: int = FIRST_EVALUATION_SEED,
    max_turns: int | None = None,
) -> EvaluationResult:
    """Play the same tasks in the same order at every call.

    Args:
        collector: collector on held-out tasks; its count of episodes is reset, so that sampling repeats too.
        num_episodes: number of tasks, from seeds first_seed, first_seed + 1, …
        greedy: take the likeliest token; symmetric agents can then block each other, so report both ways.
        first_seed: seed of the first task.
        max_turns: as in `evaluate_on`.
    """
    seeds = range(first_seed, first_seed + num_episodes)
    return evaluate_on(collector, seeds, greedy=greedy, max_turns=max_turns)


def evaluate_on(
    collector: RolloutCollector, seeds: Sequence[int], *, greedy: bool, max_turns: int | None = None
) -> EvaluationResult:
    """Play the tasks of given seeds, in order; see `evaluate`.

    Args:
        collector: collector on held-out tasks; its count of episodes is reset.
        seeds: a seed per episode.
        greedy: take the likeliest token.
        max_turns: joint turns after which an episode is truncated. None: the environment alone ends it if it declares a
            limit, else `DEFAULT_TURN_LIMIT`.
    """
    collector.next_index = 0
    collector.keeps_vectors = False
    collector.max_turns = watched_turns(collector.vector.turn_limit, max_turns)
    plans = [Plan(seed, group=i) for i, seed in enumerate(seeds)]
    episodes = collector.collect(plans, greedy=greedy)
    returns = [episode.team_return for episode in episodes]
    return EvaluationResult(
        episodes, bootstrap_interval(returns), episode_metrics(episodes), results_by_difficulty(episodes)
    )


def results_by_difficulty(episodes: Sequence[Episode]) -> dict[int, DifficultyResult]:
    """Statistics by the difficulty of the task, of those episodes that tell one."""
    found: dict[int, list[Episode]] = defaultdict(list)
    for episode in episodes:
        told = [info["metric/difficulty"] for info in episode.infos if "metric/difficulty" in info]
        if told:
            found[round(told[0])].append(episode)
    return {difficulty: _statistics(found[difficulty]) for difficulty in sorted(found)}


def _statistics(episodes: Sequence[Episode]) -> DifficultyResult:
    told = [[info["metric/success"] for info in each.infos if "metric/success" in info] for each in episodes]
    successes = [float(max(values) == 1.0) for values in told if values]
    return DifficultyResult(
        len(episodes),
        bootstrap_interval([episode.team_return for episode in episodes]),
        bootstrap_interval(successes) if successes else None,
    )


NUM_SHOWN = 4
"""Episodes per way of playing in the table of transcripts: the best, the worst, and the first others."""


@dataclass(frozen=True)
class Evaluated:
    """An evaluation on held-out tasks, as loggers show it; what is read is computed then."""

    metrics: Mapping[str, float]
    """Those of evaluation.jsonl: `evaluation/sampled/return`, …"""
    episodes: Mapping[str, Sequence[Episode]]
    """Episodes by the way of playing, "sampled" or "greedy"."""
    make_env: Callable[[], Any]
    """Makes the environment that was played, for the picture."""
    picture: Path
    """File for the picture."""

    @property
    def returns(self) -> dict[str, list[float]]:
        """Team return of each episode, by the way of playing."""
        return {name: [episode.team_return for episode in played] for name, played in self.episodes.items()}

    @property
    def transcripts(self) -> list[tuple[str, int, float, str, str]]:
        """Rows of a table: way of playing, seed, team return, agent, and all that it read and wrote."""
        return [row for name, played in self.episodes.items() for each in _shown(played) for row in _rows(name, each)]

    @cached_property
    def animation(self) -> Path | None:
        """GIF of the best sampled episode's world. None: the world has no picture."""
        best = max(self.episodes["sampled"], key=lambda episode: episode.team_return)
        return _draw(best, self.make_env, self.picture)


def _draw(episode: Episode, make_env: Callable[[], Any], path: Path) -> Path | None:
    """A GIF of an episode's world, which is played again from its seed and actions; None where it draws no pictures."""
    env = make_env()
    try:
        world = env.unwrapped
        if not isinstance(world, TextParallelEnv) or "rgb_array" not in world.metadata["render_modes"]:
            return None
        world.render_mode = "rgb_array"
        env.reset(seed=episode.seed)
        frames = [env.render()]
        for time in range(episode.num_turns):
            turns = {agent: turn for agent, track in episode.tracks.items() for turn in track if turn.time == time}
            env.step({agent: turn.completion.action for agent, turn in turns.items()})
            frames.append(env.render())
    finally:
        env.close()
    path.parent.mkdir(exist_ok=True)
    with replaced(path) as new:
        write_gif(new, frames)
    return path


def _shown(episodes: Sequence[Episode]) -> list[Episode]:
    ranked = sorted(episodes, key=lambda episode: episode.team_return)
    ends = [ranked[-1], ranked[0]] if len(ranked) > 1 else ranked
    return ends + [episode for episode in episodes if all(episode is not end for end in ends)][: NUM_SHOWN - len(ends)]


def _rows(name: str, episode: Episode) -> list[tuple[str, int, float, str, str]]:
    finals = {agent: text for agent, text in episode.finals.items() if isinstance(text, str)}
    return [(name, episode.seed, episode.team_return, agent, str(text)) for agent, text in finals.items()]
