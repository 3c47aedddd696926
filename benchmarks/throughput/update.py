"""Update speed: seconds by phase, beside one sequence at a time, and by size.

CPU seconds of the process, or wall seconds on a GPU; workloads take turns, medians over the rounds. Other work on the
machine moves all figures of a table together, so ratios mean more than rates.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from ..._ownership import owned
from ...agents.config import ModelConfig
from ...agents.core import Completion
from ...agents.language.policy import LanguagePolicy
from ...algorithms.learning.trainer import Trainer
from ...algorithms.registry import algorithm_spec
from ...algorithms.runs.assembly.experiment import Experiment
from ..markdown import markdown_table
from .synthetic import synthetic_trainer
from .timing import Spread, Stopwatch, clock_of, rates, ratio_of, timed_rounds, unit_of

ENVS, TURNS, AGENTS = (4, 8, 16, 32), (1, 2, 4, 8), (1, 2, 4, 8)
FIGURE = "growth.png"


@dataclass(frozen=True, slots=True)
class GrowthRow:
    """Seconds of one IAC update at one size."""

    what: str
    count: int
    seconds: float


def tables(env: str, repeats: int, folder: Path | None = None, device: str = "cpu") -> str:
    """All measurements of updates as Markdown; with a folder, the growth of the cost is drawn there."""
    grown = growth(repeats, device)
    if folder is not None:
        with owned(folder, FIGURE) as new:
            growth_figure(grown, new, device)
    parts = [
        phase_table(measure(env, repeats, device=device), env, device),
        alone_table(against_one_at_a_time(repeats, device), device),
        growth_table(grown, device),
    ]
    return "\n\n".join(parts)


def against_one_at_a_time(repeats: int, device: str = "cpu") -> list[tuple[str, list[float], list[float]]]:
    """Sampled tokens per second of each round, forward and backward: ours, and one sequence at a time."""
    found = []
    for name, num_envs, num_turns, num_generations in (("4 completions per prompt", 32, 1, 4), ("6 turns", 8, 6, 1)):
        trainer = synthetic_trainer(
            "magrpo" if num_generations > 1 else "mareinforce",
            num_envs,
            num_turns=num_turns,
            max_new_tokens=32,
            device=device,
            **({"num_generations": num_generations} if num_generations > 1 else {}),
        )
        agent, learner = next(iter(trainer.learners.items()))
        policy = learner.policy
        assert isinstance(policy, LanguagePolicy)
        tracks = [
            tuple(turn.completion for turn in episode.tracks[agent]) for episode in trainer.source.next(0).episodes
        ]
        measured = rates(
            {
                "ours": partial(_batched, policy, tracks, learner.max_tokens),
                "alone": partial(_alone, policy, tracks),
            },
            repeats,
            clock=clock_of(device),
        )
        found.append((name, measured["ours"], measured["alone"]))
    return found


def growth(repeats: int, device: str = "cpu") -> list[GrowthRow]:
    """Cost of IAC's update by number of environments, turns and agents; those not varied stay at 8, 1 and 2."""
    rows = []
    for what, counts, argument in (
        ("environments", ENVS, "num_envs"),
        ("turns", TURNS, "num_turns"),
        ("agents", AGENTS, "num_agents"),
    ):
        updates = {
            str(count): synthetic_trainer(
                "iac",
                **({"num_envs": 8} | {argument: count}),
                max_new_tokens=24,
                device=device,
                use_separate_critic=False,
            ).step
            for count in counts
        }
        rounds = timed_rounds(updates, repeats, clock=clock_of(device))
        rows += [GrowthRow(what, count, _median_seconds(rounds[str(count)])) for count in counts]
    return rows


def _median_seconds(rounds: Sequence[tuple[object, float]]) -> float:
    return statistics.median(seconds for _, seconds in rounds)


def _batched(policy: LanguagePolicy, tracks: Sequence[Sequence[Completion]], max_tokens: int) -> int:
    for batch in policy.batches(tracks, range(len(tracks)), max_tokens):
        torch.autograd.backward(policy.evaluate([tracks[i] for i in batch]).logprobs.sum())
    return _num_sampled(tracks)


def _alone(policy: LanguagePolicy, tracks: Sequence[Sequence[Completion]]) -> int:
    """Forward and backward pass of one sequence per turn, with logits of all its tokens."""
    for track in tracks:
        for turn in track:
            torch.autograd.backward(_turn_logprob(policy.language_model.base, turn))
    return _num_sampled(tracks)


def _turn_logprob(model: Any, turn: Completion) -> Tensor:
    prompt, sampled = (
        torch.from_numpy(ids).to(model.device) for ids in (turn.tokens.prompt_ids, turn.tokens.completion_ids)
    )
    logits = model(input_ids=torch.cat([prompt, sampled])[None], use_cache=False).logits[0]
    logprobs = torch.log_softmax(logits[len(prompt) - 1 : -1], dim=-1)
    return logprobs.gather(1, sampled[:, None]).sum()


def _num_sampled(tracks: Sequence[Sequence[Completion]]) -> int:
    return sum(len(turn.logprobs) for track in tracks for turn in track)


