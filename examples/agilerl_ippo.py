"""Train a team with AgileRL: IPPO on MiniCode, in which two programmers read a task and choose lines of code.

    pip install agilerl peft
    python examples/agilerl_ippo.py

AgileRL's networks read float vectors (here the bag of words of the task) and choose discrete actions. The script prints
the team's mean return before and after training.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from agilerl.algorithms import IPPO
from agilerl.training.train_multi_agent_on_policy import train_multi_agent_on_policy
from agilerl.vector import PzDummyVecEnv

from collm.envs import make
from collm.envs.views import NumericInfos, PhraseActions, TokenObservations, WordCodec, reference_phrases

AGENTS = ("helper_0", "main_0")
WORDS = WordCodec("x y plus minus times double triple half square odd negate increment decrement".split())


def build() -> PzDummyVecEnv:
    """Build the environment for AgileRL. Observations are bags of words, and actions are numbers of lines of code."""
    env = make("collm/MiniCode-v1")
    lines = reference_phrases(env, num_episodes=200)
    env = PhraseActions(TokenObservations(env, kind="bag", codec=WORDS), lines)
    return PzDummyVecEnv(NumericInfos(env))


def main(steps: int, seed: int) -> tuple[float, float]:
    """Train the team. Returns the mean team returns before and after training."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    envs, tested = build(), build()
    tested.reset(seed=seed)
    agent = IPPO(
        [envs.single_observation_space(name) for name in AGENTS],
        [envs.single_action_space(name) for name in AGENTS],
        list(AGENTS),
        learn_step=512,
        batch_size=128,
        lr=3e-3,
        gamma=0.0,
        update_epochs=6,
    )
    # `test` returns the sum over the programmers, and each programmer gets the team's reward.
    before = agent.test(tested, loop=200) / len(AGENTS)
    train_multi_agent_on_policy(envs, "MiniCode", "IPPO", [agent], max_steps=steps, evo_steps=2_048, verbose=False)
    after = agent.test(tested, loop=200) / len(AGENTS)
    print(f"agilerl IPPO on collm/MiniCode-v1: {before:.3f} -> {after:.3f}")
    return before, after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=16_384)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    before, after = main(arguments.steps, arguments.seed)
    raise SystemExit(0 if after > before else "the return did not rise")
