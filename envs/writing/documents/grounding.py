"""How far a text tells what its source tells: in the source's words, in enough of them, and in their order.

    groundedness = min(1, share / 0.5) * density band(different / words) * order band(ordered / pairs)

share      of the text's subject words that the source has
different  subject words of the source in the text, each once; words: all words of the text
pairs      neighbouring subject words of the text that the source both has
ordered    different pairs among them that stand in this order in the source, at most three subject words apart

A word of the source again and again has no pairs; its words in a bag have the wrong ones; a text about something else
has no words; and a true summary, which leaves out and rewords, keeps most of what stands together in the source: of 619
summaries that people wrote (SciTLDR) 516 have half of the credit or more, of 30 words of each shuffled source five do.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from statistics import fmean

from .bands import Band
from .lexicon import Lexicon, words

FULL_SHARE = 0.5
ORDER = Band(0.2, 0.5)
REACH = 3
NUM_PARTS = 4
TOLD_PAIRS = 2


def groundedness(text: str, source: str, density: Band, lexicon: Lexicon) -> float:
    """The credit of one text, 0 to 1.

    Args:
        text: what was written.
        source: what it is about.
        density: different subject words of the source per word of the text.
        lexicon: which words are subject words.
    """
    told, known = lexicon.subject_words(text), frozenset(words(source))
    kept = [word for word in told if word in known]
    pairs = [pair for pair in pairwise(told) if known.issuperset(pair)]
    if not pairs:
        return 0.0
    ordered = _ordered_pairs(source, lexicon).intersection(pairs)
    share = min(1.0, len(kept) / len(told) / FULL_SHARE)
    return share * density.credit(len(set(kept)) / len(words(text))) * ORDER.credit(len(ordered) / len(pairs))


@lru_cache(maxsize=64)  # many texts are about one source
def _ordered_pairs(source: str, lexicon: Lexicon) -> frozenset[tuple[str, str]]:
    """The pairs of different subject words that stand in this order and near each other."""
    return frozenset(pair for part in _pairs_by_part(source, lexicon) for pair in part)


def coverage(texts: Iterable[str], source: str, lexicon: Lexicon) -> float:
    """Share of the source's quarters that the texts tell of together, 0 to 1.

    A quarter, by the number of subject words, is told of where at least `TOLD_PAIRS` of its places hold two subject
    words, in order and near each other, that are neighbours in a text.
    """
    told = {pair for text in texts for pair in pairwise(lexicon.subject_words(text))}
    return fmean(sum(pair in told for pair in part) >= TOLD_PAIRS for part in _pairs_by_part(source, lexicon))


@lru_cache(maxsize=64)
def _pairs_by_part(source: str, lexicon: Lexicon) -> tuple[tuple[tuple[str, str], ...], ...]:
    """The pairs of different subject words in order and near each other, by the quarter that the first stands in."""
    subject = lexicon.subject_words(source)
    parts: list[list[tuple[str, str]]] = [[] for _ in range(NUM_PARTS)]
    for at, word in enumerate(subject):
        near = subject[at + 1 : at + 1 + REACH]
        parts[at * NUM_PARTS // len(subject)] += [(word, later) for later in near if word != later]
    return tuple(map(tuple, parts))