def phase_table(rows: Sequence[PhaseRow], env: str, device: str = "cpu") -> str:
    """Seconds of an update by phase, and their ratio to MAGRPO's, as Markdown."""
    cells = []
    for row in rows:
        phases = (row.collect, row.value, row.critic, row.forward, row.backward, row.optimizer, row.total)
        ratio = row.total / rows[0].total
        cells.append((row.algorithm, *(f"{seconds:.3f}" for seconds in phases), f"{ratio:.2f}x"))
    header = ("", "collect", "value", "critic", "forward", "backward", "optimizer", "update", "ratio")
    title = f"{env}, {EPISODES} episodes per update, {unit_of(device)}s:"
    return f"{title}\n\n{markdown_table(header, cells)}"


def alone_table(rows: Sequence[tuple[str, Sequence[float], Sequence[float]]], device: str = "cpu") -> str:
    """Scoring with a gradient beside one sequence at a time, as Markdown."""
    cells = [
        (name, Spread.of(ours).shown(), Spread.of(alone).shown(), f"{ratio_of(ours, alone).shown('.2f')}x")
        for name, ours, alone in rows
    ]
    table = markdown_table(("", "ours", "one sequence at a time, all logits", "ratio"), cells)
    return f"Forward and backward pass, sampled tokens per {unit_of(device)}:\n\n{table}"


def growth_table(rows: Sequence[GrowthRow], device: str = "cpu") -> str:
    """Cost by size as Markdown; one that grows linearly has the same cost per item."""
    cells = [(row.what, str(row.count), f"{row.seconds:.3f}", f"{row.seconds / row.count:.4f}") for row in rows]
    table = markdown_table(("", "count", f"{unit_of(device)}s", f"{unit_of(device)}s per item"), cells)
    return f"IAC's update by size:\n\n{table}"


def growth_figure(rows: Sequence[GrowthRow], file: Path, device: str = "cpu") -> Path:
    """Draw the cost by environments, turns and agents, one panel each, with a straight line through the ends."""
    names = list(dict.fromkeys(row.what for row in rows))
    figure = Figure(figsize=(9, 3), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        points = [(row.count, row.seconds) for row in rows if row.what == name]
        axes.plot(*zip(points[0], points[-1], strict=True), color="0.7", linestyle="--", label="straight line")
        axes.plot(*zip(*points, strict=True), marker="o", label="measured")
        axes.set(xlabel=name, ylabel=f"{unit_of(device)}s" if name == names[0] else "", ylim=(0, None), xlim=(0, None))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(file, dpi=120)
    return file


EPISODES = 32
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "magrpo": {"num_generations": 4},
    "maac": {"critic_warmup": 0},
    "iac": {"use_separate_critic": False},
}

PHASES = ("collect", "value", "critic", "forward", "optimizer")


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """Seconds of one update by phase, medians over updates."""

    algorithm: str
    total: float
    collect: float
    value: float  # the critics value what was collected
    critic: float  # the critics learn
    forward: float  # forward pass of the policies
    optimizer: float  # optimizer steps of the policies

    @property
    def backward(self) -> float:
        """Seconds outside the other phases: the policies' backward pass, and all work between phases."""
        return self.total - self.collect - self.value - self.critic - self.forward - self.optimizer


def measure(env: str, repeats: int, max_new_tokens: int = 48, device: str = "cpu") -> list[PhaseRow]:
    """Measure updates of each algorithm in turn, all of equally many episodes."""
    updates = {name: _clocked_update(_trainer(name, env, max_new_tokens, device), device) for name in SETTINGS}
    return [
        PhaseRow(
            name,
            statistics.median(total for _, total in rounds),
            *(statistics.median(seconds.get(phase, 0.0) for seconds, _ in rounds) for phase in PHASES),
        )
        for name, rounds in timed_rounds(updates, repeats, clock=clock_of(device)).items()
    ]


def _trainer(name: str, env: str, max_new_tokens: int, device: str) -> Trainer:
    config_class = algorithm_spec(name).config
    # The stopwatch counts the phases of one thread.
    config = config_class(rollout_buffer_size=EPISODES, side_by_side=False, **SETTINGS[name])
    model = ModelConfig(max_new_tokens=max_new_tokens, device=device)
    return Experiment(algorithm=name, config=config, env=env, model=model).make_trainer()


def _clocked_update(trainer: Trainer, device: str) -> Callable[[], dict[str, float]]:
    """An update that returns its seconds by phase."""
    stopwatch = Stopwatch(clock_of(device))
    stopwatch.watch("collect", trainer.source, "next")
    for critic in trainer.unique_critics:
        stopwatch.watch("value", critic, "values")
        stopwatch.watch("critic", critic, "_update")
    for learner in trainer.unique_learners:
        stopwatch.watch("forward", learner.policy, "evaluate")
        stopwatch.watch("optimizer", learner.optimizer, "clip")
        stopwatch.watch("optimizer", learner.optimizer, "step")

    def update() -> dict[str, float]:
        stopwatch.seconds.clear()
        trainer.step()
        return dict(stopwatch.seconds)

    return update
