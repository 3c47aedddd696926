"""Measure the noise of advantages and policy gradients of a frozen team in one environment, by critic and trace.

The trace is GAE's lambda. Critics learn from `num_known` episodes until their explained variance stops rising. All
measurements use other episodes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from baselines import (
    explained_by_turn,
    explained_share,
    group_mean_values,
    learned_joint_values,
    learned_own_values,
    returns_to_go,
    table_values,
)
from branching import branched_returns, turn_effects
from noise import GradientSums, effect_correlation, gradient_noise, left_out, relative_variance, traced

from collm._ownership import write_text
from collm.agents.config import ModelConfig
from collm.agents.core import Completion, TrainablePolicy
from collm.algorithms import IACConfig, MAACConfig
from collm.algorithms.learning.trainer import Trainer
from collm.algorithms.rollout.collector import Plan, grouped_plans
from collm.algorithms.rollout.episode import Episode
from collm.algorithms.rollout.intervals import Floats
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.envs.views.privileged import with_truth

CriticName = Literal["none", "constant", "group mean", "own", "joint", "privileged", "ideal table"]
WITHOUT_TRACE: tuple[CriticName, ...] = ("none", "constant", "group mean")
"""Baselines of whole returns. Their values do not predict later rewards, so they are used only with trace 1."""
LEARNED: tuple[CriticName, ...] = ("own", "joint", "privileged", "ideal table")
FIRST_KNOWN_SEED, FIRST_SEED = 2**31 + 2**28, 2**31 + 2**29  # used neither in training nor in evaluation


@dataclass(frozen=True)
class Cell:
    """Frozen team and environment of one measurement."""

    policy: str
    """Name of the frozen team."""
    model: str
    """Models of the team, as `ModelConfig.model`."""
    env: str
    env_kwargs: Mapping[str, Any]
    """Arguments of the environment: horizon, number of agents, feedback, reward."""
    max_new_tokens: int = 8
    """Maximum number of tokens per completion."""
    critic: str = "small"
    """Critic model, as `critic_model_name_or_path`."""

    @property
    def name(self) -> str:
        """Name of the cell's result file, without the suffix."""
        told = "-".join(f"{key}-{value}" for key, value in sorted(self.env_kwargs.items()))
        kind = "" if self.critic == "small" else f"-critic-{self.critic.replace('/', '_')}"
        return f"{self.policy}-{told}{kind}".replace(".", "_")


@dataclass(frozen=True)
class Size:
    """Size of a measurement: numbers of episodes and branches, and values of the trace."""

    num_known: int = 512
    num_groups: int = 16
    group_size: int = 8
    num_branches: int = 2
    num_gradient_groups: int | None = None  # tasks whose episodes' gradients are measured; None: all
    traces: tuple[float, ...] = (0.0, 0.5, 0.9, 1.0)
    seed: int = 0


def measure(cell: Cell, size: Size) -> dict[str, Any]:
    """Return the results of a cell, as stored in its file."""
    joint = _trainer(cell, size, "maac", MAACConfig)
    team = joint.collector.vector.possible_agents
    policies = joint.collector.policies
    known = _played(joint, [Plan(FIRST_KNOWN_SEED + number, group=number) for number in range(size.num_known)])
    seeds = range(FIRST_SEED, FIRST_SEED + size.num_groups)
    episodes = _played(joint, grouped_plans(seeds, size.group_size))
    effects = turn_effects(branched_returns(joint_env(cell), policies, episodes, size.num_branches))
    values = _values(cell, size, joint, known, episodes, team)
    kinds, advantages = _advantages(values, known, episodes, size.traces)
    returns = np.array([episode.team_return for episode in episodes])
    along = np.concatenate([advantages, np.stack([effects] * len(team), axis=1)])  # [V + 2, A, N, T]
    num_measured = len(episodes) // size.num_groups * (size.num_gradient_groups or size.num_groups)
    sums = _sums(policies, episodes[:num_measured], team, along)
    noise = gradient_noise(sums, (len(kinds), len(kinds) + 1))
    groups = [episode.group for episode in episodes]

    def correlation(kind: int) -> Callable[[list[int]], float]:
        return lambda kept: effect_correlation(advantages[kind][:, kept], effects[:, kept])

    rows = [
        {
            "critic": critic,
            "trace": trace,
            "variance": relative_variance(advantages[number], returns),
            "correlation": correlation(number)(list(range(len(episodes)))),
            "left_out": [_finite(each) for each in left_out(correlation(number), groups)],
            "gradient_variance": float(noise.variances[number]),
            "samples": float(noise.samples[number]),
        }
        for number, (critic, trace) in enumerate(kinds)
    ]
    return {
        **asdict(cell),
        "size": asdict(size),
        "num_episodes": len(episodes),
        "return": float(returns.mean()),
        "return_known": float(np.mean([episode.team_return for episode in known])),
        "effect_variance": [
            float(np.mean(a * b) - a.mean() * b.mean()) for a, b in zip(effects[0].T, effects[1].T, strict=True)
        ],
        "explained_share": {name: explained_share(values[name], episodes) for name in LEARNED},
        "explained_variance": {name: explained_by_turn(values[name], episodes) for name in LEARNED},
        "rows": [{key: _finite(value) for key, value in row.items()} for row in rows],
    }


def write_cell(cell: Cell, size: Size, folder: Path) -> Path:
    """Measure a cell and write the results, unless the file exists. Returns the file's path."""
    file = folder / f"{cell.name}.json"
    if not file.is_file():
        found = measure(cell, size)
        write_text(folder, file.name, json.dumps(found, indent=1) + "\n")
    return file


