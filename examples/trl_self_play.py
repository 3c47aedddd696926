"""Train one model that acts for both builders with TRL: GRPO on MiniBuild, in self-play.

    pip install trl
    python examples/trl_self_play.py

A row of the dataset is one agent in the episode of one seed. The model acts for all agents of an episode and learns
from all their replies. The script prints the mean return before and after training.
"""

from __future__ import annotations

import argparse
import os
import tempfile

from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from collm.agents.interop.trl import Episodes
from collm.agents.tiny import TINY_DIRECTORY
from collm.envs import make


def main(steps: int, seed: int) -> tuple[float, float]:
    """Train the model. Returns the mean returns of the first and of the last tenth of the steps."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    episodes = Episodes(lambda: make("collm/MiniBuild-v0", max_turns=3, reward="dense"), num_rows=256)
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            AutoModelForCausalLM.from_pretrained(TINY_DIRECTORY),
            reward_funcs=Episodes.reward,
            rollout_func=episodes,
            train_dataset=episodes.dataset,
            processing_class=AutoTokenizer.from_pretrained(TINY_DIRECTORY),
            args=GRPOConfig(
                folder,
                per_device_train_batch_size=32,  # two agents, two seeds, and eight rollouts for each
                num_generations=8,
                shuffle_dataset=False,  # otherwise the agents of a seed could be in different batches
                max_completion_length=8,
                max_steps=steps,
                learning_rate=1e-3,
                logging_steps=1,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
                bf16=False,
                seed=seed,
            ),
        )
        trainer.train()
    rewards = [row["reward"] for row in trainer.state.log_history if "reward" in row]
    tenth = max(1, len(rewards) // 10)
    before, after = sum(rewards[:tenth]) / tenth, sum(rewards[-tenth:]) / tenth
    print(f"trl GRPO in self-play on collm/MiniBuild-v0: {before:.3f} -> {after:.3f}")
    return before, after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    before, after = main(arguments.steps, arguments.seed)
    raise SystemExit(0 if after > before else "the reward did not rise")
