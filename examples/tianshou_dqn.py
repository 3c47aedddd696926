"""Train one programmer of a team with Tianshou: DQN on MiniCode, from a bag of words to the number of a line.

    pip install tianshou
    python examples/tianshou_dqn.py

The partner gives reference replies. The script prints the mean return of a random and of the trained programmer.
"""

from __future__ import annotations

import argparse

import gymnasium
import torch
from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net

import collm.envs  # noqa: F401  registers the environments with Gymnasium
from collm.envs.views import PhraseActions, TokenObservations, WordCodec, reference_phrases

WORDS = WordCodec("x y plus minus times double triple half square odd negate increment decrement".split())


def numbers(env, agent):
    """Wrap an environment so that `agent` observes a bag of words and chooses the number of a line."""
    lines = reference_phrases(env, num_episodes=200)
    return PhraseActions(TokenObservations(env, kind="bag", codec=WORDS, agents=[agent]), lines, agents=[agent])


def build() -> gymnasium.Env:
    return gymnasium.make("collm/MiniCode-v1", agent="main_0", view=numbers)


def main(epochs: int, seed: int) -> tuple[float, float]:
    """Train the programmer. Returns the mean returns before and after training."""
    torch.manual_seed(seed)
    envs = DummyVectorEnv([build for _ in range(8)])
    envs.seed(seed)
    space = envs.action_space[0]
    net = Net(state_shape=envs.observation_space[0].shape, action_shape=space.n, hidden_sizes=[64, 64])
    policy = DiscreteQLearningPolicy(model=net, action_space=space, eps_training=0.3)
    algorithm = DQN(policy=policy, optim=AdamOptimizerFactory(lr=2e-3), gamma=0.0)
    collector = Collector(algorithm, envs, VectorReplayBuffer(8_000, 8), exploration_noise=True)
    tested = Collector(algorithm, DummyVectorEnv([build for _ in range(8)]))
    tested.reset()
    before = tested.collect(n_episode=200, random=True).returns.mean()
    algorithm.run_training(
        OffPolicyTrainerParams(
            max_epochs=epochs,
            epoch_num_steps=1_000,
            training_collector=collector,
            test_collector=tested,
            test_step_num_episodes=8,
            collection_step_num_env_steps=64,
            update_step_num_gradient_steps_per_sample=0.25,
            batch_size=128,
            show_progress=False,
            verbose=False,
        )
    )
    after = tested.collect(n_episode=200).returns.mean()
    print(f"tianshou DQN on collm/MiniCode-v1: {before:.3f} -> {after:.3f}")
    return float(before), float(after)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    before, after = main(arguments.epochs, arguments.seed)
    raise SystemExit(0 if after > before else "the return did not rise")
