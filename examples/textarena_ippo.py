"""Train a language model on a TextArena game with collm.

    pip install . textarena
    python examples/textarena_ippo.py

IPPO on GuessTheNumber: ten guesses at a number from 1 to 20, each answered by "higher" or "lower". The model is a small
Llama with random weights whose vocabulary is the game's words. The model must learn that only a number in brackets is a
guess, not to repeat guesses, and the meaning of the answers. The script prints the mean return before and after
training. A return is 1 if the number was found; otherwise it is less, by the distance of the last guess.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from collm.agents.config import ModelConfig
from collm.algorithms import IPPOConfig
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.algorithms.runs.files import read_lines
from collm.algorithms.runs.run import run_experiment

WORDS = ("<end>", "higher", "lower", "already", "invalid", *(f"[{number}]" for number in range(1, 21)))


def save_model(folder: Path, seed: int) -> None:
    """Save a model with random weights, and a tokenizer with the tokens `WORDS`, which drops all other words."""
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}))
    tokenizer.pre_tokenizer = Split(Regex("|".join(map(re.escape, WORDS))), "removed", invert=True)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>").save_pretrained(folder)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=128,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def main(updates: int, seed: int) -> tuple[float, float]:
    """Train the model. Returns the mean returns before and after training."""
    config = IPPOConfig(
        num_updates=updates,
        rollout_buffer_size=64,
        agent_learning_rate=2e-3,
        learning_rate_schedule="linear",
        entropy_coef=0.01,
        critic_warmup=2,
        eval_num_samples=256,
        seed=seed,
    )
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        save_model(Path(folder) / "model", seed)
        experiment = Experiment(
            algorithm="ippo",
            config=config,
            env="textarena/GuessTheNumber-v0-raw",
            model=ModelConfig(model=f"{folder}/model", max_new_tokens=1),
        )
        run_experiment(
            experiment,
            directory,
        )
        returns = [row["evaluation/sampled/return"] for row in read_lines(directory / "evaluation.jsonl")]
    print(f"IPPO on TextArena's GuessTheNumber-v0: {returns[0]:.3f} -> {returns[-1]:.3f}")
    return returns[0], returns[-1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    before, after = main(arguments.updates, arguments.seed)
    raise SystemExit(0 if after > before else "the return did not rise")
