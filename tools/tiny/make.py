"""Train the embedded model: `python tools/tiny/make.py --out FOLDER`, about eight minutes on one core.

The first phase trains associative recall, memory of own replies, and copies of sentences. The second phase trains noisy
demonstrations of all mini tasks. The weights depend only on the settings.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
import tyro
from lessons import demonstration_lessons, memory_lesson, recall_lesson, sentences_lesson
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from vocabulary import new_tokenizer, words
from wiring import wire_recall

from collm.agents.encoding import Encoder
from collm.agents.language.imitation import Lesson, batch, save, train


@dataclass(frozen=True)
class Recipe:
    """Settings of the training. The defaults produce the model that ships with the package."""

    out: Path
    """New or empty folder for the model and its tokenizer."""
    seed: int = 0
    """Seed of the initial weights and of all training sequences."""
    recall_steps: int = 450
    """Number of updates on associative recall, memory and copies."""
    recall_batch: int = 48
    """Sequences per update on recall, memory and copies, on average a third of each kind."""
    recall_lr: float = 3e-3
    """Peak learning rate on recall, memory and copies."""
    task_steps: int = 1250
    """Number of updates on demonstrations."""
    task_batch: int = 32
    """Sequences per update on demonstrations."""
    task_lr: float = 2e-3
    """Peak learning rate on demonstrations."""


def new_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Return the untrained model, with about 0.58 M parameters."""
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=8,
            head_dim=32,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    encoder = Encoder(tokenizer)
    wire_recall(model, [(encoder.content(f" {word}")[0], encoder.content(word)[0]) for word in words()])
    return model


def progress(name: str) -> Callable[[int, float], None]:
    """Return a function that prints the loss of every 100th update."""
    started = time.perf_counter()

    def on_update(update: int, loss: float) -> None:
        if update % 100 == 0:
            print(f"{name} {update}: loss {loss:.3f}, {time.perf_counter() - started:.0f} s", flush=True)

    return on_update


def make(recipe: Recipe) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Train the model and return it with its tokenizer. No file is written."""
    torch.manual_seed(recipe.seed)
    rng = Random(recipe.seed)
    tokenizer = new_tokenizer()
    encoder = Encoder(tokenizer)
    model = new_model(tokenizer)
    padding_id = tokenizer.pad_token_id
    kinds = (recall_lesson, memory_lesson, sentences_lesson)

    def recall() -> tuple[Tensor, Tensor]:
        return batch([rng.choice(kinds)(rng, encoder) for _ in range(recipe.recall_batch)], padding_id)

    def tasks() -> tuple[Tensor, Tensor]:
        lessons: list[Lesson] = []
        while len(lessons) < recipe.task_batch:
            lessons += demonstration_lessons(rng, encoder)
        return batch(lessons, padding_id)

    train(model, recipe.recall_steps, recipe.recall_lr, recall, progress("recall"))
    train(model, recipe.task_steps, recipe.task_lr, tasks, progress("tasks"))
    return model, tokenizer


def check_is_empty(out: Path) -> None:
    """Exit with an error message if the folder `out` contains files, or is a file."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise SystemExit(f"error: --out {out} is not an empty folder; give a new or empty folder")


def main() -> None:
    torch.set_num_threads(1)  # more threads change the order of sums, and so the weights
    recipe = tyro.cli(Recipe, description=__doc__)
    check_is_empty(recipe.out)
    save(*make(recipe), recipe.out)


if __name__ == "__main__":
    main()
