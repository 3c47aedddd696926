"""Train on three PettingZoo environments with collm.

    pip install . mpe2 pygame-ce
    python examples/pettingzoo_ippo.py

All agents of an environment share one perceptron. In tic-tac-toe (`classic`), a turn-based game that PettingZoo
converts to a parallel one, two players learn legal moves. In knights, archers, zombies (`butterfly`), two archers learn
to hit. In simple spread (`mpe2`, with MAPPO), two agents learn to stand on two landmarks. The script prints the mean
return per agent before and after training.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from pettingzoo.classic import tictactoe_v3
from pettingzoo.utils.conversions import turn_based_aec_to_parallel
from pettingzoo.utils.env_logger import EnvLogger

from collm.agents.config import ModelConfig
from collm.algorithms import IPPOConfig, MAPPOConfig
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.algorithms.runs.files import read_lines
from collm.algorithms.runs.run import run_experiment
from collm.envs import register
from collm.envs.views import FlatObservations

SETTINGS = {
    "num_envs": 8,
    "turns_per_update": 128,
    "agent_learning_rate": 2e-3,
    "critic_learning_rate": 1e-3,
    "learning_rate_schedule": "linear",
    "entropy_coef": 0.01,
    "ppo_epochs": 6,
    "mini_batch_size": 512,
    "critic_steps": 24,
    "critic_batch_size": 512,
    "critic_replay": 1,
    "critic_warmup": 0,
    "critic_target": "gae",
    "eval_num_samples": 64,
}
SHARED = ModelConfig(weights="shared")


def tic_tac_toe():
    """Build tic-tac-toe as a parallel environment: the action of the waiting player is ignored; illegal moves lose."""
    EnvLogger.suppress_output()  # PettingZoo would log every illegal move
    return FlatObservations(turn_based_aec_to_parallel(tictactoe_v3.env()))


register("pettingzoo/TicTacToe-v3", tic_tac_toe)
EXPERIMENTS = {
    "tic-tac-toe": Experiment(
        algorithm="ippo", config=IPPOConfig(**SETTINGS, num_updates=20), env="pettingzoo/TicTacToe-v3", model=SHARED
    ),
    "archers": Experiment(
        algorithm="ippo",
        config=IPPOConfig(**SETTINGS | {"agent_learning_rate": 1e-3}, num_updates=20, discount=0.99),
        env="pettingzoo.butterfly.knights_archers_zombies_v11:parallel_env",
        env_kwargs={"num_knights": 0, "max_cycles": 300},
        model=SHARED,
    ),
    "spread": Experiment(
        algorithm="mappo",
        config=MAPPOConfig(**SETTINGS, num_updates=40, discount=0.95),
        env="mpe2.simple_spread_v3:parallel_env",
        env_kwargs={"N": 2},
        model=SHARED,
    ),
}


def main(name: str, seed: int) -> tuple[float, float]:
    """Train on one environment. Returns the mean returns before and after training."""
    experiment = EXPERIMENTS[name]
    experiment = replace(experiment, config=replace(experiment.config, seed=seed))
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        run_experiment(
            experiment,
            directory,
        )
        returns = [row["evaluation/sampled/return"] for row in read_lines(directory / "evaluation.jsonl")]
    print(f"{experiment.algorithm.upper()} on {name}: {returns[0]:.3f} -> {returns[-1]:.3f}", flush=True)
    return returns[0], returns[-1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--games", nargs="+", choices=list(EXPERIMENTS), default=list(EXPERIMENTS))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    results = [main(game, arguments.seed) for game in arguments.games]
    raise SystemExit(0 if all(after > before for before, after in results) else "a return did not rise")
