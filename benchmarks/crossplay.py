"""Cross-play: returns of teams whose agents come from different runs, [R, R] for R runs.

Agents that learned a skill reach the same return with partners of another run. Agents that learned a convention do so
only if the convention is the same in both runs.

With common interests, the first agent changes, and returns are those of the team. With other interests, each agent
changes in turn, and returns are those of the changed agent, averaged over these seats.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from pettingzoo import ParallelEnv

from .._progress import phase
from ..algorithms.rollout.intervals import Floats, Interval, bootstrap_indices, interval_of
from ..algorithms.runs.api import Run
from ..envs.core import declared_interests
from ..envs.players import HELD_OUT, PLAYERS, exploits_of, partners_of
from .errors import UserError
from .markdown import markdown_table

NUM_RESAMPLES = 5_000


@dataclass(frozen=True)
class CrossPlay:
    """Mean returns of R runs with N agents in S seats, and with scripted partners. Intervals: bootstrap over runs."""

    names: Sequence[str]  # of the runs
    starts: Sequence[str]  # initial models of the runs
    partners: Sequence[str]  # names of scripted partners
    returns: Floats  # mean returns, [R, R]: one agent from the row's run, and all other agents from the column's run
    scripted: Floats  # mean returns, [R, len(partners)]: one agent from the row's run, all other agents scripted
    agents: Sequence[str] = ()
    seats: Sequence[str] = ()  # agents that came from the row's run, one at a time; returns are means over seats
    payoffs: Floats | None = None  # mean returns of each agent, [S, R, R, N]. None: common interests

    def self_play(self) -> Interval:
        """Mean return of teams whose agents come from the same run."""
        return self._over_runs(lambda chosen: self.returns[chosen, chosen].mean())

    def cross_play(self, *, is_same_start: bool | None = None) -> Interval:
        """Mean return of pairs of different runs. The bootstrap resamples both runs of a pair.

        Args:
            is_same_start: only pairs with equal (True) or different (False) initial models. None: all pairs.
        """
        starts = np.array(self.starts)
        alike = starts[:, None] == starts[None, :]
        counts = np.ones_like(alike) if is_same_start is None else alike == is_same_start
        return self._over_runs(lambda chosen: _mean_apart(np.where(counts, self.returns, np.nan), chosen))

    def gap(self) -> Interval:
        """Self-play return minus cross-play return: the loss because runs learned different conventions."""
        return self._over_runs(lambda chosen: self.returns[chosen, chosen].mean() - _mean_apart(self.returns, chosen))

    def with_partner(self, number: int) -> Interval:
        return self._over_runs(lambda chosen: self.scripted[chosen, number].mean())

    def _over_runs(self, estimate: Callable[[np.ndarray], float]) -> Interval:
        everyone = np.arange(len(self.names))
        draws = bootstrap_indices(len(everyone), 1, NUM_RESAMPLES)[..., 0]
        samples = np.array([estimate(chosen) for chosen in draws])
        return interval_of(estimate(everyone), samples[np.isfinite(samples)], (len(everyone), 1))


def _mean_apart(returns: Floats, chosen: np.ndarray) -> float:
    """Mean of the finite returns of pairs of different runs in `chosen`. nan: no pair has a finite return."""
    pairs = returns[chosen[:, None], chosen[None, :]]
    kept = pairs[(chosen[:, None] != chosen[None, :]) & np.isfinite(pairs)]
    return float(kept.mean()) if kept.size else float("nan")


def cross_play(
    runs: Sequence[Run],
    *,
    num_episodes: int,
    greedy: bool = False,
    partners: Sequence[str] = (),
    seats: Sequence[str] = (),
    on_pair: Callable[[str, str, float], None],
) -> CrossPlay:
    """Evaluate one agent of each run with the other agents of each run and with scripted partners, on held-out tasks.

    Args:
        runs: runs with the same environment and arguments.
        partners: names of scripted players; "training" and "held-out" are all partners of the environment of this kind.
        seats: agents that come from the first run of a pair, one at a time. Empty: the first agent if the interests are
            common, else all agents.
        on_pair: callback after each pair: name of the agent's run, name of its partners, mean return.

    Raises:
        UserError: if there are fewer than two runs, different environments, or unknown scripted players or seats.
    """
    if len(runs) < 2:
        raise UserError("cross-play needs at least two runs with different seeds; add a run")
    for run in runs[1:]:
        _refuse_difference(runs[0], run)
    agents = list(runs[0].policies)
    if len(agents) < 2:
        raise UserError(f"cross-play needs at least two agents, and {runs[0].experiment.env} has {len(agents)}")
    with closing(runs[0].experiment.make_env()) as env:
        is_common = declared_interests(env) == "common"
        partners = _chosen_partners(env, partners)
    seats = list(seats) or (agents[:1] if is_common else agents)
    if strangers := [seat for seat in seats if seat not in agents]:
        raise UserError(f"seat {strangers[0]!r} is not an agent; choose from {', '.join(agents)}")
    names = [str(run.directory) for run in runs]
    payoffs = np.zeros((len(seats), len(runs), len(runs), len(agents)))
    scripted = np.zeros((len(seats), len(runs), len(partners)))
    for (place, seat), (row, run) in product(enumerate(seats), enumerate(runs)):
        name = names[row] if len(seats) == 1 else f"{names[row]} as {seat}"
        for column, other in enumerate(runs):
            mixed = replace(run, policies={**other.policies, seat: run.policies[seat]})
            with phase(f"{name} with {names[column]}"):
                result = mixed.evaluate(num_episodes, greedy=greedy)
            own = result.agent_returns  # empty if the interests are common
            payoffs[place, row, column] = [own.get(agent, result.team_return).value for agent in agents]
            on_pair(name, names[column], own.get(seat, result.team_return).value)
        for column, partner in enumerate(partners):
            others = {agent: partner for agent in agents if agent != seat}
            with phase(f"{name} with {partner}"):
                result = run.evaluate(num_episodes, greedy=greedy, partners=others)
            scripted[place, row, column] = result.team_return.value  # partners are not in the team
            on_pair(name, partner, scripted[place, row, column])
    starts = [run.experiment.model.model for run in runs]
    returns = np.mean([payoffs[place, ..., agents.index(seat)] for place, seat in enumerate(seats)], axis=0)
    own_payoffs = None if is_common else payoffs
    return CrossPlay(names, starts, partners, returns, scripted.mean(0), agents, seats, own_payoffs)


def _refuse_difference(first: Run, other: Run) -> None:
    """Raise `UserError` if the environments of two runs have different ids or arguments."""
    old, new = ({"env": run.experiment.env, **run.experiment.env_kwargs} for run in (first, other))
    if names := [name for name in old | new if old.get(name) != new.get(name)]:
        told = "; ".join(f"{name}: {old.get(name)!r} and {new.get(name)!r}" for name in names)
        chosen = old | new if old["env"] == new["env"] else old
        arguments = [f"{name}={json.dumps(value)}" for name, value in chosen.items() if name != "env"]
        option = ["--env-kwargs", *arguments] if arguments else []
        raise UserError(
            f"the environments of {first.directory} and {other.directory} differ ({told}); to play all runs in one "
            f"environment, add {shlex.join(['--env', first.experiment.env, *option])}"
        )


def _chosen_partners(env: ParallelEnv[str, Any, Any], names: Sequence[str]) -> list[str]:
    """Return the names of scripted players, with "training" and "held-out" replaced by the partners of this kind."""
    defined = partners_of(env)
    held_out = [name for name in defined if name.endswith(HELD_OUT)]
    kinds = {"training": [name for name in defined if name not in held_out], "held-out": held_out}
    players = {name: [name] for name in (*PLAYERS, *exploits_of(env), *defined)}
    players |= {kind: found for kind, found in kinds.items() if found}
    if unknown := [name for name in names if name not in players]:
        raise UserError(f"scripted player {unknown[0]!r} does not exist; choose one of {', '.join(players)}")
    return list(dict.fromkeys(each for name in names for each in players[name]))


def page(found: CrossPlay) -> str:
    seats = ", ".join(found.seats) or "agent 0"
    whose = "return" if found.payoffs is None else "return of the row's run"
    if len(found.seats) > 1:
        whose += ", averaged over its seats,"
    header = ["", *found.names, *found.partners]
    values = np.concatenate([found.returns, found.scripted], axis=1)
    rows = [[name, *(f"{value:.3f}" for value in row)] for name, row in zip(found.names, values, strict=True)]
    means = [["self-play", str(found.self_play())], ["cross-play", str(found.cross_play())]]
    if len(set(found.starts)) > 1:
        means += [["cross-play, same start", str(found.cross_play(is_same_start=True))]]
        means += [["cross-play, different starts", str(found.cross_play(is_same_start=False))]]
    means += [["self-play minus cross-play", str(found.gap())]]
    means += [[f"with {name} partners", str(found.with_partner(number))] for number, name in enumerate(found.partners)]
    return (
        "# Cross-play\n\n"
        f"Mean held-out {whose} with {seats} of the row's run and the other agents of the column's run.\n\n"
        f"{markdown_table(header, rows)}\n\n"
        "Means over runs, with 95 % bootstrap intervals over the runs.\n\n"
        f"{markdown_table(['', 'return'], means)}\n"
        f"{_payoff_tables(found)}"
    )


def _payoff_tables(found: CrossPlay) -> str:
    """Format the returns of all agents in each pair of runs: one table per seat. Empty if the interests are common."""
    if found.payoffs is None:
        return ""
    text = f"\nMean returns of {' / '.join(found.agents)}.\n"
    for seat, payoffs in zip(found.seats, found.payoffs, strict=True):
        cells = [[" / ".join(f"{value:.3f}" for value in cell) for cell in row] for row in payoffs]
        rows = [[name, *row] for name, row in zip(found.names, cells, strict=True)]
        text += f"\n{markdown_table([f'{seat} from the row', *found.names], rows)}\n"
    return text


def draw(found: CrossPlay, file: Path) -> None:
    values = np.concatenate([found.returns, found.scripted], axis=1)
    figure = Figure(figsize=(1.6 + 0.7 * values.shape[1], 1.4 + 0.6 * values.shape[0]), layout="constrained")
    axes = figure.subplots()
    low, high = min(0.0, float(values.min())), max(1.0, float(values.max()))
    image = axes.imshow(values, vmin=low, vmax=high, cmap="viridis")
    names = [Path(name).name for name in found.names]
    axes.set_xticks(range(values.shape[1]), [*names, *found.partners], rotation=30, ha="right")
    axes.set_yticks(range(len(names)), names)
    axes.set(
        xlabel="other agents",
        ylabel=", ".join(found.seats) or "agent 0",
        title=f"self {found.self_play()}\ncross {found.cross_play()}",
    )
    axes.title.set_fontsize(9)
    for (row, column), value in np.ndenumerate(values):
        ink = "k" if value > low + 0.6 * (high - low) else "w"  # viridis ends in yellow
        axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=ink, fontsize=8)
    figure.colorbar(image, ax=axes, label="mean return")
    figure.savefig(file, dpi=120)
