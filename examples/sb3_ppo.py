"""Stable-Baselines3 trains one programmer of a team: PPO on MiniCode, a bag of words in, the number of a line out.

    pip install stable-baselines3
    python examples/sb3_ppo.py

The partner gives reference replies. Prints the mean return before and after training.
"""

from __future__ import annotations

import argparse

import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

import collm.envs  # registers the environments with Gymnasium
from collm.envs.views import PhraseActions, TokenObservations, WordCodec, reference_phrases

WORDS = WordCodec("x y plus minus times double triple half square odd negate increment decrement".split())
LINES = reference_phrases(collm.envs.make("collm/MiniCode-v1"), num_episodes=200)


def numbers(env, agent):
    """The environment with one agent that reads counts of words and chooses a line."""
    env = TokenObservations(env, kind="bag", codec=WORDS, agents=[agent])
    return PhraseActions(env, LINES, agents=[agent])


def build() -> gymnasium.Env:
    return gymnasium.make("collm/MiniCode-v1", agent="main_0", view=numbers)


def main(steps: int, seed: int) -> tuple[float, float]:
    """Mean returns before and after training."""
    envs = make_vec_env(build, n_envs=8, seed=seed)
    model = PPO("MlpPolicy", envs, n_steps=64, batch_size=128, learning_rate=2e-3, gamma=0.0, seed=seed, device="cpu")
    before, _ = evaluate_policy(model, envs, n_eval_episodes=200, deterministic=False)
    model.learn(steps)
    after, _ = evaluate_policy(model, envs, n_eval_episodes=200, deterministic=False)
    print(f"stable-baselines3 PPO on {collm.envs.spec('collm/MiniCode-v1').id}: {before:.3f} -> {after:.3f}")
    return float(before), float(after)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    before, after = main(arguments.steps, arguments.seed)
    raise SystemExit(0 if after > before else "the return did not rise")
