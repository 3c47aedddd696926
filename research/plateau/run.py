"""Measure the drift of policies in an environment whose reward is constant, so that no policy is better than another.

python research/plateau/run.py maac --seeds 1 2 3 4 5 >> runs/plateau.jsonl
"""

from __future__ import annotations

import argparse
import json
from copy import deepcopy

import numpy as np
import torch

from collm.agents.config import ModelConfig
from collm.agents.numeric.config import NetworkConfig
from collm.algorithms import algorithm_spec
from collm.algorithms.functions.losses import kl_k3
from collm.algorithms.learning.policy_learner import tracks_of
from collm.algorithms.runs.assembly.policies import make_policies
from collm.algorithms.runs.assembly.trainers import make_trainer
from collm.envs.core import Outcome, TextParallelEnv
from collm.envs.vectors.vector import SyncVector

NUM_UPDATES = 30
SETTINGS = {
    "frozen": ("maac", {"critic_warmup": NUM_UPDATES - 1}),
    "magrpo": ("magrpo", {"num_generations": 4}),
    "maac": ("maac", {}),
    "iac": ("iac", {}),
}


class ConstantReward(TextParallelEnv):
    """Two agents choose words. The reward of each turn is 0.25, whatever the agents reply."""

    def __init__(self) -> None:
        super().__init__(("a_0", "a_1"), max_turns=4)

    def deal(self, task):
        self.task = task or self.rng.sample(["wood", "clay", "iron", "glass"], k=2)
        return {agent: "choose " + " or ".join(self.task) for agent in self.possible_agents}

    def play(self, replies):
        return Outcome(reward=0.25, feedback=dict.fromkeys(replies, "next: " + self.task[self.turn % 2]))


def drift(name: str, seed: int) -> dict[str, float | str]:
    """Train for `NUM_UPDATES` - 1 updates and play the episodes of one more; returns the metrics of these episodes.

    kl: KL(policy || policy at the start), in nats per token, estimated on the episodes' tokens.
    """
    algorithm, settings = SETTINGS[name]
    spec = algorithm_spec(algorithm)
    made = spec.make(spec.config(num_updates=NUM_UPDATES, seed=seed, **settings))
    vector = SyncVector(ConstantReward, made.max_parallel_episodes)
    policies = make_policies(made, vector, ModelConfig(max_new_tokens=5), NetworkConfig())
    start = deepcopy(policies)
    trainer = make_trainer(made, vector, policies)
    for _ in range(NUM_UPDATES):
        episodes, metrics = trainer.step()
    trainer.close()
    kls = []
    for agent, policy in start.items():
        tracks = tracks_of(episodes, agent)
        chosen = list(range(len(tracks)))
        for batch in policy.batches(tracks, chosen, 2048):
            sampled = np.concatenate([turn.logprobs for i in batch for turn in tracks[i]])
            with torch.no_grad():
                known = policy.evaluate([tracks[i] for i in batch]).logprobs
            kls.append(kl_k3(torch.from_numpy(sampled), known))
    shown = {key: round(metrics[key], 4) for key in ("cut_share", "entropy", "equal_returns")}
    return {"method": name, "seed": seed, "kl": round(float(torch.cat(kls).mean()), 4), **shown}


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("methods", nargs="*", default=list(SETTINGS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3, 4, 5])
    arguments = parser.parse_args()
    for method in arguments.methods:
        for seed in arguments.seeds:
            print(json.dumps(drift(method, seed)), flush=True)
