"""Train two agents of a repeated prisoner's dilemma with Advantage Alignment, as a plugin.

    pip install collm
    python examples/advantage_alignment.py --weight 1

Advantage Alignment (arXiv:2406.14662, equation 8) shapes the other agent j: an agent i prefers actions that are good
for j after turns that were good for i.

    A*[t] = A_i[t] + weight * discount * (sum over k < t of discount^(t - k) * A_i[k]) * A_j[t]

Advantages are discounted returns of an agent's own rewards minus the mean of the other rollouts of the group. The
script prints the mean return of each agent before and after training.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import torch
from torch import Tensor

import collm
from collm.algorithms import Algorithm, Grid, TrainConfig
from collm.algorithms.functions.advantages import monte_carlo_returns
from collm.algorithms.functions.baselines import leave_one_out_advantages
from collm.algorithms.learning.credit import agent_grid


@dataclass(frozen=True, kw_only=True)
class AlignmentConfig(TrainConfig):
    """Settings of Advantage Alignment."""

    num_generations: int = 8
    credited_reward: str | None = "own"
    discount: float = 0.96
    weight: float = 1.0
    """Weight of the alignment term. 0: only the agent's own advantages."""


class AdvantageAlignment(Algorithm[AlignmentConfig]):
    """Advantage Alignment of agents that act in the same turns."""

    def advantages(self, grid: Grid) -> Tensor:
        own = self.above_baseline(grid)
        others = [agent for agent in grid.episodes[0].tracks if agent != grid.agent]
        theirs = sum(self.above_baseline(agent_grid(grid.episodes, agent, None)) for agent in others)
        return aligned_advantages(own, theirs, self.config.discount, self.config.weight)

    def above_baseline(self, grid: Grid) -> Tensor:
        returns = monte_carlo_returns(grid.rewards, grid.is_real, self.config.discount)
        return leave_one_out_advantages(returns, grid.group, grid.is_real, group_size=self.config.num_generations)


def aligned_advantages(own: Tensor, theirs: Tensor, discount: float, weight: float) -> Tensor:
    """Return A* [B, T] from the agent's and the other agents' advantages [B, T]."""
    past = torch.zeros_like(own[:, 0])
    columns = []
    for mine, other in zip(own.unbind(dim=1), theirs.unbind(dim=1), strict=True):
        columns.append(mine + weight * discount * past * other)
        past = discount * (past + mine)
    return torch.stack(columns, dim=1)


def main(num_updates: int, weight: float, out: str | None) -> None:
    collm.register_algorithm("advantage-alignment", AdvantageAlignment, AlignmentConfig, replace=True)
    run = collm.train(
        "advantage-alignment",
        env="collm/MatrixGame-v0",
        env_kwargs={"game": "prisoner", "num_rounds": 4, "num_messages": 0},
        out=out,
        num_updates=num_updates,
        weight=weight,
    )
    for row in (run.metrics[0], run.metrics[-1]):
        print({name: round(value, 3) for name, value in row.items() if name.startswith("return")})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-updates", type=int, default=100)
    parser.add_argument("--weight", type=float, default=1.0)
    parser.add_argument("--out", help="folder of the run")
    arguments = parser.parse_args()
    main(arguments.num_updates, arguments.weight, arguments.out)
