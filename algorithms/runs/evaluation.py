"""Evaluation on held-out tasks: fixed seeds, bootstrap intervals, transcripts and an animation."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..._ownership import replaced
from ...envs.core import TextParallelEnv
from ...envs.games.pictures import write_gif
from ...envs.registration.turn_limit import watched_turns
from ..memory.devices import check_counts
from ..rollout.collector import Plan, RolloutCollector
from ..rollout.episode import Episode
from ..rollout.intervals import Interval, bootstrap_interval
from ..rollout.summary import agent_returns, episode_metrics

FIRST_EVALUATION_SEED = 2**31  # training uses smaller seeds


@dataclass(frozen=True, slots=True)
class DifficultyResult:
    """Statistics of the episodes on tasks of one difficulty (`metric/difficulty`)."""

    num_episodes: int
    team_return: Interval  # Mean undiscounted team return, with its 95 % bootstrap interval over these episodes
    success: Interval | None  # Fraction of episodes in which `metric/success` is 1 in a turn. None: not reported.

    def numbers(self) -> dict[str, float]:
        """Return the statistics as a dict. The keys are the names that a run logs."""
        intervals = {"return": self.team_return, **({} if self.success is None else {"success": self.success})}
        found: dict[str, float] = {}
        for name, interval in intervals.items():
            found |= {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
        return {"num_episodes": float(self.num_episodes), **found}


@dataclass(frozen=True, slots=True, repr=False)
class EvaluationResult:
    """Episodes of a team on held-out tasks, with statistics."""

    episodes: Sequence[Episode]  # Episodes in the order of their seeds. Vector observations are replaced by None.
    team_return: Interval  # Mean undiscounted team return, with its 95 % bootstrap interval over episodes
    metrics: dict[str, float]  # Means over the episodes, with the same names as the metrics of training
    by_difficulty: Mapping[int, DifficultyResult]  # Keys: difficulties, in ascending order; empty if none is reported
    seconds_per_reply: float = math.nan  # Wall time of decoding a batch, divided by its number of replies
    agent_returns: Mapping[str, Interval] = field(default_factory=dict)
    """Mean undiscounted return of each agent, with its 95 % interval. Empty if the agents have common interests."""

    @property
    def costs(self) -> dict[str, float]:
        """Seconds and tokens per reply. nan: not measured, or agents write no tokens."""
        tokens = self.metrics.get("completion_tokens", math.nan)
        return {"seconds_per_reply": self.seconds_per_reply, "tokens_per_reply": tokens}

    def __repr__(self) -> str:
        return f"EvaluationResult({len(self.episodes)} episodes, return {self.team_return})"

    @property
    def num_cut(self) -> int:
        return sum(episode.is_cut for episode in self.episodes)

    def cut_line(self) -> str:
        most = max(episode.num_turns for episode in self.episodes)
        return (
            f"{self.num_cut} of {len(self.episodes)} episodes were truncated after {most:,} joint turns; "
            "change the limit with --eval-max-turns"
        )

    @property
    def best(self) -> Episode:
        return max(self.episodes, key=lambda episode: episode.team_return)

    @property
    def worst(self) -> Episode:
        return min(self.episodes, key=lambda episode: episode.team_return)


def evaluate(
    collector: RolloutCollector, num_episodes: int, *, greedy: bool, max_turns: int | None = None
) -> EvaluationResult:
    seeds = range(FIRST_EVALUATION_SEED, FIRST_EVALUATION_SEED + num_episodes)
    return evaluate_on(collector, seeds, greedy=greedy, max_turns=max_turns)


def evaluate_on(
    collector: RolloutCollector, seeds: Sequence[int], *, greedy: bool, max_turns: int | None = None
) -> EvaluationResult:
    """Play one episode per seed, in order. Repeated calls give the same episodes.

    Args:
        collector: collector on held-out tasks; its episode index is reset, so that sampling repeats.
        seeds: seed of each episode.
        greedy: decode greedily. Symmetric agents can then block each other, so also report sampled returns.
        max_turns: joint turns after which an episode is truncated. None: the environment's limit, or
            `DEFAULT_TURN_LIMIT` if the environment has no limit.
    """
    check_counts({"the number of episodes": len(seeds)})
    collector.next_index = 0
    collector.keeps_vectors = False
    collector.max_turns = watched_turns(collector.vector.turn_limit, max_turns)
    plans = [Plan(seed, group=i) for i, seed in enumerate(seeds)]
    earlier = collector.seconds["decoding"]
    episodes = collector.collect(plans, greedy=greedy)
    num_replies = sum(len(track) for episode in episodes for track in episode.tracks.values())
    returns = [episode.team_return for episode in episodes]
    interests = collector.vector.interests
    return EvaluationResult(
        episodes,
        bootstrap_interval(returns),
        episode_metrics(episodes, interests=interests),
        results_by_difficulty(episodes),
        (collector.seconds["decoding"] - earlier) / max(1, num_replies),
        {agent: bootstrap_interval(own) for agent, own in agent_returns(episodes, interests).items()},
    )


def evaluation_metrics(name: str, result: EvaluationResult) -> dict[str, float]:
    interval = result.team_return
    metrics = {"return": interval.value, "return_low": interval.low, "return_high": interval.high}
    if result.num_cut:
        metrics["cut_episodes"] = float(result.num_cut)
    for agent, own in result.agent_returns.items():
        metrics |= {f"return/{agent}_low": own.low, f"return/{agent}_high": own.high}
    known = ("reward/", "metric/", "return/", "welfare/")
    metrics |= {k: v for k, v in result.metrics.items() if k.startswith(known)}
    for difficulty, found in result.by_difficulty.items():
        metrics |= {f"difficulty/{difficulty}/{key}": value for key, value in found.numbers().items()}
    return {f"evaluation/{name}/{key}": value for key, value in metrics.items()}


def agents_in(metrics: Mapping[str, Any]) -> list[str]:
    """Return the agents that have own returns in a row of evaluation.jsonl. Empty if they have common interests."""
    start, end = "evaluation/sampled/return/", "_low"
    return [name[len(start) : -len(end)] for name in metrics if name.startswith(start) and name.endswith(end)]


def interval_in(metrics: Mapping[str, Any], name: str) -> Interval:
    """Return a mean with its interval from a row of evaluation.jsonl."""
    return Interval(*(metrics[f"{name}{end}"] for end in ("", "_low", "_high")))


def results_by_difficulty(episodes: Sequence[Episode]) -> dict[int, DifficultyResult]:
    """Compute statistics for each value of `metric/difficulty`. Episodes without this metric are left out."""
    found: dict[int, list[Episode]] = defaultdict(list)
    for episode in episodes:
        reported = [info["metric/difficulty"] for info in episode.infos if "metric/difficulty" in info]
        if reported:
            found[round(reported[0])].append(episode)
    return {difficulty: _statistics(found[difficulty]) for difficulty in sorted(found)}


def _statistics(episodes: Sequence[Episode]) -> DifficultyResult:
    reported = [[info["metric/success"] for info in each.infos if "metric/success" in info] for each in episodes]
    successes = [float(max(values) == 1.0) for values in reported if values]
    return DifficultyResult(
        len(episodes),
        bootstrap_interval([episode.team_return for episode in episodes]),
        bootstrap_interval(successes) if successes else None,
    )


@dataclass(frozen=True)
class Evaluated:
    """Results of an evaluation on held-out tasks, for loggers. Properties are computed on access."""

    metrics: Mapping[str, float]  # Metrics of evaluation.jsonl: `evaluation/sampled/return`, …
    episodes: Mapping[str, Sequence[Episode]]  # Episodes, with the decoding modes "sampled" and "greedy" as keys
    make_env: Callable[[], Any]  # Function that makes the environment, for the animation
    picture: Path  # File to which the animation is written
    costs: Mapping[str, float] = field(default_factory=dict)  # Seconds and tokens per sampled reply

    @property
    def returns(self) -> dict[str, list[float]]:
        return {name: [episode.team_return for episode in played] for name, played in self.episodes.items()}

    @property
    def transcripts(self) -> list[tuple[str, int, float, str, str]]:
        """Table rows: decoding mode, seed, team return, agent, and the agent's transcript."""
        return [
            (name, episode.seed, episode.team_return, agent, str(text))
            for name, played in self.episodes.items()
            for episode in _shown(played)
            for agent, text in episode.finals.items()
            if isinstance(text, str)
        ]

    @cached_property
    def animation(self) -> Path | None:
        """GIF of the best sampled episode. None: the environment does not render."""
        best = max(self.episodes["sampled"], key=lambda episode: episode.team_return)
        return _draw(best, self.make_env, self.picture)


def _draw(episode: Episode, make_env: Callable[[], Any], path: Path) -> Path | None:
    with closing(make_env()) as env:
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
    path.parent.mkdir(exist_ok=True)
    with replaced(path) as new:
        write_gif(new, frames)
    return path


def _shown(episodes: Sequence[Episode]) -> list[Episode]:
    """Return 4 episodes for the table of transcripts: the best, the worst, and the first 2 of the other episodes."""
    ranked = sorted(episodes, key=lambda episode: episode.team_return)
    ends = [ranked[-1], ranked[0]] if len(ranked) > 1 else ranked
    return ends + [episode for episode in episodes if all(episode is not end for end in ends)][: 4 - len(ends)]
