"""Train on a Gymnasium environment with collm, as a team of one agent.

    pip install .
    python examples/gymnasium_ippo.py

IPPO on FrozenLake: the agent crosses a slippery frozen lake and observes the number of its field. The script prints the
mean return of 100 episodes before and after training, which is the success rate.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from collm.algorithms import IPPOConfig
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.algorithms.runs.files import read_lines
from collm.algorithms.runs.run import run_experiment

ENV = "gymnasium/FrozenLake-v1"  # any Gymnasium id, after "gymnasium/"


def main(updates: int, seed: int) -> tuple[float, float]:
    """Train the agent. Returns the mean returns before and after training."""
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
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        run_experiment(
            Experiment(algorithm="ippo", config=config, env=ENV),
            directory,
        )
        returns = [row["evaluation/sampled/return"] for row in read_lines(directory / "evaluation.jsonl")]
    print(f"IPPO on {ENV}: {returns[0]:.3f} -> {returns[-1]:.3f}")
    return returns[0], returns[-1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    before, after = main(arguments.updates, arguments.seed)
    raise SystemExit(0 if after > before else "the return did not rise")
