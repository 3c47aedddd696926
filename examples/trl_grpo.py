"""Train one writer of a team with TRL: GRPO on MiniWriting, from a dataset of prompts and a reward function.

    pip install trl
    python examples/trl_grpo.py

A row of the dataset has a prompt and the seed of its episode. The reward function replays this episode with the model's
completion and the partner's reference reply, which suffices for one-turn games. The script prints the mean reward
before and after training.
"""

from __future__ import annotations

import argparse
import tempfile

from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from collm.agents.interop.trl import dataset_of, reward_of
from collm.agents.tiny import TINY_DIRECTORY
from collm.envs import make
from collm.envs.views import SingleAgent


def main(steps: int, seed: int) -> tuple[float, float]:
    """Train the writer. Returns the mean rewards of the first and of the last tenth of the steps."""
    env = SingleAgent(make("collm/MiniWriting-v2"), "writer_1")
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            AutoModelForCausalLM.from_pretrained(TINY_DIRECTORY),
            reward_funcs=reward_of(env),
            train_dataset=dataset_of(env, 512),
            processing_class=AutoTokenizer.from_pretrained(TINY_DIRECTORY),
            args=GRPOConfig(
                folder,
                per_device_train_batch_size=32,
                num_generations=8,
                max_completion_length=40,
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
    print(f"trl GRPO on collm/MiniWriting-v2: {before:.3f} -> {after:.3f}")
    return before, after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    before, after = main(arguments.steps, arguments.seed)
    raise SystemExit(0 if after > before else "the reward did not rise")
