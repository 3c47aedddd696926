"""Train one programmer of a team with Stable-Baselines3: PPO on MiniCode, from a bag of words to the number of a line.

    pip install stable-baselines3
    python examples/sb3_ppo.py

The partner gives reference replies. The script prints the mean return before and after training.
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
    """Wrap an environment so that `agent` observes counts of words and chooses the number of a line."""
    env = TokenObservations(env, kind="bag", codec=WORDS, agents=[agent])
    return PhraseActions(env, LINES, agents=[agent])


def build() -> gymnasium.Env:
    return gymnasium.make("collm/MiniCode-v1", agent="main_0", view=numbers)


def main(steps: int, seed: int) -> tuple[float, float]:
    """Train the programmer. Returns the mean returns before and after training."""
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
