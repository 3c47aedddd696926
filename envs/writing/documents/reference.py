"""Scripted texts about a source: its sentences with transition words, and general remarks if the source is short."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from functools import lru_cache
from itertools import cycle, islice, product, zip_longest

from .rules import APART, MAX_SCORE, Form, measures, overlap, team_terms, terms

_OPENINGS = (
    "But then also,",
    "If so,",
    "In particular,",
    "Indeed similarly,",
    "Even so overall,",
    "In fact as before,",
)
"""Openings of sentences. Together they contain a phrase of each of the twelve transition categories."""
_FRAMES = (
    "it is important to note that",
    "it has recently been shown that",
    "we first find that",
    "we also show that",
    "it can be shown that",
)
"""Main clauses that lengthen a sentence of the source. The result is scored as a new sentence, not as a copy."""
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
"""Clauses that lengthen texts about short sources. Each writer starts at another place of the list."""
_FRAMED = (range(0), range(0, 99, 3), range(0, 99, 2))
"""Indices of the sentences that get a main clause (frame): none, a third, a half."""
_MAX_FIRST_TEXTS, _MAX_LATER_TEXTS = 30, 40


@lru_cache(maxsize=256)  # the function is called once per writer
def reference_team(form: Form, source: str, num_writers: int) -> tuple[str, ...]:
    """Build several sets of texts from the source's sentences, and return the set with the highest score.

    The first text is the beginning of the source or, for a form with a short first text, one to three of its sentences.
    Each later writer gets the text with the highest score about its part of the source.
    """
    best, best_score = [""] * num_writers, -1.0
    units = source_sentences(source)
    for first in islice(_first_texts(form, source, units), _MAX_FIRST_TEXTS // (num_writers - 1)):
        texts = [first]
        for place in range(1, num_writers):
            texts.append(_best_beside(form, source, texts, units, place, num_writers))
        pairs = [measures(form, source, first, text) for text in texts[1:]]
        reached = sum(team_terms(form, source, texts, pairs).values())
        if reached > best_score:
            best, best_score = texts, reached
        if best_score > MAX_SCORE - 1e-9:
            break
    return tuple(best)


def source_sentences(source: str) -> list[str]:
    """Return the sentences of a source without their final marks."""
    found = (unit.strip().rstrip(".!?").strip() for unit in re.split(r"(?<=[.!?])\s+", source))
    return [unit for unit in found if unit] or [source]


def _first_texts(form: Form, source: str, units: Sequence[str]) -> Iterator[str]:
    """Yield texts for the first writer, likely better ones first. The last text always has a valid length."""
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
    """Return the text of a later writer that has the best score together with `texts`."""
    best, best_score = "", -1.0
    for text in islice(_later_texts(form, source, texts[0], units, place, num_writers), _MAX_LATER_TEXTS):
        apart = min((APART.credit(overlap(text, other)) for other in texts[1:]), default=1.0)
        pair = [measures(form, source, texts[0], text)]
        points = team_terms(form, source, [texts[0], text], pair) if num_writers == 2 else terms(form, pair[0])
        reached = sum(points.values()) * apart
        if reached > best_score:
            best, best_score = text, reached
        if best_score > MAX_SCORE - 1e-9:
            break
    return best


def _later_texts(
    form: Form, source: str, first: str, units: Sequence[str], place: int, num_writers: int
) -> Iterator[str]:
    """Yield texts of valid length for a later writer, likely better ones first."""
    for num_remarks, part in product((0, 2, 4, 6, 1, 3, 5), _stretches(units, place - 1, num_writers - 1)):
        for framed in _FRAMED:
            text = _text(part, _OPENINGS, place, num_remarks, framed=framed)
            is_long = form.min_words <= len(text.split()) <= form.max_words
            if is_long and form.length_ratio.credit(len(text) / len(first)) == 1:
                yield text
    yield _of_length(_text(units, _OPENINGS, place, 8), form.min_words, form.max_words)


def _stretches(units: Sequence[str], place: int, num_places: int) -> Iterator[list[str]]:
    """Yield choices of sentences for writer `place`: a part of the source, or every 2nd, 3rd or 4th sentence."""
    for share in (1.0, 0.8, 0.65, 0.9, 0.5) if num_places == 1 else (0.5, 0.65, 0.8, 0.4):
        size = max(1, round(share * len(units)))
        start = round((len(units) - size) * (1.0 if num_places == 1 else place / (num_places - 1)))
        yield list(units[start : start + size])
    for step in (2, 3, 4):
        yield list(units[place % step :: step])


def _of_length(text: str, min_words: int, max_words: int) -> str:
    words = text.split()
    return " ".join(islice(cycle(words), min(max(min_words, len(words)), max_words)))


def _text(
    part: Sequence[str], openings: Sequence[str], place: int, num_remarks: int, *, framed: Container[int] = ()
) -> str:
    """Join sentences, with openings before the first ones, remarks between them, and frames at the indices `framed`."""
    frames = cycle([*_FRAMES[place:], *_FRAMES[:place]])
    clauses = [f"{next(frames)} {clause}" if number in framed else clause for number, clause in enumerate(part)]
    for number in range(num_remarks):
        clauses.insert(min(len(clauses), 2 * number + 1), _REMARKS[(place * 7 + number) % len(_REMARKS)])
    opened = zip_longest(openings[: len(clauses)], clauses, fillvalue="")
    return " ".join(f"{opening} {clause}.".strip() for opening, clause in opened)
