"""Start checkpoints: the embedded model, taught on with demonstrations of one more task, from which trainings begin.

python tools/tiny/start.py --out FOLDER --seed 1

Less than a minute of one core; 0.9 MB. The model that is taught on may be another one of the recipe's kind (`--model`),
so that what was learned elsewhere is kept: lessons here add a task and take none away.
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
    """How a start checkpoint is made; the defaults, with seeds 1, 2 and 3, made those of the suite "shift"."""

    out: Path
    """Folder for the model and its tokenizer, which must be new or empty."""
    seed: int = 1
    """Seed of all lessons."""
    model: Path = TINY_DIRECTORY
    """Folder of the model that is taught on; by default the embedded one."""
    steps: int = 400
    """Updates."""
    batch: int = 32
    """Sequences per update."""
    lr: float = 1.5e-3
    """Peak learning rate."""


def shift_lessons(rng: Random, encoder: Encoder) -> list[Lesson]:
    """An episode of noisy players of MiniShift, as each of them saw it, of any horizon, team, feedback and order."""
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
    """Teach the model on; nothing is written.

    Args:
        start: settings.
        lessons: draws the lessons of an episode.
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
    torch.set_num_threads(1)  # with more, sums are taken in another order and the weights differ
    start = tyro.cli(Start, description=__doc__)
    check_is_empty(start.out)
    save(*taught_on(start), start.out)


if __name__ == "__main__":
    main()