def joint_env(cell: Cell) -> Any:
    """Return the function that makes the cell's environment."""
    return _experiment(cell, Size(), "maac", MAACConfig).make_env


def _experiment(cell: Cell, size: Size, algorithm: str, settings: Any, **config: Any) -> Experiment:
    return Experiment(
        algorithm=algorithm,
        config=settings(
            seed=size.seed,
            critic_model_name_or_path=cell.critic,
            critic_steps=5,
            critic_replay=1,
            rollout_buffer_size=size.num_known,
            **config,
        ),
        env=cell.env,
        env_kwargs=cell.env_kwargs,
        model=ModelConfig(model=cell.model, max_new_tokens=cell.max_new_tokens),
    )


def _trainer(cell: Cell, size: Size, algorithm: str, settings: Any, policies: Any = None, **config: Any) -> Trainer:
    return _experiment(cell, size, algorithm, settings, **config).make_trainer(policies=policies)


def _played(trainer: Trainer, plans: Sequence[Plan]) -> list[Episode]:
    episodes = trainer.collector.collect(plans)
    for policy in trainer.collector.policies.values():
        if isinstance(policy, TrainablePolicy):
            policy.rest()
    return episodes


def _values(
    cell: Cell, size: Size, joint: Trainer, known: Sequence[Episode], episodes: Sequence[Episode], team: Sequence[str]
) -> dict[CriticName, Floats]:
    """Return the values [A, N, T] of each critic."""
    policies = joint.collector.policies
    own = _trainer(cell, size, "iac", IACConfig, policies)
    privileged = _trainer(cell, size, "maac", MAACConfig, policies, critic_input="privileged")
    to_go = np.array([returns_to_go(episode) for episode in known]).mean(axis=0)

    def for_all(values: Floats) -> Floats:
        return np.stack([values] * len(team))

    def told(each: Sequence[Episode]) -> list[Episode]:
        return [_with_truth(cell, episode) for episode in each]

    return {
        "none": np.zeros((len(team), len(episodes), len(to_go))),
        "constant": for_all(np.tile(to_go, (len(episodes), 1))),
        "group mean": for_all(group_mean_values(episodes)),
        "own": learned_own_values(own.critics, known, episodes, team),
        "joint": learned_joint_values(joint.critics, known, episodes, team),
        "privileged": learned_joint_values(privileged.critics, told(known), told(episodes), team),
        "ideal table": for_all(table_values(known, episodes)),
    }


def _with_truth(cell: Cell, episode: Episode) -> Episode:
    """Replay an episode's actions, and add the environment's hidden information to the joint histories."""
    env = with_truth(joint_env(cell)())
    env.reset(seed=episode.seed, options=episode.options)
    states = [env.state()]
    for turn in range(episode.num_turns):
        env.step({agent: track[turn].completion.action for agent, track in episode.tracks.items()})
        states.append(env.state())
    return replace(episode, states=tuple(states))


def _advantages(
    values: Mapping[CriticName, Floats],
    known: Sequence[Episode],
    episodes: Sequence[Episode],
    traces: Sequence[float],
) -> tuple[list[tuple[CriticName, float]], Floats]:
    """Return the kinds of advantage as (critic, trace), and the advantages [V, A, N, T]."""
    rewards = np.array([episode.team_rewards for episode in episodes])
    kinds: list[tuple[CriticName, float]] = [(critic, 1.0) for critic in WITHOUT_TRACE]
    kinds += [(critic, trace) for critic in LEARNED for trace in traces]
    return kinds, np.stack([traced(rewards, values[critic], trace) for critic, trace in kinds])


def _sums(
    policies: Mapping[str, Any], episodes: Sequence[Episode], team: Sequence[str], advantages: Floats
) -> list[GradientSums]:
    """Return the sums of policy gradients, one object per policy.

    Args:
        advantages: [V, A, N, T].
    """
    sums: dict[int, GradientSums] = {}
    for number, episode in enumerate(episodes):
        by_policy: dict[int, tuple[list[torch.Tensor], list[Floats]]] = {}
        for seat, agent in enumerate(team):
            track = [turn.completion for turn in episode.tracks[agent]]
            gradients, own = by_policy.setdefault(id(policies[agent]), ([], []))
            gradients.append(turn_gradients(policies[agent], track))
            own.append(advantages[:, seat, number])
        for key, (gradients, own) in by_policy.items():
            stacked = torch.cat(gradients)
            if key not in sums:
                sums[key] = GradientSums.empty(len(advantages), stacked.shape[1])
            sums[key].add(episode.group, np.concatenate(own, axis=1), stacked)
    return list(sums.values())


def turn_gradients(policy: TrainablePolicy, track: Sequence[Completion]) -> torch.Tensor:
    """Return [T, W]: gradients of each turn's completion log-probability with respect to all trainable weights."""
    weights = policy.parameters()
    evaluation = policy.evaluate([track])
    of_turns = evaluation.logprobs.new_zeros(len(track)).index_add(0, evaluation.turn_of_token, evaluation.logprobs)
    rows = []
    for turn in range(len(track)):
        is_last = turn == len(track) - 1
        found = torch.autograd.grad(of_turns[turn], weights, retain_graph=not is_last, materialize_grads=True)
        rows.append(torch.cat([each.flatten() for each in found]))
    return torch.stack(rows)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value
