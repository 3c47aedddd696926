"""The other way round: the algorithms here train on an environment of Gymnasium, as a team of one.

    pip install .
    python examples/gymnasium_ippo.py

IPPO on FrozenLake: to cross a lake whose ice is slippery, by the number of the field one stands on. Prints the mean
return of 100 episodes before and after, the share of crossings that came through.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from collm.algorithms import IPPOConfig
from collm.algorithms.experiment import Experiment
from collm.algorithms.run import run_experiment

ENV = "gymnasium/FrozenLake-v1"  # any id of Gymnasium, with this in front


def main(updates: int, seed: int) -> tuple[float, float]:
    """Mean returns before and after."""
    config = IPPOConfig(
        num_updates=updates,
        num_envs=8,
        turns_per_update=128,
        agent_learning_rate=3e-3,
        critic_learning_rate=3e-3,
        learning_rate_schedule="linear",
        discount=0.99,
        entropy_coef=0.01,
        ppo_epochs=6,
        mini_batch_size=256,
        critic_steps=24,
        critic_batch_size=256,
        critic_replay=1,
        critic_warmup=0,
        critic_target="gae",
        eval_num_samples=100,
        seed=seed,
    )
    returns = []
    with tempfile.TemporaryDirectory() as folder:
        run_experiment(
            Experiment(algorithm="ippo", config=config, env=ENV),
            Path(folder) / "run",
            on_evaluation=lambda update, metrics: returns.append(metrics["evaluation/sampled/return"]),
        )
    print(f"IPPO on {ENV}: {returns[0]:.3f} -> {returns[-1]:.3f}")
    return returns[0], returns[-1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    before, after = main(arguments.updates, arguments.seed)
    raise SystemExit(0 if after > before else "the return did not rise")
