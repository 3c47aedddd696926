"""Update speed: where its time goes, beside one sequence at a time, how it grows, and beside comlrl.

    collm throughput update

CPU seconds of the process, contestants taking turns, medians over the repeats. Other work on the machine moves all
figures of a table together, so ratios mean more than rates.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from ..agents.core import Completion
from ..agents.language import LanguagePolicy
from . import throughput_reference, update_phases
from .babble import babble_trainer
from .contests import race

ENVS, TURNS, AGENTS = (4, 8, 16, 32), (1, 2, 4, 8), (1, 2, 4, 8)
FIGURE = "growth.png"


@dataclass(frozen=True, slots=True)
class GrowthRow:
    """CPU seconds of one IAC update at one size."""

    what: str
    count: int
    seconds: float


def tables(env: str, repeats: int, folder: Path | None = None) -> str:
    """All of this module's measurements, as Markdown; with a folder, how the cost grows is drawn there."""
    grown = growth(repeats)
    if folder is not None:
        growth_figure(grown, folder / FIGURE)
    parts = [
        phase_table(update_phases.measure(env, repeats), env),
        alone_table(against_one_at_a_time(repeats)),
        growth_table(grown),
    ]
    reason = throughput_reference.missing()
    parts.append(f"Not compared with comlrl: {reason}." if reason else reference_table(repeats))
    return "\n\n".join(parts)


def against_one_at_a_time(repeats: int) -> list[tuple[str, float, float]]:
    """Sampled tokens per CPU second through forward and backward pass: ours, and one sequence at a time."""
    found = []
    for name, num_envs, num_turns, num_generations in (("4 of a prompt", 32, 1, 4), ("6 turns", 8, 6, 1)):
        trainer = babble_trainer(
            "magrpo" if num_generations > 1 else "mareinforce",
            num_envs,
            num_turns=num_turns,
            max_new_tokens=32,
            **({"num_generations": num_generations} if num_generations > 1 else {}),
        )
        agent, learner = next(iter(trainer.learners.items()))
        policy = learner.policy
        assert isinstance(policy, LanguagePolicy)
        tracks = [tuple(turn.completion for turn in episode.tracks[agent]) for episode in trainer._collect()]
        rates = race(
            {
                "ours": partial(_batched, policy, tracks, learner.max_tokens),
                "alone": partial(_alone, policy, tracks),
            },
            repeats,
        )
        found.append((name, rates["ours"], rates["alone"]))
    return found


def growth(repeats: int) -> list[GrowthRow]:
    """IAC's update at growing numbers of environments, turns and agents; the others stay at 8, 1 and 2."""
    rows = []
    for what, counts, argument in (
        ("environments", ENVS, "num_envs"),
        ("turns", TURNS, "num_turns"),
        ("agents", AGENTS, "num_agents"),
    ):
        trainers = {
            count: babble_trainer(
                "iac", **({"num_envs": 8} | {argument: count}), max_new_tokens=24, use_separate_critic=False
            )
            for count in counts
        }
        seconds: dict[int, list[float]] = {count: [] for count in counts}
        for repeat in range(repeats + 1):
            for count, trainer in trainers.items():
                start = time.process_time()
                trainer.step()
                if repeat:
                    seconds[count].append(time.process_time() - start)
        rows += [GrowthRow(what, count, statistics.median(seconds[count])) for count in counts]
    return rows


def _batched(policy: LanguagePolicy, tracks: Sequence[Sequence[Completion]], max_tokens: int) -> int:
    for batch in policy.batches(tracks, range(len(tracks)), max_tokens):
        torch.autograd.backward(policy.evaluate([tracks[i] for i in batch]).logprobs.sum())
    return _num_sampled(tracks)


def _alone(policy: LanguagePolicy, tracks: Sequence[Sequence[Completion]]) -> int:
    """Each turn a sequence of its own, logits of all its tokens."""
    for track in tracks:
        for turn in track:
            torch.autograd.backward(_turn_logprob(policy.language_model.base, turn))
    return _num_sampled(tracks)


def _turn_logprob(model: Any, turn: Completion) -> Tensor:
    prompt, sampled = torch.from_numpy(turn.trace.prompt_ids), torch.from_numpy(turn.trace.completion_ids)
    logits = model(input_ids=torch.cat([prompt, sampled])[None], use_cache=False).logits[0]
    logprobs = torch.log_softmax(logits[len(prompt) - 1 : -1], dim=-1)
    return logprobs.gather(1, sampled[:, None]).sum()


def _num_sampled(tracks: Sequence[Sequence[Completion]]) -> int:
    return sum(len(turn.logprobs) for track in tracks for turn in track)


def phase_table(rows: Sequence[update_phases.PhaseRow], env: str) -> str:
    """CPU seconds of an update by phase, and how many times MAGRPO's."""
    lines = [
        f"{env}, {update_phases.EPISODES} episodes an update, CPU seconds:",
        "",
        "| | collect | value | critic | forward | backward | optimizer | update | ratio |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        phases = (row.collect, row.value, row.critic, row.forward, row.backward, row.optimizer, row.total)
        cells = [f"{seconds:.3f}" for seconds in phases]
        lines.append(f"| {row.algorithm} | {' | '.join(cells)} | {row.total / rows[0].total:.2f}x |")
    return "\n".join(lines)


def alone_table(rows: Sequence[tuple[str, float, float]]) -> str:
    """Scoring with a gradient, beside one sequence at a time."""
    lines = [
        "Forward and backward pass, sampled tokens per CPU second:",
        "",
        "| | ours | one sequence at a time, all logits | ratio |",
        "|---|---|---|---|",
    ]
    lines += [f"| {name} | {ours:,.0f} | {alone:,.0f} | {ours / alone:.2f}x |" for name, ours, alone in rows]
    return "\n".join(lines)


def growth_table(rows: Sequence[GrowthRow]) -> str:
    """Cost by size; a linear one has the same cost for each."""
    lines = ["IAC's update by size:", "", "| | count | CPU seconds | for each |", "|---|---|---|---|"]
    lines += [f"| {row.what} | {row.count} | {row.seconds:.3f} | {row.seconds / row.count:.4f} |" for row in rows]
    return "\n".join(lines)


def growth_figure(rows: Sequence[GrowthRow], file: Path) -> Path:
    """A panel each for environments, turns and agents, with a straight line through the ends."""
    names = list(dict.fromkeys(row.what for row in rows))
    figure = Figure(figsize=(9, 3), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        points = [(row.count, row.seconds) for row in rows if row.what == name]
        axes.plot(*zip(points[0], points[-1], strict=True), color="0.7", linestyle="--", label="straight line")
        axes.plot(*zip(*points, strict=True), marker="o", label="an update")
        axes.set(xlabel=name, ylabel="CPU seconds" if name == names[0] else "", ylim=(0, None), xlim=(0, None))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(file, dpi=120)
    return file


def reference_table(repeats: int) -> str:
    """Whole training steps, joint turns per CPU second."""
    lines = [
        f"Whole training steps, joint turns per CPU second, beside comlrl {throughput_reference.VERSION}:",
        "",
        "| | ours | comlrl | ratio | floor | goal |",
        "|---|---|---|---|---|---|",
    ]
    for contest, ours, theirs in throughput_reference.measure(repeats):
        ratio, floor, goal = f"{ours / theirs:.2f}x", f"{contest.floor:g}x", f"{contest.goal:g}x"
        lines.append(f"| {contest.name} | {ours:.2f} | {theirs:.2f} | {ratio} | {floor} | {goal} |")
    return "\n".join(lines)
