"""Rules of TLDR and ArxivExpansion: what two texts measure, the gated sum that scores them, and teams of more.

The shape, thresholds and ramps are those of CoMLRL's writing tasks (github.com/OpenMLRL/LLM_Collab_Writing), which
`published_terms` scores as they are. Ours pays for them as far as the texts are about their source, and are two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
APART = Band(0.0, 0.0, 0.6, 0.9)  # on the overlap: above, two texts are more and more one and the same
MAX_WRITERS = 4


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
    transitions_of: Literal["second", "both"]
    """Writers whose transition words count."""
    coverage: Band | None = None
    """Share of the source's quarters that the texts tell of together. None: a part of the source will do."""


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
    """Jaccard index of the content words, 0..1."""
    groundedness: tuple[float, float]
    """`groundedness` credit of each text, 0..1."""


def measures(
    form: Form, source: str, first: str, second: str, lexicon: Lexicon = OWN, *, overlap_of_nothing: float = 0.0
) -> Measures:
    """Measure a pair of texts about a source.

    Args:
        form: of the game.
        source: what both are about.
        first: the first writer's text.
        second: the second writer's.
        lexicon: the words that are looked for.
        overlap_of_nothing: Jaccard index of two texts without content words.
    """
    vocabulary = [len(set(words(text))) for text in (first, second)]
    read = [second] if form.transitions_of == "second" else [first, second]
    categories = frozenset[str]().union(*(lexicon.transition_categories(text) for text in read))
    grounded = [groundedness(text, source).credit for text in (first, second)]
    return Measures(
        num_words=(len(first.split()), len(second.split())),
        length_ratio=len(second) / len(first) if first else 0.0,
        vocabulary_ratio=vocabulary[1] / vocabulary[0] if vocabulary[0] else 0.0,
        num_transition_categories=len(categories),
        overlap=overlap(first, second, lexicon, of_nothing=overlap_of_nothing),
        groundedness=(grounded[0], grounded[1]),
    )


def terms(form: Form, seen: Measures) -> dict[str, float]:
    """The points of a pair of texts, by term: those of `published_terms`, for what is grounded and told by two.

    structure         0.5, in full                                                  gate
    the others        times faith = sqrt(groundedness of the first * of the second) * APART.credit(overlap)
    groundedness      0.5 * faith, behind all gates
    """
    points = published_terms(form, seen)
    faith = sqrt(seen.groundedness[0] * seen.groundedness[1]) * APART.credit(seen.overlap)
    scaled = {name: value * (1.0 if name == "structure" else faith) for name, value in points.items()}
    is_past_all_gates = num_gates_passed(form, seen) == 3
    return scaled | {"groundedness": GROUNDEDNESS_POINTS * faith * is_past_all_gates}


def team_terms(form: Form, source: str, texts: Sequence[str], pairs: Sequence[Measures]) -> dict[str, float]:
    """The points of a team: those of each later writer's text in a pair with the first writer's, averaged.

    All but the structure's are paid times the least APART.credit(overlap of two later texts), as they are to tell
    different things, and times the credit of `coverage`, where the form wants the whole source told.

    Args:
        form: of the game.
        source: what the texts are about.
        texts: of all writers.
        pairs: the first text with each of the others.
    """
    points = [terms(form, seen) for seen in pairs]
    apart = min((APART.credit(overlap(one, other)) for one, other in combinations(texts[1:], 2)), default=1.0)
    means = {name: fmean(each[name] for each in points) for name in points[0]}
    factor = apart * (form.coverage.credit(coverage(texts, source, OWN)) if form.coverage else 1.0)
    return {name: value * (1.0 if name == "structure" else factor) for name, value in means.items()}


def overlap(first: str, second: str, lexicon: Lexicon = OWN, *, of_nothing: float = 0.0) -> float:
    """Jaccard index of the content words of two texts, 0..1.

    Args:
        first: a text.
        second: another.
        lexicon: the words that carry no content.
        of_nothing: that of two texts without content words.
    """
    one, other = lexicon.content_words(first), lexicon.content_words(second)
    union = one | other
    return len(one & other) / len(union) if union else of_nothing


def published_terms(form: Form, seen: Measures) -> dict[str, float]:
    """The points of a pair of texts as published, by term; a failed gate leaves all later terms at 0.

    structure         0.5 if both texts have min_words..max_words words            gate
    length_ratio      1.0 * length_ratio.credit(...)                               gate: inside the band's ends
    vocabulary_ratio  0.5 * vocabulary_ratio.credit(...)                           gate: inside the band's ends
    transitions       0.4 * (0.4 + min(0.05 * (categories - 1), 0.6)), 0 without any
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


PUBLISHED_MAX_SCORE = (
    STRUCTURE_POINTS
    + LENGTH_RATIO_POINTS
    + VOCABULARY_RATIO_POINTS
    + TRANSITIONS_POINTS * transition_credit(12)
    + OVERLAP_POINTS
)
"""2.98 of a nominal 3: there are twelve categories."""
MAX_SCORE = PUBLISHED_MAX_SCORE + GROUNDEDNESS_POINTS


def refuse_team(num_writers: int) -> None:
    """Raise if there is not a part for each of so many writers."""
    if isinstance(num_writers, bool) or num_writers not in range(2, MAX_WRITERS + 1):
        raise ValueError(f"num_agents must be 2 to {MAX_WRITERS}, got {num_writers!r}")
