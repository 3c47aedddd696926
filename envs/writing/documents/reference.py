"""Scripted texts about any source: its sentences behind transition words, and general remarks if it is too short."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from functools import lru_cache
from itertools import cycle, islice, product, zip_longest

from .rules import APART, MAX_SCORE, Form, measures, overlap, score, team_terms, terms

_OPENINGS = (
    "But then also,",
    "If so,",
    "In particular,",
    "Indeed similarly,",
    "Even so overall,",
    "In fact as before,",
)
"""Openings that together hold a phrase of each of the twelve transition categories."""
_FRAMES = (
    "it is important to note that",
    "it has recently been shown that",
    "we first find that",
    "we also show that",
    "it can be shown that",
)
"""Main clauses that make a sentence longer. The sentence then counts as one in words of its own."""
_REMARKS = (
    "this is an important problem in practice",
    "the problem has been studied for a long time",
    "there is a large body of work on the subject",
    "our understanding of the world is limited",
    "this is a difficult task for humans",
    "it takes a long time to find a good solution",
    "a small change can have a large effect on the outcome",
    "this is an important step towards a better understanding",
    "this can be useful for a wide range of applications",
    "the same idea can be applied to other problems",
    "the costs are low and the benefits are high",
    "this will be useful in many real world situations",
)
"""General clauses that lengthen texts about short sources. Each writer starts at another place of the list."""

_FRAMED = (range(0), range(0, 99, 3), range(0, 99, 2))
"""Places of the sentences that are put in a frame: none, a third, a half."""

_MAX_FIRST_TEXTS, _MAX_LATER_TEXTS = 30, 40


@lru_cache(maxsize=256)  # called once per writer
def reference_team(form: Form, source: str, num_writers: int) -> tuple[str, ...]:
    """The best of a few teams of texts that are made of the source's own sentences.

    The first text has the beginning of the source, or one to three sentences of it if the form wants a short text. Each
    later writer has a stretch of its own, and the text of it that is best beside the first text and those before it.
    """
    best, best_score = [""] * num_writers, -1.0
    units = source_sentences(source)
    for first in islice(_first_texts(form, source, units), _MAX_FIRST_TEXTS // (num_writers - 1)):
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


def source_sentences(source: str) -> list[str]:
    """The sentences of a source, without the marks at their ends."""
    found = (unit.strip().rstrip(".!?").strip() for unit in re.split(r"(?<=[.!?])\s+", source))
    return [unit for unit in found if unit] or [source]


def _first_texts(form: Form, source: str, units: Sequence[str]) -> Iterator[str]:
    """Texts of the first writer, the likeliest first; the last is cut or repeated to a length that the form allows."""
    if form.transitions_of == "second":
        for num_remarks, size in ((0, 2), (1, 2), (2, 2), (1, 1), (3, 3)):
            for start in range(0, max(1, len(units) - size + 1), 2):
                yield _text(units[start : start + size], (), 0, num_remarks)
    else:
        parts = [units[: max(1, round(share * len(units)))] for share in (0.6, 0.75, 0.9, 0.68, 0.45, 1.0)] + [
            units[::2]
        ]
        for num_remarks, part in product((0, 1, 2, 3, 4), parts):
            for framed in _FRAMED:
                text = _text(part, _OPENINGS, 0, num_remarks, framed=framed)
                if form.min_words <= len(text.split()) <= 0.75 * form.max_words:
                    yield text
    yield _of_length(_text(units, _OPENINGS, 0, 8), form.min_words, round(0.6 * form.max_words))


def _best_beside(
    form: Form, source: str, texts: Sequence[str], units: Sequence[str], place: int, num_writers: int
) -> str:
    """The text of a later writer that adds most to the ones that are there."""
    best, best_score = "", -1.0
    for text in islice(_later_texts(form, source, texts[0], units, place, num_writers), _MAX_LATER_TEXTS):
        apart = min((APART.credit(overlap(text, other)) for other in texts[1:]), default=1.0)
        pair = [measures(form, source, texts[0], text)]
        points = team_terms(form, source, [texts[0], text], pair) if num_writers == 2 else terms(form, pair[0])
        if score(points) * apart > best_score:
            best, best_score = text, score(points) * apart
        if best_score > MAX_SCORE - 1e-9:
            break
    return best


def _later_texts(
    form: Form, source: str, first: str, units: Sequence[str], place: int, num_writers: int
) -> Iterator[str]:
    """Texts of a later writer whose length is within the form's limits, the likeliest first."""
    for num_remarks, part in product((0, 2, 4, 6, 1, 3, 5), _stretches(units, place - 1, num_writers - 1)):
        for framed in _FRAMED:
            text = _text(part, _OPENINGS, place, num_remarks, framed=framed)
            is_long = form.min_words <= len(text.split()) <= form.max_words
            if is_long and form.length_ratio.credit(len(text) / len(first)) == 1:
                yield text
    yield _of_length(_text(units, _OPENINGS, place, 8), form.min_words, form.max_words)


def _stretches(units: Sequence[str], place: int, num_places: int) -> Iterator[list[str]]:
    """Sentences for one of the later writers: a stretch around its place, or some from all over the source."""
    for share in (1.0, 0.8, 0.65, 0.9, 0.5) if num_places == 1 else (0.5, 0.65, 0.8, 0.4):
        size = max(1, round(share * len(units)))
        start = round((len(units) - size) * (1.0 if num_places == 1 else place / (num_places - 1)))
        yield list(units[start : start + size])
    for step in (2, 3, 4):
        yield list(units[place % step :: step])


def _of_length(text: str, min_words: int, max_words: int) -> str:
    """The text, cut or repeated to a number of words within limits."""
    told = text.split()
    return " ".join(islice(cycle(told), min(max(min_words, len(told)), max_words)))


def _text(
    part: Sequence[str], openings: Sequence[str], place: int, num_remarks: int, *, framed: Container[int] = ()
) -> str:
    """The sentences of a part, with openings before the first ones and remarks between them.

    Sentences at the places `framed` are put in a main clause.
    """
    frames = cycle([*_FRAMES[place:], *_FRAMES[:place]])
    told = [f"{next(frames)} {clause}" if number in framed else clause for number, clause in enumerate(part)]
    for number in range(num_remarks):
        told.insert(min(len(told), 2 * number + 1), _REMARKS[(place * 7 + number) % len(_REMARKS)])
    opened = zip_longest(openings[: len(told)], told, fillvalue="")
    return " ".join(f"{opening} {clause}.".strip() for opening, clause in opened)
