"""Supervised training of a language model on demonstrations, which makes start checkpoints.

Axes: B sequences, S tokens of a sequence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from ..._errors import UserError
from ..._functions import called
from ...envs.core import Message, Transcript
from ..core import Completion
from ..encoding import Encoder, TokenRecord
from .model import LanguageModel

Demonstration: TypeAlias = Callable[[Random], Mapping[str, Sequence[Message]]]
"""Function that plays a random episode and returns the messages of each agent; role "assistant" marks its replies."""
WARM_UP_STEPS = 50
MAX_GRADIENT_NORM = 1.0


@dataclass(frozen=True)
class Lesson:
    """One training sequence."""

    ids: tuple[int, ...]
    is_target: tuple[bool, ...]  # True for tokens that the model learns to predict


def transcript_lesson(messages: Sequence[Message], encoder: Encoder) -> Lesson:
    """Encode a transcript as an agent's prompts and replies. Replies and the tokens that end them are the targets."""
    ids: list[int] = []
    is_target: list[bool] = []
    previous: Completion | None = None
    for number, message in enumerate(messages):
        if message.role == "assistant":
            history = Transcript(messages[:number])
            prompt, _ = encoder.prompt(history, previous)
            reply = np.concatenate(encoder.reply_ids(message.content, prompt)).astype(np.int64)
            is_target += [False] * (len(prompt) - len(ids)) + [True] * len(reply)
            ids = [*prompt.tolist(), *reply.tolist()]
            previous = Completion(message.content, tokens=TokenRecord(prompt, reply, True, history))
    return Lesson(tuple(ids), tuple(is_target))


def batch(lessons: Sequence[Lesson], padding_id: int) -> tuple[Tensor, Tensor]:
    """Return a batch of lessons: ids [B, S], padded on the right, and the mask of targets [B, S]."""
    ids = pad_sequence([torch.tensor(each.ids) for each in lessons], batch_first=True, padding_value=padding_id)
    return ids, pad_sequence([torch.tensor(each.is_target) for each in lessons], batch_first=True)


def target_loss(model: Any, ids: Tensor, is_target: Tensor) -> Tensor:
    """Return the mean cross-entropy of the target tokens, each given all earlier tokens of its sequence.

    Args:
        model: causal language model of transformers.
        ids: [B, S], padded on the right. Causal attention needs no mask for this padding.
        is_target: [B, S].
    """
    is_wanted = is_target[:, 1:]

    def select(head: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (args[0][is_wanted], *args[1:])

    # The output layer is a third of the work. It is computed only at positions before a target.
    with model.get_output_embeddings().register_forward_pre_hook(select):
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits
    return functional.cross_entropy(logits, ids[:, 1:][is_wanted])


def train(
    model: Any,
    num_updates: int,
    learning_rate: float,
    next_batch: Callable[[], tuple[Tensor, Tensor]],
    on_update: Callable[[int, float], None] = lambda update, loss: None,
) -> None:
    """Train with AdamW, a linear warm-up, and a cosine decay to 5 % of the learning rate.

    Args:
        next_batch: returns ids [B, S] and the mask of targets [B, S]; see `batch`.
        on_update: called after each update with its number, from 1, and its loss.

    Raises `UserError` if the loss is not finite.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.01)

    def factor(step: int) -> float:
        decay = 0.05 + 0.95 * (1 + math.cos(math.pi * step / num_updates)) / 2
        return min(1.0, (step + 1) / WARM_UP_STEPS) * decay

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    for step in range(num_updates):
        loss = target_loss(model, *next_batch())
        if not loss.isfinite():
            raise UserError(f"the loss of update {step + 1} is {loss:g}; use a learning rate below {learning_rate:g}")
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()
        schedule.step()
        on_update(step + 1, loss.item())


def demonstrated(demonstrate: Demonstration, rng: Random) -> Mapping[str, Sequence[Message]]:
    """Play a demonstration. Raise `UserError` if the function fails, or an agent of the episode has no reply."""
    name = getattr(demonstrate, "__name__", repr(demonstrate))
    played = called(f"the demonstration {name}", lambda: demonstrate(rng))
    if not isinstance(played, Mapping) or not played or not all(map(_has_reply, played.values())):
        raise UserError(
            f"the demonstration {name} must return the messages of each agent, of which one has the role 'assistant', "
            f"got {played!r:.200}"
        )
    return played


def _has_reply(messages: Any) -> bool:
    are_messages = isinstance(messages, Sequence) and all(isinstance(message, Message) for message in messages)
    return are_messages and any(message.role == "assistant" for message in messages)


def imitate(
    model: LanguageModel,
    demonstrate: Demonstration,
    *,
    num_updates: int = 400,
    batch_size: int = 32,
    learning_rate: float = 1.5e-3,
    seed: int = 1,
    on_update: Callable[[int, float], None] = lambda update, loss: None,
) -> None:
    """Train a model to predict the replies in demonstrations. Every agent of an episode gives one sequence.

    Args:
        model: language model, whose weights are changed.
        batch_size: sequences per update.
        learning_rate: peak learning rate of AdamW.
        seed: seed of the demonstrations.

    Raises:
        UserError: if a demonstration is malformed or longer than the model's context, or the loss is not finite.
    """
    rng, tokenizer = Random(seed), model.encoder.tokenizer
    padding_id = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    torch.manual_seed(seed)

    def next_batch() -> tuple[Tensor, Tensor]:
        drawn: list[Lesson] = []
        while len(drawn) < batch_size:
            drawn += [transcript_lesson(each, model.encoder) for each in demonstrated(demonstrate, rng).values()]
        longest = max(len(lesson.ids) for lesson in drawn)
        if model.context is not None and longest > model.context:
            raise UserError(
                f"a demonstration has {longest} tokens, but the model's context has {model.context}; return shorter "
                "episodes, or use a model with a longer context"
            )
        return batch(drawn[:batch_size], padding_id)

    train(model.base, num_updates, learning_rate, next_batch, on_update)


def save(model: Any, tokenizer: Any, out: Path) -> None:
    """Write the model with float16 weights, which halves the files, and a config that loads the weights as float32.

    Raises `UserError` if a weight is not finite in float16.
    """
    if not all(weight.isfinite().all() for weight in model.half().parameters()):
        raise UserError("the trained weights are not finite in float16, so they are not saved; lower learning_rate")
    model.save_pretrained(out)
    model.config.dtype = torch.float32
    model.config.save_pretrained(out)
    tokenizer.save_pretrained(out)
