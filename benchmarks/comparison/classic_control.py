"""Training on CartPole, Acrobot, Pendulum and simple_spread, which have published scores."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from ..._ownership import note, owned, refuse_foreign_files, write_text
from ...agents.config import ModelConfig
from ...agents.core import Request
from ...agents.numeric.config import NetworkConfig
from ...agents.numeric.policy import NumericPolicy
from ...algorithms import IPPOConfig, MAPPOConfig
from ...algorithms.rollout.collector import RolloutCollector
from ...algorithms.rollout.intervals import Interval
from ...algorithms.runs.assembly.experiment import Experiment
from ...algorithms.runs.assembly.policies import make_policies
from ...algorithms.runs.evaluation import evaluate
from ...algorithms.runs.files import write_folder
from ..markdown import markdown_table

NUM_EVALUATION_EPISODES = 100
CURVES, TORQUES = "learning_curves.png", "pendulum.png"

# Usual settings of PPO for the single-agent tasks: 8 environment copies, segments of 128 turns, 6 epochs.
_USUAL: dict[str, Any] = {
    "num_envs": 8,
    "turns_per_update": 128,
    "agent_learning_rate": 1e-3,
    "critic_learning_rate": 1e-3,
    "learning_rate_schedule": "linear",
    "discount": 0.99,
    "ppo_epochs": 6,
    "mini_batch_size": 256,
    "critic_steps": 24,
    "critic_batch_size": 256,
    "critic_replay": 1,
    "critic_warmup": 0,
    "critic_target": "gae",
}
_PENDULUM: dict[str, Any] = _USUAL | {
    "turns_per_update": 200,
    "discount": 0.9,
    "ppo_epochs": 10,
    "critic_steps": 60,
    "num_updates": 100,
}
# Episodes are truncated after 25 turns, so returns are bootstrapped there. With a discount of 0.99 the critic must
# predict 100 turns ahead, and one seed of three learned nothing in 160,000 steps.
_SPREAD: dict[str, Any] = _USUAL | {
    "num_envs": 16,
    "turns_per_update": 125,
    "num_updates": 30,
    "discount": 0.95,
    "agent_learning_rate": 3e-3,
    "critic_learning_rate": 3e-3,
    "mini_batch_size": 1500,
    "critic_batch_size": 1500,
    "entropy_coef": 0.01,
}
_SPREAD_LONG = _SPREAD | {"num_updates": 600, "entropy_coef": 0.003}


def _single(env: str, config: IPPOConfig, **network: Any) -> Experiment:
    return Experiment(algorithm="ippo", config=config, env=f"gymnasium/{env}", network=NetworkConfig(**network))


def _spread(algorithm: str, config: IPPOConfig | MAPPOConfig, **network: Any) -> Experiment:
    return Experiment(
        algorithm=algorithm,
        config=config,
        env="mpe2.simple_spread_v3:parallel_env",
        model=ModelConfig(weights="shared"),
        network=NetworkConfig(**network),
    )


EXPERIMENTS: dict[str, Experiment] = {
    "cartpole": _single("CartPole-v1", IPPOConfig(**_USUAL, num_updates=60)),
    "acrobot": _single("Acrobot-v1", IPPOConfig(**_USUAL, num_updates=100), normalizes_observations=True),
    "pendulum": _single("Pendulum-v1", IPPOConfig(**_PENDULUM)),
    "pendulum-squashed": _single("Pendulum-v1", IPPOConfig(**_PENDULUM), gaussian="squashed"),
    "spread-ippo": _spread("ippo", IPPOConfig(**_SPREAD, credited_reward="own")),
    "spread-mappo": _spread("mappo", MAPPOConfig(**_SPREAD)),
    "spread-ippo-long": _spread("ippo", IPPOConfig(**_SPREAD_LONG, credited_reward="own"), hidden_dims=(128, 128)),
    "spread-mappo-long": _spread("mappo", MAPPOConfig(**_SPREAD_LONG), hidden_dims=(128, 128)),
}


def spread_return_as_published(team_return: float, num_agents: int = 3, num_turns: int = 25) -> float:
    """Convert a return in mpe2's simple_spread (`local_ratio` 0.5) to the units of EPyMARL and of MAPPO's authors.

        2 * num_agents * return - num_agents * num_turns

    Both use openai/multiagent-particle-envs, where each agent's reward is the sum over agents, distances and collisions
    are not halved, and each agent collides with itself in every turn. `team_return` is the mean over the agents.
    """
    return 2 * num_agents * team_return - num_agents * num_turns


def published_spread(out: Path, num_agents: int = 3, num_turns: int = 25) -> dict[int, float]:
    """Learning curve of EPyMARL's MAPPO in simple_spread from `epymarl.json`, converted to the units of mpe2.

    Inverts `spread_return_as_published`. Divides by the number of agents, because EPyMARL sums their equal rewards.
    """
    points = json.loads((out / "epymarl.json").read_text())["curve"]
    return {
        point["environment_steps"]: (point["sampled"] / num_agents + num_agents * num_turns) / (2 * num_agents)
        for point in points
    }


def run_seed(name: str, seed: int, out: Path) -> dict[str, Any]:
    """Train and evaluate one seed. Write settings, learning curve and mean returns on held-out seeds as JSON."""
    experiment = EXPERIMENTS[name]
    experiment = replace(experiment, config=replace(experiment.config, seed=seed))
    trainer = experiment.make_trainer()
    held_out = RolloutCollector(experiment.make_vector("test", 20), trainer.collector.policies)
    untrained = make_policies(trainer.algorithm, held_out.vector, experiment.model, experiment.network)
    chance = evaluate(RolloutCollector(held_out.vector, untrained), NUM_EVALUATION_EPISODES, greedy=False)
    start, cpu = time.perf_counter(), time.process_time()
    curve = []
    for _ in range(experiment.config.num_updates):
        _, metrics = trainer.step()
        curve.append({"environment_steps": metrics["environment_steps"], "return": metrics.get("return")})
    result: dict[str, Any] = {
        "name": name,
        "seed": seed,
        "experiment": experiment.to_json(),
        "environment_steps": trainer.progress.num_turns,
        "wall_seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu,
        "untrained": _interval(chance.team_return),
        "curve": curve,
    }
    for how, greedy in (("sampled", False), ("greedy", True)):
        result[how] = _interval(evaluate(held_out, NUM_EVALUATION_EPISODES, greedy=greedy).team_return)
    write_text(out, f"{name}-{seed}.json", json.dumps(result) + "\n")
    for agent, policy in trainer.collector.policies.items():
        if name.startswith("pendulum") and seed == 0:
            assert isinstance(policy, NumericPolicy)
            folder = f"policies/{name}/{agent}"
            files = [f"{folder}/{each}" for each in (policy.settings_file, policy.weights_file)]
            refuse_foreign_files(out, files)
            write_folder(out / folder, policy.save)
            note(out, files)
    return result


def read_results(out: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(out.glob("*-[0-9]*.json"))]


def table(out: Path) -> str:
    """Markdown table of all results, one row per task. CPU seconds: fastest and slowest seed."""
    cells = []
    results = read_results(out)
    for name, steps in sorted({(result["name"], result["environment_steps"]) for result in results}):
        runs = [result for result in results if (result["name"], result["environment_steps"]) == (name, steps)]
        seconds = [result["cpu_seconds"] for result in runs]
        sampled, greedy = (", ".join(f"{each[how]['mean']:.1f}" for each in runs) for how in ("sampled", "greedy"))
        untrained = np.mean([each["untrained"]["mean"] for each in runs])
        cost = f"{min(seconds):.0f}-{max(seconds):.0f}"
        cells.append((name, f"{steps:,}", cost, f"{untrained:.1f}", sampled, greedy))
    header = ("task", "environment steps", "CPU seconds", "untrained", "sampled, by seed", "greedy, by seed")
    return markdown_table(header, cells)


def plot(out: Path) -> None:
    """Plot the learning curves of all results, and the torques of the Pendulum policies."""
    results = read_results(out)
    tasks = sorted({result["name"].split("-")[0] for result in results})
    figure = Figure(figsize=(4 * len(tasks), 3.2), layout="constrained")
    for axes, task in zip(np.atleast_1d(figure.subplots(1, len(tasks))), tasks, strict=True):
        of_task = [result for result in results if result["name"].split("-")[0] == task]
        names = sorted({result["name"] for result in of_task})
        for number, name in enumerate(names):
            for result in (each for each in of_task if each["name"] == name):
                points = [(p["environment_steps"], p["return"]) for p in result["curve"] if p["return"] is not None]
                label = name if result["seed"] == 0 else None
                axes.plot(*zip(*points, strict=True), color=f"C{number}", alpha=0.7, linewidth=1, label=label)
        if task == "spread" and (out / "epymarl.json").is_file():
            longest = max(result["environment_steps"] for result in of_task)
            points = [point for point in published_spread(out).items() if point[0] <= 1.1 * longest]
            axes.plot(*zip(*points, strict=True), "k--", linewidth=1, label="EPyMARL MAPPO")
        axes.set(title=task, xlabel="environment steps", ylabel="mean return")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.legend(frameon=False)
        axes.grid(alpha=0.3)
    with owned(out, CURVES) as new:
        figure.savefig(new, dpi=120)
    policies = sorted((out / "policies").glob("pendulum*/agent_0"))
    if policies:
        with owned(out, TORQUES) as new:
            plot_pendulum({folder.parent.name: NumericPolicy.load(folder) for folder in policies}, new)


def plot_pendulum(policies: Mapping[str, NumericPolicy], file: Path) -> None:
    """Plot the most likely torque as a function of the pendulum's angle and speed. Angle 0 is upright."""
    angles, speeds = np.linspace(-np.pi, np.pi, 81), np.linspace(-8, 8, 81)
    figure = Figure(figsize=(5 * len(policies), 4), layout="constrained")
    for axes, (name, policy) in zip(np.atleast_1d(figure.subplots(1, len(policies))), policies.items(), strict=True):
        observations = [
            np.array([np.cos(angle), np.sin(angle), speed], np.float32) for speed in speeds for angle in angles
        ]
        requests = [Request("agent_0", each, (0,)) for each in observations]
        torque = np.array([answer.action[0] for answer in policy.act(requests, greedy=True)])
        torque = torque.reshape(len(speeds), len(angles))
        image = axes.pcolormesh(angles, speeds, torque, cmap="coolwarm", vmin=-2, vmax=2, shading="auto")
        axes.set(title=name, xlabel="angle from upright, rad", ylabel="angular speed, rad/s")
        figure.colorbar(image, ax=axes, label="torque")
    figure.savefig(file, dpi=120)


def _interval(interval: Interval) -> dict[str, float]:
    return {"mean": interval.value, "low": interval.low, "high": interval.high}
