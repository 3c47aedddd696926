"""Rules of TLDR and ArxivExpansion: what two texts measure, and the gated sum that scores them.

The shape, thresholds and ramps are those of CoMLRL's writing tasks (github.com/OpenMLRL/LLM_Collab_Writing); the
groundedness term is added, and transition words are matched whole. The page of the environments says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from .bands import Band
from .lexicon import TransitionMatch, content_words, subject_words, transition_categories, words

STRUCTURE_POINTS = 0.5
LENGTH_RATIO_POINTS = 1.0
VOCABULARY_RATIO_POINTS = 0.5
TRANSITIONS_POINTS = 0.4
OVERLAP_POINTS = 0.6
TERMS = ("structure", "length_ratio", "vocabulary_ratio", "transitions", "overlap", "groundedness")


@dataclass(frozen=True)
class Form:
    """What a game wants of its two texts."""

    min_words: int
    """Words of each text, at least; words are what white space separates."""
    max_words: int
    """Words of each text, at most."""
    length_ratio: Band
    """Characters of the second text per character of the first."""
    vocabulary_ratio: Band
    """Different words of the second text per different word of the first."""
    full_overlap: float
    """Jaccard index of the two sets of content words that earns the whole of its points."""
    full_groundedness: float
    """Share of a text's subject words found in the source that earns the whole of its points."""
    transitions_of: Literal["second", "both"]
    """Writers whose transition words count."""


TLDR = Form(
    min_words=8,
    max_words=256,
    length_ratio=Band(1.1, 1.6, 3.2, 5.0),
    vocabulary_ratio=Band(1.3, 2.0),
    full_overlap=0.03,
    full_groundedness=0.5,
    transitions_of="second",
)
ARXIV_EXPANSION = Form(
    min_words=128,
    max_words=256,
    length_ratio=Band(0.8, 1.3, 1.6, 2.0),
    vocabulary_ratio=Band(0.5, 0.7, 1.3, 1.7),
    full_overlap=0.23,
    full_groundedness=0.5,
    transitions_of="both",
)


@dataclass(frozen=True)
class Measures:
    """What a pair of texts measures, before anything is judged."""

    num_words: tuple[int, int]
    """Words of each text, separated by white space."""
    length_ratio: float
    """Characters of the second text per character of the first; 0 if the first is empty."""
    vocabulary_ratio: float
    """Different words of the second text per different word of the first; 0 if the first has none."""
    num_transition_categories: int
    """0..12."""
    overlap: float
    """Jaccard index of the content words, 0..1; 0 if neither text has any."""
    groundedness: tuple[float, float]
    """Share of each text's subject words that the source has too; 0 if it has none."""


def measures(form: Form, source: str, first: str, second: str, match: TransitionMatch = "word") -> Measures:
    """Measure a pair of texts about a source."""
    vocabulary = [len(set(words(text))) for text in (first, second)]
    content = [content_words(text) for text in (first, second)]
    union = content[0] | content[1]
    read = [second] if form.transitions_of == "second" else [first, second]
    categories = frozenset[str]().union(*(transition_categories(text, match) for text in read))
    known = frozenset(words(source))
    subject = [subject_words(text) for text in (first, second)]
    grounded = [len(named & known) / len(named) if named else 0.0 for named in subject]
    return Measures(
        num_words=(len(first.split()), len(second.split())),
        length_ratio=len(second) / len(first) if first else 0.0,
        vocabulary_ratio=vocabulary[1] / vocabulary[0] if vocabulary[0] else 0.0,
        num_transition_categories=len(categories),
        overlap=len(content[0] & content[1]) / len(union) if union else 0.0,
        groundedness=(grounded[0], grounded[1]),
    )


def terms(form: Form, seen: Measures, groundedness_weight: float) -> dict[str, float]:
    """The points of a pair of texts, by term; a failed gate leaves all later terms at 0.

    structure         0.5 if both texts have min_words..max_words words            gate
    length_ratio      1.0 * length_ratio.credit(...)                               gate: inside the band's ends
    vocabulary_ratio  0.5 * vocabulary_ratio.credit(...)                           gate: inside the band's ends
    transitions       0.4 * (0.4 + min(0.05 * (categories - 1), 0.6)), 0 without any
    overlap           0.6 * min(overlap, full_overlap) / full_overlap
    groundedness      groundedness_weight * mean over the texts of min(share, full) / full
    """
    points = dict.fromkeys(TERMS, 0.0)
    if not all(form.min_words <= count <= form.max_words for count in seen.num_words):
        return points
    points["structure"] = STRUCTURE_POINTS
    if seen.length_ratio not in form.length_ratio:
        return points
    points["length_ratio"] = LENGTH_RATIO_POINTS * form.length_ratio.credit(seen.length_ratio)
    if seen.vocabulary_ratio not in form.vocabulary_ratio:
        return points
    points["vocabulary_ratio"] = VOCABULARY_RATIO_POINTS * form.vocabulary_ratio.credit(seen.vocabulary_ratio)
    points["transitions"] = TRANSITIONS_POINTS * transition_credit(seen.num_transition_categories)
    points["overlap"] = OVERLAP_POINTS * min(1.0, seen.overlap / form.full_overlap)
    full = [min(1.0, share / form.full_groundedness) for share in seen.groundedness]
    points["groundedness"] = groundedness_weight * sum(full) / len(full)
    return points


def transition_credit(num_categories: int) -> float:
    """0 without a transition word, 0.4 for one category, 0.05 more for each further one: 0.95 for all twelve."""
    return 0.4 + min(0.05 * (num_categories - 1), 0.6) if num_categories else 0.0


def score(points: Mapping[str, float]) -> float:
    """The team's reward: the sum of the points."""
    return sum(points.values())


def num_gates_passed(form: Form, seen: Measures) -> int:
    """How many of the three gates the pair passed, 0..3."""
    gates = (
        all(form.min_words <= count <= form.max_words for count in seen.num_words),
        seen.length_ratio in form.length_ratio,
        seen.vocabulary_ratio in form.vocabulary_ratio,
    )
    return gates.index(False) if False in gates else len(gates)


def max_score(groundedness_weight: float) -> float:
    """The highest score: 2.98 of the reference's nominal 3, and the groundedness weight."""
    style = TRANSITIONS_POINTS * transition_credit(12) + OVERLAP_POINTS
    return STRUCTURE_POINTS + LENGTH_RATIO_POINTS + VOCABULARY_RATIO_POINTS + style + groundedness_weight
