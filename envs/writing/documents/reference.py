"""Scripted texts about any source: its sentences, each framed in words of our own, and a few general sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import count, islice

from .rules import APART, MAX_SCORE, Form, measures, overlap, score, team_terms, terms

_FRAMES = (
    "First, and indeed above all, we find that",
    "Moreover, and in fact, it is also known that",
    "However, although this is true, we see that",
    "For example, when we look at this, we find that",
    "Similarly, if this is true, then we can say that",
    "Therefore, and overall, we can see that",
    "In addition, it is important to note that",
    "In particular, we can also see that",
    "As a result, we know that",
    "Finally, we can say that",
)
"""The first six hold a phrase of each of the twelve categories."""
_PLAIN_FRAMES = (
    "The main point is that", "It is important to note that", "We can also see that", "We know that",
)  # fmt: skip
_REMARKS = (
    "this is of interest to many people in practice",
    "there is still much to learn about the question",
    "it is worth a closer look",
    "the details are more important than they may seem",
    "this has been an open problem for a long time",
    "there are several reasons to study it",
    "the answer is not always simple",
    "we need to understand why this is the case",
    "different people have different views on the matter",
    "it will take more time and work to be sure",
    "others may come to the same conclusion",
    "there is more than one way to think about it",
    "the same idea can be used in other places",
    "this can help us to make better choices",
    "the effect is larger than one would expect",
    "we hope that it will be useful in the future",
)
"""General clauses for texts whose source is too short; each writer begins elsewhere in the list."""
_MAX_REMARKS = 8


@lru_cache(maxsize=256)  # all writers ask for theirs
def reference_team(form: Form, source: str, num_writers: int) -> tuple[str, ...]:
    """The best of a few teams of texts that are made of the source's own sentences.

    The first text has the beginning of the source, or any one or two sentences of it where a short text is wanted; each
    later writer has a stretch of its own, and the text of it that is best beside the first text and those before it.
    """
    best, best_score = [""] * num_writers, -1.0
    units = _units(source)
    for first in _first_texts(form, units):
        texts = [first]
        for place in range(1, num_writers):
            texts.append(_best_beside(form, source, texts, units, place, num_writers))
        pairs = [measures(form, source, first, text) for text in texts[1:]]
        reached = score(team_terms(form, source, texts, pairs))
        if reached > best_score:
            best, best_score = texts, reached
        if best_score > MAX_SCORE - 1e-9:
            break
    return tuple(best)


def _units(source: str) -> list[str]:
    """The sentences of a source, without the marks at their ends."""
    found = (unit.strip().rstrip(".!?").strip() for unit in re.split(r"(?<=[.!?])\s+", source))
    return [unit for unit in found if unit] or [source]


def _first_texts(form: Form, units: Sequence[str]) -> Iterator[str]:
    if form.transitions_of == "second":
        for size in (2, 1, 3):
            for start in range(max(1, len(units) - size + 1)):
                for num_remarks in (0, 1):
                    yield _text(units[start : start + size], _PLAIN_FRAMES, 0, num_remarks)
        return
    for extra in (6, 20, 35, 50):
        for share in (0.65, 0.8, 1.0, 0.5):
            part = units[: max(1, round(share * len(units)))]
            yield _at_least(part, _FRAMES, 0, form.min_words + extra)


def _best_beside(
    form: Form, source: str, texts: Sequence[str], units: Sequence[str], place: int, num_writers: int
) -> str:
    """The text of a later writer that adds most to the ones that are there."""
    best, best_score = "", -1.0
    num_words = len(texts[0].split())
    for ratio in (1.45, 2.3, 1.9, 2.8, 1.3, 1.6):
        for part in _stretches(units, place - 1, num_writers - 1):
            text = _at_least(part, _FRAMES, place, min(form.max_words - 12, round(num_words * ratio)))
            apart = min((APART.credit(overlap(text, other)) for other in texts[1:]), default=1.0)
            both = [texts[0], text]
            pair = [measures(form, source, *both)]
            points = team_terms(form, source, both, pair) if num_writers == 2 else terms(form, pair[0])
            if score(points) * apart > best_score:
                best, best_score = text, score(points) * apart
            if best_score > MAX_SCORE - 1e-9:
                return best
    return best


def _stretches(units: Sequence[str], place: int, num_places: int) -> Iterator[list[str]]:
    """Sentences for one of the later writers: a stretch around its place, its end, or sentences from all over it."""
    for share in (1.0, 0.8, 0.6, 0.45) if num_places == 1 else (0.5, 0.65, 0.8, 0.4):
        size = max(1, round(share * len(units)))
        start = round((len(units) - size) * (1.0 if num_places == 1 else place / (num_places - 1)))
        yield list(units[start : start + size])
    for step in (2, 3):
        yield list(units[place % step :: step]) or list(units)


def _at_least(part: Sequence[str], frames: Sequence[str], place: int, num_words: int) -> str:
    """Text of the part's sentences, as many as are needed, and then of as many remarks."""
    for size in range(1, len(part) + 1):
        text = _text(part[:size], frames, place, 0)
        if len(text.split()) >= num_words:
            return text
    for num_remarks in range(1, _MAX_REMARKS + 1):
        text = _text(part, frames, place, num_remarks)
        if len(text.split()) >= num_words:
            break
    return text


def _text(part: Sequence[str], frames: Sequence[str], place: int, num_remarks: int) -> str:
    """Each sentence behind a frame; then remarks behind the next frames."""
    start = place * _MAX_REMARKS
    remarks = (_REMARKS[number % len(_REMARKS)] for number in islice(count(start), num_remarks))
    clauses = [*part, *remarks]
    return " ".join(f"{frames[number % len(frames)]} {clause}." for number, clause in enumerate(clauses))
