"""Train a team with RLlib: PPO on MiniCode, in which two policies read a task and choose lines of code.

    pip install "ray[rllib]"
    python examples/rllib_ppo.py

RLlib does not encode texts. Each programmer therefore reads the task's bag of words and chooses the number of a line.
The two lines must fit each other and the task. The script prints the team's mean return before and after training.
"""

from __future__ import annotations

import argparse

import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv
from ray.tune.registry import register_env

from collm.envs import make
from collm.envs.views import NumericInfos, PhraseActions, TokenObservations, WordCodec, reference_phrases

AGENTS = ("helper_0", "main_0")
WORDS = WordCodec("x y plus minus times double triple half square odd negate increment decrement".split())


def build(settings: dict) -> ParallelPettingZooEnv:
    """Build the environment for RLlib. Observations are float vectors, and actions are numbers of lines of code."""
    env = make("collm/MiniCode-v1")
    lines = reference_phrases(env, num_episodes=200)
    env = PhraseActions(TokenObservations(env, kind="bag", codec=WORDS), lines)
    return ParallelPettingZooEnv(NumericInfos(env))


def main(iterations: int, seed: int) -> tuple[float, float]:
    """Train the team. Returns the mean returns of the first and of the last iteration."""
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    register_env("mini_code", build)
    config = (
        PPOConfig()
        .environment("mini_code")
        .env_runners(num_env_runners=0)
        .learners(num_learners=0)
        .multi_agent(policies=set(AGENTS), policy_mapping_fn=lambda agent, episode, **_: agent)
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64]))
        .training(lr=4e-3, gamma=0.0, train_batch_size_per_learner=256, minibatch_size=64, num_epochs=6)
        .reporting(metrics_num_episodes_for_smoothing=256)
        .debugging(seed=seed, log_level="ERROR")
    )
    algorithm = config.build_algo()
    # RLlib reports the sum over the agents, and each agent gets the team's reward.
    returns = [algorithm.train()["env_runners"]["episode_return_mean"] / len(AGENTS) for _ in range(max(2, iterations))]
    algorithm.stop()
    ray.shutdown()
    print(f"rllib PPO on collm/MiniCode-v1: {returns[0]:.3f} -> {returns[-1]:.3f}")
    return returns[0], returns[-1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=28)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    before, after = main(arguments.iterations, arguments.seed)
    raise SystemExit(0 if after > before else "the return did not rise")
