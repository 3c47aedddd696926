"""Methods that an algorithm may override: loss, targets, state and facts."""

import math

import pytest
import torch
from probes import AGENTS, TextProbe, word_policies

from collm.algorithms import (
    MAGRPO,
    Algorithm,
    Grid,
    PolicyBatch,
    PolicyLoss,
    ReinforceConfig,
    TrainConfig,
    make_trainer,
)
from collm.algorithms.functions.advantages import monte_carlo_returns
from collm.envs.vectors.vector import SyncVector

# Two turns, of one and of three tokens, in a mini-batch of four turns and ten tokens.
NOW = torch.tensor([-1.0, -0.5, -1.0, -1.5], dtype=torch.float64)
SAMPLED = torch.tensor([-1.2, -0.7, -0.7, -1.6], dtype=torch.float64)
ADVANTAGES = torch.tensor([2.0, -1.0], dtype=torch.float64)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, -(2.0 * -1.0 - 1.0 * -3.0) / 4),
        ({"divide_by_length": True}, -(2.0 * -1.0 - 1.0 * -1.0) / 4),
        ({"credit": "token"}, -(2.0 * -1.0 - 1.0 * -3.0) / 10),
        ({"credit": "token", "divide_by_length": True}, -(2.0 * -1.0 - 1.0 * -1.0) / 4),
        # Ratios e^0.2 (cut at 1.2, as its advantage is positive) and e^0 = 1.
        ({"clip_range": 0.2}, -(2.0 * 1.2 - 1.0 * 1.0) / 4),
        ({"clip_range": 0.2, "clip_range_high": 0.3}, -(2.0 * math.exp(0.2) - 1.0 * 1.0) / 4),
        # GSPO: the same ratios with the mean of a turn's log ratios in place of their sum.
        ({"clip_range": 0.1, "divide_by_length": True}, -(2.0 * 1.1 - 1.0 * math.exp(0.0 / 3)) / 4),
        # Tokens of the second turn: ratios e^0.2, e^-0.3 (cut at 0.8, as its advantage is negative), e^0.1.
        ({"clip_range": 0.2, "credit": "token"}, -(2.0 * 1.2 - math.exp(0.2) - 0.8 - math.exp(0.1)) / 10),
    ],
)
def test_the_loss_by_hand(settings, expected):
    batch = PolicyBatch(NOW, SAMPLED, torch.tensor([0, 1, 1, 1]), ADVANTAGES, num_turns=4, num_tokens=10)
    assert float(MAGRPO(ReinforceConfig(**settings)).loss(batch).loss) == pytest.approx(expected, rel=1e-12)


class Plain(Algorithm[TrainConfig]):
    def advantages(self, grid):
        return grid.rewards


def test_the_default_targets_are_bootstrapped_returns():
    rewards = torch.tensor([[1.0, 2.0], [4.0, 0.0]])
    values = torch.tensor([[0.5, 0.5, 8.0], [0.5, 0.0, 0.0]])
    grid = Grid(rewards, values, None, torch.tensor([[True, True], [True, False]]), torch.zeros(2).long())
    targets = Plain(TrainConfig(discount=0.5)).targets(grid)
    torch.testing.assert_close(targets, torch.tensor([[1 + 1 + 2.0, 2 + 4.0], [4.0, 0.0]]))


class Remembering(Algorithm[TrainConfig]):
    """Keeps the agents that it has seen; its loss is twice the default."""

    def __init__(self, config):
        super().__init__(config)
        self.seen = []

    def advantages(self, grid):
        assert len(grid.episodes) == len(grid.rewards)
        assert all(grid.agent in episode.tracks for episode in grid.episodes)
        assert [len(episode.tracks[grid.agent]) for episode in grid.episodes] == grid.is_real.sum(dim=1).tolist()
        self.seen.append(grid.agent)
        return monte_carlo_returns(grid.rewards, grid.is_real, 1.0)

    def loss(self, batch):
        loss, metrics = super().loss(batch)
        return PolicyLoss(2 * loss, {**metrics, "turns_seen": torch.tensor(len(batch.advantages) / batch.num_turns)})

    def state_dict(self):
        return {"seen": list(self.seen)}

    def load_state_dict(self, state):
        self.seen = list(state["seen"])


def trainer(algorithm):
    return make_trainer(algorithm, SyncVector(lambda: TextProbe("delayed"), 4), word_policies())


def test_an_algorithm_sees_agents_and_episodes_once_per_update_and_remembers():
    first = trainer(Remembering(TrainConfig(rollout_buffer_size=4)))
    for _ in range(2):
        _, metrics = first.step()
    assert first.algorithm.seen == [*AGENTS, *AGENTS]
    assert metrics["turns_seen"] == pytest.approx(1.0)  # shares of micro-batches add up

    second = trainer(Remembering(TrainConfig(rollout_buffer_size=4)))
    second.load_state_dict(first.state_dict())
    assert second.algorithm.seen == first.algorithm.seen


def test_an_own_loss_is_the_one_that_is_descended():
    class Default(Remembering):
        loss = Algorithm.loss

    settings = TrainConfig(rollout_buffer_size=4, max_grad_norm=1e9)
    _, doubled = trainer(Remembering(settings)).step()
    _, default = trainer(Default(settings)).step()
    assert doubled["policy_loss"] == pytest.approx(2 * default["policy_loss"], rel=1e-6)
    assert doubled["grad_norm"] == pytest.approx(2 * default["grad_norm"], rel=1e-5)
