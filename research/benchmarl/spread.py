"""Train BenchMARL's IPPO and MAPPO on mpe2's simple_spread, with the measures of collm's classic_control suite.

    python research/benchmarl/spread.py ippo --seeds 0 1 2
    python research/benchmarl/spread.py mappo --seeds 0 1 2 --settings defaults

Run it in an environment with `tests/interop/benchmarl.txt`. It writes one JSON file per seed: the learning curve, and
the mean return of 100 episodes (25 turns, mean over the agents) before training, sampled and greedy, with its 95 %
interval. `defaults` are BenchMARL's settings. `tuned` are the settings of `spread-ippo` that BenchMARL also has (batch,
minibatches, epochs, discount, lambda, entropy, clips, network), with another learning rate.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from benchmarl.algorithms import IppoConfig, MappoConfig
from benchmarl.environments.pettingzoo.common import PettingZooClass
from benchmarl.experiment import Callback, Experiment, ExperimentConfig
from benchmarl.models.mlp import MlpConfig
from mpe2 import simple_spread_v3
from torchrl.envs import EnvBase, PettingZooWrapper
from torchrl.envs.utils import ExplorationType, set_exploration_type

NUM_TURNS = 25
NUM_EVALUATION_EPISODES = 100


class Spread(PettingZooClass):
    """BenchMARL task for simple_spread of mpe2, to which PettingZoo has moved this environment."""

    def get_env_fun(self, num_envs, continuous_actions, seed, device):
        def build() -> EnvBase:
            env = simple_spread_v3.parallel_env(max_cycles=NUM_TURNS, continuous_actions=continuous_actions)
            return PettingZooWrapper(env, return_state=True, categorical_actions=True, seed=seed, device=device)

        return build

    def max_steps(self, env: EnvBase) -> int:
        return NUM_TURNS


class Curve(Callback):
    """Callback that records the mean return of the episodes that ended in each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.points: list[dict[str, float]] = []

    def on_batch_collected(self, batch) -> None:
        done = batch["next", "done"].squeeze(-1)
        returns = batch["next", "agent", "episode_reward"].squeeze(-1).mean(-1)[done]
        self.points.append({"environment_steps": self.experiment.total_frames, "return": float(returns.mean())})


def settings(name: str, algorithm: str, steps: int, learning_rate: float):
    """Return the configs of the experiment, the algorithm and the networks. Only `tuned` uses `learning_rate`."""
    config = ExperimentConfig.get_from_yaml()
    rule = {"ippo": IppoConfig, "mappo": MappoConfig}[algorithm].get_from_yaml()
    network = MlpConfig.get_from_yaml()
    config.max_n_frames, config.max_n_iters = steps, None
    config.prefer_continuous_actions = False
    config.evaluation, config.render, config.loggers, config.create_json = False, False, [], False
    if name == "tuned":
        config.gamma, config.lr, config.adam_eps, config.clip_grad_val = 0.95, learning_rate, 1e-8, 1.0
        config.on_policy_collected_frames_per_batch, config.on_policy_n_envs_per_worker = 2000, 16
        config.on_policy_minibatch_size, config.on_policy_n_minibatch_iters = 500, 6
        rule.lmbda, rule.entropy_coef = 0.95, 0.01
        network.num_cells = [64, 64]
    return config, rule, network


def evaluate(experiment: Experiment, how: ExplorationType) -> dict[str, float]:
    """Return the mean return of new episodes, with its 95 % confidence interval."""
    returns = []
    with torch.no_grad(), set_exploration_type(how):
        while len(returns) < NUM_EVALUATION_EPISODES:
            episode = experiment.test_env.rollout(NUM_TURNS, experiment.policy, break_when_any_done=True)
            rewards = episode["next", "agent", "reward"].squeeze(-1)
            returns += rewards.reshape(-1, NUM_TURNS, rewards.shape[-1]).sum(1).mean(-1).tolist()
    found = np.array(returns[:NUM_EVALUATION_EPISODES])
    half = 1.96 * found.std(ddof=1) / len(found) ** 0.5
    return {"mean": found.mean(), "low": found.mean() - half, "high": found.mean() + half}


def main(algorithm: str, seed: int, steps: int, name: str, learning_rate: float, out: Path) -> None:
    """Train one seed, evaluate the policy, and write the results as JSON."""
    config, rule, network = settings(name, algorithm, steps, learning_rate)
    curve = Curve()
    with tempfile.TemporaryDirectory() as folder:
        config.save_folder = folder
        experiment = Experiment(
            task=Spread("SIMPLE_SPREAD", {}),
            algorithm_config=rule,
            model_config=network,
            critic_model_config=network,
            seed=seed,
            config=config,
            callbacks=[curve],
        )
        untrained = evaluate(experiment, ExplorationType.RANDOM)
        start, cpu = time.perf_counter(), time.process_time()
        experiment.run()
        result = {
            "name": f"spread-benchmarl-{algorithm}" + ("" if name == "tuned" else f"-{name}"),
            "seed": seed,
            "experiment": {"config": vars(config) | {"save_folder": None}, "algorithm": vars(rule)},
            "environment_steps": curve.points[-1]["environment_steps"],
            "wall_seconds": time.perf_counter() - start,
            "cpu_seconds": time.process_time() - cpu,
            "untrained": untrained,
            "curve": curve.points,
            "sampled": evaluate(experiment, ExplorationType.RANDOM),
            "greedy": evaluate(experiment, ExplorationType.DETERMINISTIC),
        }
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{result['name']}-{seed}.json").write_text(json.dumps(result, default=str) + "\n")
    means = {how: f"{result[how]['mean']:.1f}" for how in ("untrained", "sampled", "greedy")}
    print(result["name"], seed, learning_rate, means, result["environment_steps"], flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithm", choices=("ippo", "mappo"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--settings", choices=("tuned", "defaults"), default="tuned")
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/classic_control/benchmarl"))
    given = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    torch.set_num_threads(1)
    for each in given.seeds:
        main(given.algorithm, each, given.steps, given.settings, given.learning_rate, given.out)
