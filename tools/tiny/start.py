"""Make a start checkpoint for training runs: the embedded model, trained further on demonstrations of MiniShift.

python tools/tiny/start.py --out FOLDER --seed 1

It takes less than a minute on one core, and the checkpoint has 0.9 MB. `--model` gives another model made by `make.py`
or by this script. The training adds MiniShift to the tasks that this model has learned before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
import tyro
from lessons import Lesson, batch, transcript_lesson
from make import check_is_empty, save, train
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from collm.agents.encoding import Encoder
from collm.agents.tiny import TINY_DIRECTORY
from collm.envs.games.mini_build.prompts import Feedback
from collm.envs.games.mini_shift import demonstration as shift

_HORIZONS = (8, 8, 8, 6, 4, 2, 12)
_TEAMS = (2, 2, 2, 3, 4)
_FEEDBACK: tuple[Feedback, ...] = ("own", "cross", "cross", "both", "none")


@dataclass(frozen=True)
class Start:
    """Settings of a start checkpoint. The suite "shift" uses the defaults with seeds 1, 2 and 3."""

    out: Path
    """New or empty folder for the model and its tokenizer."""
    seed: int = 1
    """Seed of all training sequences."""
    model: Path = TINY_DIRECTORY
    """Folder of the model to train further. Default: the embedded model."""
    steps: int = 400
    """Number of updates."""
    batch: int = 32
    """Sequences per update."""
    lr: float = 1.5e-3
    """Peak learning rate."""


def shift_lessons(rng: Random, encoder: Encoder) -> list[Lesson]:
    """Return an episode of noisy MiniShift players with random settings, one lesson per agent."""
    episode = shift(
        rng,
        num_agents=rng.choice(_TEAMS),
        max_turns=rng.choice(_HORIZONS),
        feedback=rng.choice(_FEEDBACK),
        is_shuffled=rng.random() < 1 / 3,
    )
    return [transcript_lesson(messages, encoder) for messages in episode.values()]


def taught_on(
    start: Start, lessons: Callable[[Random, Encoder], list[Lesson]] = shift_lessons
) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Train the model further, and return it with its tokenizer. No file is written.

    Args:
        start: settings.
        lessons: function that returns the lessons of a random episode.
    """
    torch.manual_seed(start.seed)
    rng = Random(start.seed)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(start.model)
    model = LlamaForCausalLM.from_pretrained(start.model, dtype=torch.float32)
    encoder = Encoder(tokenizer)

    def next_batch() -> tuple[Tensor, Tensor]:
        drawn: list[Lesson] = []
        while len(drawn) < start.batch:
            drawn += lessons(rng, encoder)
        return batch(drawn[: start.batch], tokenizer.pad_token_id)

    train(model, start.steps, start.lr, next_batch, "lessons")
    return model, tokenizer


def main() -> None:
    torch.set_num_threads(1)  # more threads change the order of sums, and so the weights
    start = tyro.cli(Start, description=__doc__)
    check_is_empty(start.out)
    save(*taught_on(start), start.out)


if __name__ == "__main__":
    main()
