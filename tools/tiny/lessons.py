"""What the embedded model is taught on: token sequences, and which of their tokens it is to predict.

Axes: B sequences, S tokens of a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor
from vocabulary import words

from collm.agents.encoding import Encoder
from collm.envs.coding.mini_code import demonstration as coding
from collm.envs.core import Message
from collm.envs.games.mini_build import demonstration as building
from collm.envs.games.mini_build.prompts import Feedback
from collm.envs.writing.mini_writing.prompts import demonstration as writing
from collm.envs.writing.mini_writing.rules import generated_post

_TASKS = ("writing", "writing", "building", "building", "coding")  # each gives 2 lessons
_HORIZONS = (6, 6, 6, 6, 6, 4, 3, 2, 8, 12)  # the default most often
_FEEDBACK: tuple[Feedback, ...] = ("own", "cross", "cross", "both", "none")
_CODING_MISTAKES = (0.3, 0.5)
_NUM_PAIRS = (6, 14)
_NUM_REPLIES = (4, 14)
_ANSWERED_SHARE = 0.7
_NUM_SENTENCES = (3, 6)
_SENTENCE_LENGTH = (4, 8)
_NUM_SENTENCE_WORDS = 10
_NUM_COPIED = 4


@dataclass(frozen=True)
class Lesson:
    """One sequence."""

    ids: tuple[int, ...]
    is_target: tuple[bool, ...]  # true of the tokens that the model itself is to write


def recall_lesson(rng: Random, encoder: Encoder) -> Lesson:
    """Random pairs of words, then the same pairs in another order.

    It teaches to pick from what the prompt lists and to look up what belongs to it, which two layers learn very slowly
    from the tasks alone. A pair's first word comes back with or without a space before it, as words do that stand
    inside a line or begin one.
    """
    known = words()
    keys = rng.sample(known, rng.randint(*_NUM_PAIRS))
    values = [rng.choice(known) for _ in keys]
    ids = [index for pair in zip(keys, values, strict=True) for word in pair for index in encoder.content(f" {word}")]
    ids += encoder.content("\n")
    is_target = [False] * len(ids)
    for place in rng.sample(range(len(keys)), len(keys)):
        question = encoder.content(rng.choice(("", " ")) + keys[place])
        answer = encoder.content(f" {values[place]}")
        ids += question + answer
        is_target += [True] * (len(question) + len(answer))
    return Lesson(tuple(ids), tuple(is_target))


def memory_lesson(rng: Random, encoder: Encoder) -> Lesson:
    """Random pairs of words, then a reply for each of them, in another order, with a word of answer after it or none.

    It teaches not to name again what the own replies have named, as the tasks alone hardly do: there a reply names one
    of many pairs, and seldom the last that is left.
    """
    known = words()
    keys = rng.sample(known, rng.randint(*_NUM_REPLIES))
    values = [rng.choice(known) for _ in keys]
    answers = rng.sample(known, 2) if rng.random() < _ANSWERED_SHARE else [""]
    listed = " ".join(word for pair in zip(keys, values, strict=True) for word in pair)
    messages = [Message("user", f" {listed}")]
    for place in rng.sample(range(len(keys)), len(keys)):
        messages += [Message("assistant", f"{keys[place]} {values[place]}"), Message("user", rng.choice(answers))]
    return transcript_lesson(messages, encoder)


def sentences_lesson(rng: Random, encoder: Encoder) -> Lesson:
    """Random sentences over few words, and some of them copied.

    Every word stands in several sentences, so the next word follows from the last few words, and not from the last one
    alone as in `recall_lesson`.
    """
    known = rng.sample(words(), _NUM_SENTENCE_WORDS)
    lengths = [rng.randint(*_SENTENCE_LENGTH) for _ in range(rng.randint(*_NUM_SENTENCES))]
    return copy_lesson(rng, encoder, [" ".join(rng.choices(known, k=length)) + "." for length in lengths])


def copy_lesson(rng: Random, encoder: Encoder, sentences: Sequence[str]) -> Lesson:
    """Sentences, then a reply that copies one to four of them in their order, from any of them on."""
    start, count = rng.randrange(len(sentences)), rng.randint(1, _NUM_COPIED)
    copied = (*sentences, *sentences)[start : start + count]
    return transcript_lesson([Message("user", " ".join(sentences)), Message("assistant", " ".join(copied))], encoder)


def demonstration_lessons(rng: Random, encoder: Encoder) -> list[Lesson]:
    """An episode of a noisy scripted team at one of the mini tasks, drawn at random, as each agent saw it.

    In MiniWriting it is the text of one writer, and a post of which some sentences are copied without a mistake: the
    careless demonstrations alone do not teach exact copies.
    """
    task = rng.choice(_TASKS)
    if task == "writing":
        prompt, reply = writing(rng)
        facts = generated_post(rng).facts
        return [
            transcript_lesson([Message("user", prompt), Message("assistant", reply)], encoder),
            copy_lesson(rng, encoder, [fact.sentence for fact in facts]),
        ]
    if task == "coding":
        episode = coding(rng, mistakes=_CODING_MISTAKES)
    else:
        episode = building(rng, max_turns=rng.choice(_HORIZONS), feedback=rng.choice(_FEEDBACK))
    return [transcript_lesson(messages, encoder) for messages in episode.values()]


def transcript_lesson(messages: Sequence[Message], encoder: Encoder) -> Lesson:
    """A transcript as `Encoder` encodes it in plain mode: the replies and their end-of-text tokens are the targets."""
    ids: list[int] = []
    is_target: list[bool] = []
    last_reply = max(i for i, message in enumerate(messages) if message.role == "assistant")
    for message in messages[: last_reply + 1]:
        is_reply = message.role == "assistant"
        added = (
            [*encoder.content(message.content), encoder.end_id] if is_reply else encoder.content(f"{message.content}\n")
        )
        ids += added
        is_target += [is_reply] * len(added)
    return Lesson(tuple(ids), tuple(is_target))


def batch(lessons: Sequence[Lesson], padding_id: int) -> tuple[Tensor, Tensor]:
    """Lessons side by side: ids [B, S], padded on the right, and where they are targets [B, S]."""
    length = max(len(lesson.ids) for lesson in lessons)
    ids = torch.full((len(lessons), length), padding_id)
    is_target = torch.zeros(len(lessons), length, dtype=torch.bool)
    for row, lesson in enumerate(lessons):
        ids[row, : len(lesson.ids)] = torch.tensor(lesson.ids)
        is_target[row, : len(lesson.ids)] = torch.tensor(lesson.is_target)
    return ids, is_target
