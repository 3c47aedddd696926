"""Scripted texts about any source that pass every gate, found by trying a few lengths."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import cycle, pairwise

from .rules import APART, MAX_SCORE, Form, measures, overlap, score, team_terms, terms

# One phrase for each category of transition words.
_OPENERS = (
    "First", "Moreover", "For example", "However", "In fact", "Meanwhile", "Therefore", "Similarly", "Even so",
    "Indeed", "If so", "Overall",
)  # fmt: skip


@lru_cache(maxsize=256)  # both writers ask for theirs
def reference_pair(form: Form, source: str) -> tuple[str, str]:
    """The best of a few dozen pairs made of the source's own words and of transition phrases.

    The first text is the beginning of the source; the second is the source, or its end, cut into clauses, each opened
    by a transition phrase; or clauses from all over the source. Where the source is too short it is told again.
    """
    best, best_score = ("", ""), -1.0
    for first, second in _candidates(form, source):
        reached = score(team_terms(form, source, (first, second), [measures(form, source, first, second)]))
        if reached > best_score:
            best, best_score = (first, second), reached
        if best_score > MAX_SCORE - 1e-9:
            break
    return best


@lru_cache(maxsize=256)
def reference_team(form: Form, source: str, num_writers: int) -> tuple[str, ...]:
    """A text for each writer of a team: for two the `reference_pair`, for more the best of a few teams.

    Each later writer tells a stretch of its own of the source, and of those that it tries takes the text that is best
    beside the first writer's and the ones before it.
    """
    if num_writers == 2:
        return reference_pair(form, source)
    best, best_score = [""] * num_writers, -1.0
    for first in _beginnings(form, source.split()):
        texts = [first]
        for place in range(num_writers - 1):
            texts.append(_best_beside(form, source, texts, _stretches(source.split(), place, num_writers - 1)))
        pairs = [measures(form, source, first, text) for text in texts[1:]]
        reached = score(team_terms(form, source, texts, pairs))
        if reached > best_score:
            best, best_score = texts, reached
        if best_score > MAX_SCORE - 1e-9:
            break
    return tuple(best)


def _beginnings(form: Form, words: list[str]) -> Iterator[str]:
    """Texts of the first writer: the source's beginning at several lengths, from a part of it or the whole."""
    for extra in (8, 16):
        for share in (1.0, 0.6):
            yield " ".join(_taken(words[: max(1, round(share * len(words)))], form.min_words + extra))


def _stretches(words: list[str], place: int, count: int) -> list[list[str]]:
    """Parts of the source that belong to one of so many places, the narrow ones first."""
    sizes = [round(share * len(words)) for share in (0.45, 0.6, 0.75)]
    starts = [round((len(words) - size) * place / (count - 1)) for size in sizes]
    return [words[start : start + size] or words for start, size in zip(starts, sizes, strict=True)]


def _best_beside(form: Form, source: str, texts: list[str], stretches: list[list[str]]) -> str:
    """The text about one of the stretches that adds most to the ones that are there."""
    best, best_score = "", -1.0
    length = len(texts[0].split())
    for num_openers in (len(_OPENERS), 6):
        for share in (2.3, 1.9, 1.4, 1.2):
            for stretch in stretches:
                text = _opened(_taken(stretch, round(length * share)), num_openers)
                apart = min((APART.credit(overlap(text, other)) for other in texts[1:]), default=1.0)
                reached = score(terms(form, measures(form, source, texts[0], text))) * apart
                if reached > best_score:
                    best, best_score = text, reached
                if best_score > MAX_SCORE - 1e-9:
                    return best
    return best


def _candidates(form: Form, source: str) -> Iterator[tuple[str, str]]:
    words = source.split()
    parts = [(words, words)]
    if 2 * form.min_words > len(words):  # two long texts about one short source would be one text twice
        parts = [(words[: len(words) - left], words[left:]) for left in (len(words) // 3, len(words) // 4)] + parts
    for extra in (16, 8, 2, 30, 50):
        for part, other_part in parts:
            first = _taken(part, form.min_words + extra)
            for pool in (other_part, first):
                for share in (2.3, 1.9, 1.6, 1.3, 1.1, 1.0):
                    for num_openers in (len(_OPENERS), 8, 4, 0):
                        count = round(len(first) * share)
                        if form.coverage is not None and num_openers:
                            yield " ".join(first), _opened(_spread(pool, count, num_openers), num_openers)
                        yield " ".join(first), _opened(_taken(pool, count), num_openers)


def _taken(words: list[str], count: int) -> list[str]:
    """The first words, from the beginning again where there are too few."""
    return [word for word, _ in zip(cycle(words), range(count), strict=False)]


def _spread(words: list[str], count: int, num_places: int) -> list[str]:
    """So many words, in stretches from as many places all over; all of them, again if need be, where they are few."""
    length = count // num_places
    if len(words) < num_places * length:
        return _taken(words, count)
    starts = [len(words) * place // num_places for place in range(num_places)]
    return [word for start in starts for word in words[start : start + length]]


def _opened(words: list[str], num_openers: int) -> str:
    """The words in as many clauses as there are openers, each after its own."""
    if not num_openers:
        return " ".join(words)
    cuts = [len(words) * i // num_openers for i in range(num_openers + 1)]
    clauses = [words[start:end] for start, end in pairwise(cuts)]
    told = (f"{opener}, {' '.join(clause)}".rstrip(" ,") for opener, clause in zip(_OPENERS, clauses, strict=False))
    return ". ".join(re.sub(r"[.,;:]$", "", text) for text in told) + "."
