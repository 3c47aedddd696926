"""Rules of TLDR and ArxivExpansion: measures of texts, and the terms of the reward.

`published_terms` computes the terms of CoMLRL's writing tasks (github.com/OpenMLRL/LLM_Collab_Writing). The other
terms have the same thresholds and ramps, times the groundedness of the texts in the source, and times a factor that
lowers the reward of similar texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from statistics import fmean
from typing import Literal

from .grounding import Band, coverage, groundedness
from .lexicon import OWN, Lexicon, words

STRUCTURE_POINTS = 0.5
LENGTH_RATIO_POINTS = 1.0
VOCABULARY_RATIO_POINTS = 0.5
TRANSITIONS_POINTS = 0.4
OVERLAP_POINTS = 0.6
GROUNDEDNESS_POINTS = 0.5
TERMS = ("structure", "length_ratio", "vocabulary_ratio", "transitions", "overlap")
APART = Band(0.0, 0.0, 0.6, 0.9)  # factor for the overlap of two texts: 1 up to 0.6, falling to 0 at 0.9
MAX_WRITERS = 4


@dataclass(frozen=True)
class Form:
    """Requirements of TLDR or ArxivExpansion for a pair of texts."""

    min_words: int  # minimum number of words per text, separated by white space
    max_words: int  # maximum number of words per text
    length_ratio: Band  # credit for the ratio of the numbers of characters, second text / first text
    vocabulary_ratio: Band  # credit for the ratio of the numbers of different words, second text / first text
    full_overlap: float  # Jaccard index of the content words from which the overlap gets full points
    transitions_of: Literal["second", "both"]  # texts in which transition words are scored
    coverage: Band | None = None  # credit for the fraction of the source's quarters that the texts cover


TLDR = Form(
    min_words=8,
    max_words=256,
    length_ratio=Band(1.1, 1.6, 3.2, 5.0),
    vocabulary_ratio=Band(1.3, 2.0),
    full_overlap=0.03,
    transitions_of="second",
    coverage=Band(0.25, 0.75),
)
ARXIV_EXPANSION = Form(
    min_words=128,
    max_words=256,
    length_ratio=Band(0.8, 1.3, 1.6, 2.0),
    vocabulary_ratio=Band(0.5, 0.7, 1.3, 1.7),
    full_overlap=0.23,
    transitions_of="both",
)


@dataclass(frozen=True)
class Measures:
    num_words: tuple[int, int]  # number of words of each text, separated by white space
    length_ratio: float  # ratio of the numbers of characters, second text / first text; 0 if the first text is empty
    vocabulary_ratio: float  # ratio of the numbers of different words, second text / first text; 0 without words
    num_transition_categories: int  # number of transition categories in the scored texts, 0 to 12
    overlap: float  # Jaccard index of the content words, 0 to 1
    groundedness: tuple[float, float]  # groundedness credit of each text, 0 to 1


def measures(
    form: Form, source: str, first: str, second: str, lexicon: Lexicon = OWN, *, overlap_of_nothing: float = 0.0
) -> Measures:
    """Measure a pair of texts about a source. Texts without content words have the overlap `overlap_of_nothing`."""
    vocabulary = [len(set(words(text))) for text in (first, second)]
    read = [second] if form.transitions_of == "second" else [first, second]
    categories = frozenset[str]().union(*(lexicon.transition_categories(text) for text in read))
    return Measures(
        num_words=(len(first.split()), len(second.split())),
        length_ratio=len(second) / len(first) if first else 0.0,
        vocabulary_ratio=vocabulary[1] / vocabulary[0] if vocabulary[0] else 0.0,
        num_transition_categories=len(categories),
        overlap=overlap(first, second, lexicon, of_nothing=overlap_of_nothing),
        groundedness=(groundedness(first, source).credit, groundedness(second, source).credit),
    )


def terms(form: Form, seen: Measures) -> dict[str, float]:
    """Compute the points of a pair of texts.

    structure         0.5                                                            gate
    published terms   times faith = sqrt(groundedness of the first * of the second) * APART.credit(overlap)
    groundedness      0.5 * faith, if all gates are passed
    """
    points = published_terms(form, seen)
    faith = sqrt(seen.groundedness[0] * seen.groundedness[1]) * APART.credit(seen.overlap)
    scaled = {name: value * (1.0 if name == "structure" else faith) for name, value in points.items()}
    is_past_all_gates = num_gates_passed(form, seen) == 3
    return scaled | {"groundedness": GROUNDEDNESS_POINTS * faith * is_past_all_gates}


def team_terms(form: Form, source: str, texts: Sequence[str], pairs: Sequence[Measures]) -> dict[str, float]:
    """Compute the points of a team: the mean over the pairs of the first text with each later text.

    All points except those for structure are multiplied by the lowest APART.credit(overlap of two later texts), and by
    the coverage credit if the form has one. `pairs` has the measures of the first text with each later text.
    """
    points = [terms(form, seen) for seen in pairs]
    apart = min((APART.credit(overlap(one, other)) for one, other in combinations(texts[1:], 2)), default=1.0)
    means = {name: fmean(each[name] for each in points) for name in points[0]}
    factor = apart * (form.coverage.credit(coverage(texts, source, OWN)) if form.coverage else 1.0)
    return {name: value * (1.0 if name == "structure" else factor) for name, value in means.items()}


def overlap(first: str, second: str, lexicon: Lexicon = OWN, *, of_nothing: float = 0.0) -> float:
    """Return the Jaccard index of the content words, 0 to 1. Texts without content words get `of_nothing`."""
    one, other = lexicon.content_words(first), lexicon.content_words(second)
    union = one | other
    return len(one & other) / len(union) if union else of_nothing


def published_terms(form: Form, seen: Measures) -> dict[str, float]:
    """Compute the points of a pair of texts as CoMLRL does. If a gate fails, all later terms are 0.

    structure         0.5 if both texts have min_words..max_words words            gate
    length_ratio      1.0 * length_ratio.credit(...)                               gate: within the band
    vocabulary_ratio  0.5 * vocabulary_ratio.credit(...)                           gate: within the band
    transitions       0.4 * (0.4 + min(0.05 * (categories - 1), 0.6)), or 0 without categories
    overlap           0.6 * min(overlap, full_overlap) / full_overlap
    """
    points = dict.fromkeys(TERMS, 0.0)
    passed = num_gates_passed(form, seen)
    if passed > 0:
        points["structure"] = STRUCTURE_POINTS
    if passed > 1:
        points["length_ratio"] = LENGTH_RATIO_POINTS * form.length_ratio.credit(seen.length_ratio)
    if passed > 2:
        points["vocabulary_ratio"] = VOCABULARY_RATIO_POINTS * form.vocabulary_ratio.credit(seen.vocabulary_ratio)
        points["transitions"] = TRANSITIONS_POINTS * transition_credit(seen.num_transition_categories)
        points["overlap"] = OVERLAP_POINTS * min(1.0, seen.overlap / form.full_overlap)
    return points


def transition_credit(num_categories: int) -> float:
    """Return the credit for transition categories: 0.4 for the first and 0.05 for each further one, up to 0.95."""
    return 0.4 + min(0.05 * (num_categories - 1), 0.6) if num_categories else 0.0


def num_gates_passed(form: Form, seen: Measures) -> int:
    """Return the number of gates, 0 to 3, that a pair passes before its first failure."""
    gates = (
        all(form.min_words <= count <= form.max_words for count in seen.num_words),
        seen.length_ratio in form.length_ratio,
        seen.vocabulary_ratio in form.vocabulary_ratio,
    )
    return gates.index(False) if False in gates else len(gates)


PUBLISHED_MAX_SCORE = (
    STRUCTURE_POINTS
    + LENGTH_RATIO_POINTS
    + VOCABULARY_RATIO_POINTS
    + TRANSITIONS_POINTS * transition_credit(12)
    + OVERLAP_POINTS
)
"""Highest score with the published terms: 2.98 instead of 3, because there are only twelve transition categories."""
MAX_SCORE = PUBLISHED_MAX_SCORE + GROUNDEDNESS_POINTS
