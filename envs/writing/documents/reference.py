"""A scripted pair of texts about any source that passes every gate, found by trying a few lengths."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import cycle, pairwise

from .rules import MAX_SCORE, Form, measures, score, terms

# One phrase for each category of transition words.
_OPENERS = (
    "First", "Moreover", "For example", "However", "In fact", "Meanwhile", "Therefore", "Similarly", "Even so",
    "Indeed", "If so", "Overall",
)  # fmt: skip


@lru_cache(maxsize=256)  # both writers ask for theirs
def reference_pair(form: Form, source: str) -> tuple[str, str]:
    """The best of a few dozen pairs made of the source's own words and of transition phrases.

    The first text is the beginning of the source; the second is the source, or its end, cut into clauses, each opened
    by a transition phrase. Where the source is too short it is told again.
    """
    best, best_score = ("", ""), -1.0
    for first, second in _candidates(form, source):
        reached = score(terms(form, measures(form, source, first, second)))
        if reached > best_score:
            best, best_score = (first, second), reached
        if best_score > MAX_SCORE - 1e-9:
            break
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
                        yield " ".join(first), _opened(_taken(pool, round(len(first) * share)), num_openers)


def _taken(words: list[str], count: int) -> list[str]:
    """The first words, from the beginning again where there are too few."""
    return [word for word, _ in zip(cycle(words), range(count), strict=False)]


def _opened(words: list[str], num_openers: int) -> str:
    """The words in as many clauses as there are openers, each after its own."""
    if not num_openers:
        return " ".join(words)
    cuts = [len(words) * i // num_openers for i in range(num_openers + 1)]
    clauses = [words[start:end] for start, end in pairwise(cuts)]
    told = (f"{opener}, {' '.join(clause)}".rstrip(" ,") for opener, clause in zip(_OPENERS, clauses, strict=False))
    return ". ".join(re.sub(r"[.,;:]$", "", text) for text in told) + "."
