"""Train the embedded model: `python tools/tiny/make.py --out FOLDER`, about eight minutes on one core.

The first phase trains associative recall, memory of own replies, and copies of sentences. The second phase trains noisy
demonstrations of all mini tasks. The weights depend only on the settings.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
import tyro
from lessons import Lesson, batch, demonstration_lessons, memory_lesson, recall_lesson, sentences_lesson
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from vocabulary import new_tokenizer, words
from wiring import wire_recall

from collm.agents.encoding import Encoder

WARM_UP_STEPS = 50
MAX_GRADIENT_NORM = 1.0


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


def target_loss(model: LlamaForCausalLM, ids: Tensor, is_target: Tensor) -> Tensor:
    """Return the mean cross-entropy of the target tokens, each given all earlier tokens of its sequence.

    Args:
        ids: [B, S], padded on the right. Causal attention needs no mask for this padding.
        is_target: [B, S].
    """
    hidden = model.model(input_ids=ids[:, :-1]).last_hidden_state
    is_wanted = is_target[:, 1:]
    # The output layer is a third of the work. It is computed only at positions before a target.
    return functional.cross_entropy(model.lm_head(hidden[is_wanted]), ids[:, 1:][is_wanted])


def train(
    model: LlamaForCausalLM, steps: int, lr: float, next_batch: Callable[[], tuple[Tensor, Tensor]], name: str
) -> None:
    """Train with AdamW, a linear warm-up, and a cosine decay to 5 % of the learning rate."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min(1.0, (step + 1) / WARM_UP_STEPS) * (0.05 + 0.95 * (1 + math.cos(math.pi * step / steps)) / 2),
    )
    started = time.perf_counter()
    for step in range(steps):
        loss = target_loss(model, *next_batch())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()
        schedule.step()
        if step % 100 == 99:
            print(
                f"{name} {step + 1}/{steps}: loss {loss.item():.3f}, {time.perf_counter() - started:.0f} s", flush=True
            )


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

    train(model, recipe.recall_steps, recipe.recall_lr, recall, "recall")
    train(model, recipe.task_steps, recipe.task_lr, tasks, "tasks")
    return model, tokenizer


def check_is_empty(out: Path) -> None:
    """Exit with an error message if the folder `out` contains files, or is a file."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise SystemExit(f"error: --out {out} is not an empty folder; give a new or empty folder")


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """Write the model with float16 weights, which halves the files, and a config that loads the weights as float32."""
    model.half().save_pretrained(out)
    model.config.dtype = torch.float32
    model.config.save_pretrained(out)
    tokenizer.save_pretrained(out)


def main() -> None:
    torch.set_num_threads(1)  # more threads change the order of sums, and so the weights
    recipe = tyro.cli(Recipe, description=__doc__)
    check_is_empty(recipe.out)
    save(*make(recipe), recipe.out)


if __name__ == "__main__":
    main()
