"""Training sequences of the embedded model, with masks of the tokens that the model learns to predict."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from vocabulary import words

from collm.agents.encoding import Encoder
from collm.agents.language.imitation import Lesson, transcript_lesson
from collm.envs.coding.mini_code import demonstration as coding
from collm.envs.core import Message
from collm.envs.games.mini_build import demonstration as building
from collm.envs.games.mini_build.prompts import Feedback
from collm.envs.writing.mini_writing.prompts import demonstration as writing
from collm.envs.writing.mini_writing.rules import generated_post

_TASKS = ("writing", "writing", "building", "building", "coding")  # each draw yields 2 lessons
_HORIZONS = (6, 6, 6, 6, 6, 4, 3, 2, 8, 12)  # turns per episode; the environment's default, 6, is most frequent
_FEEDBACK: tuple[Feedback, ...] = ("own", "cross", "cross", "both", "none")
_CODING_MISTAKES = (0.3, 0.5)
_NUM_PAIRS = (6, 14)
_NUM_REPLIES = (4, 14)
_ANSWERED_SHARE = 0.7
_NUM_SENTENCES = (3, 6)
_SENTENCE_LENGTH = (4, 8)
_NUM_SENTENCE_WORDS = 10
_NUM_COPIED = 4


def recall_lesson(rng: Random, encoder: Encoder) -> Lesson:
    """Return a lesson of associative recall: random pairs of words, then the same pairs in another order.

    The lesson teaches to copy a word from the prompt and to look up the second word of its pair. Two layers learn this
    very slowly from the tasks alone. The repeated first word has a space before it or not, like words inside a line and
    at the start of a line.
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
    """Return a lesson of memory: random pairs of words, then one reply per pair in another order, with short answers.

    The lesson teaches not to repeat a pair of an earlier reply. The tasks hardly teach this, because a reply in a task
    names one of many pairs, seldom the last remaining pair.
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
    """Return a lesson of random sentences over few words, some of which a reply copies.

    Each word is in several sentences. The next word therefore depends on the last few words, while it depends only on
    the last word in `recall_lesson`.
    """
    known = rng.sample(words(), _NUM_SENTENCE_WORDS)
    lengths = [rng.randint(*_SENTENCE_LENGTH) for _ in range(rng.randint(*_NUM_SENTENCES))]
    return copy_lesson(rng, encoder, [" ".join(rng.choices(known, k=length)) + "." for length in lengths])


def copy_lesson(rng: Random, encoder: Encoder, sentences: Sequence[str]) -> Lesson:
    """Return a lesson whose reply copies one to four successive sentences of the prompt, from a random sentence on."""
    start, count = rng.randrange(len(sentences)), rng.randint(1, _NUM_COPIED)
    copied = (*sentences, *sentences)[start : start + count]
    return transcript_lesson([Message("user", " ".join(sentences)), Message("assistant", " ".join(copied))], encoder)


def demonstration_lessons(rng: Random, encoder: Encoder) -> list[Lesson]:
    """Return an episode of a noisy scripted team in a random mini task, one lesson per agent.

    In MiniWriting, the lessons are the text of one writer, and an exact copy of some sentences of a post: noisy
    demonstrations do not teach exact copies.
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
