"""Groundedness: the degree to which a text states the content of its source, in English sentences of its own.

    groundedness = FLUENCY(fluency) * SUPPORT(support) * VARIETY(variety) * originality(copied)

fluency    mean of the fluency of the sentences, weighted by their words
support    mean of the fluency * support of the sentences, weighted by their words
variety    number of different windows / number of windows
copied     share of the words that lie in `RUN` or more successive tokens of the source

A window is three successive tokens of a sentence. It is unfamiliar if neither the source nor `forms.json` has it.

    fluency of a sentence = min(UNFAMILIAR(unfamiliar / (1 + new)), FAULTS(faults + cuts))
    support of a sentence = EXACT(exact pairs / pairs) * KNOWN(subject words that the source has / subject words)

new        windows that are not in the source; unfamiliar: those of them that `forms.json` does not have either
faults     sum over the stretches of successive new windows of max(0, unfamiliar - new / 2)
pairs      stems of neighbouring subject words of the sentence, with the function words between them
exact      pairs that the source has, with the same words between them
cuts       ends of the sentence that cut a run of the source's words in the middle of a phrase

A sentence with a negation that the source lacks has no support.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, pairwise
from operator import itemgetter
from statistics import fmean

from .bands import Band
from .forms import PAUSE, Window, is_familiar, sentences, windows
from .lexicon import OWN, Lexicon

UNFAMILIAR = Band(0.0, 0.0, 0.35, 0.55)
FAULTS = Band(0.0, 0.0, 0.5, 1.25)
FLUENCY = Band(0.6, 0.9)
EXACT = Band(0.0, 0.1)
KNOWN = Band(0.25, 0.5)
SUPPORT = Band(0.45, 0.75)
VARIETY = Band(0.5, 0.75)
COPIED = Band(0.0, 0.0, 0.75, 0.9)
COPY_CREDIT = 0.3
"""Originality of a text that only copies."""
RUN = 5
MAX_FILLERS = 12
"""Successive function and transition words of a sentence. Abstracts and summaries by people have at most 9."""
MAX_SUBJECT_WORDS = 7
"""Successive subject words of a sentence of which the source lacks some; summaries by people have at most 7."""
STEM = 5
"""Letters that count of a subject word: "train" and "training" are one."""
REACH = 3
NUM_PARTS = 4
TOLD_PAIRS = 2
_NEGATIONS = frozenset("not no never cannot none nothing".split())
_JOINTS = frozenset(
    "and or but nor that which who whom whose when while where because if as to in for by with from on at so than into "
    "through via without within over under although though since after before until whether how what we it this these "
    "those".split()
)
"""Words before which a phrase may end, and after which one may start."""


@dataclass(frozen=True)
class Groundedness:
    """Measures of one text, 0 to 1."""

    fluency: float
    support: float
    variety: float
    copied: float

    @property
    def credit(self) -> float:
        """Their product, 0 to 1."""
        originality = COPY_CREDIT + (1 - COPY_CREDIT) * COPIED.credit(self.copied)
        told = FLUENCY.credit(self.fluency) * SUPPORT.credit(self.support)
        return told * VARIETY.credit(self.variety) * originality


NOT_GROUNDED = Groundedness(0.0, 0.0, 0.0, 0.0)


def groundedness(text: str, source: str) -> Groundedness:
    """Judge a text by its source."""
    told = [_judged(tuple(sentence), source) for sentence in sentences(text)]
    if not told:
        return NOT_GROUNDED
    num_tokens = sum(each.num_tokens for each in told)
    seen = [window for each in told for window in each.windows]
    return Groundedness(
        fluency=sum(each.fluency * each.num_tokens for each in told) / num_tokens,
        support=sum(each.fluency * each.support * each.num_tokens for each in told) / num_tokens,
        variety=len(set(seen)) / len(seen),
        copied=sum(each.num_copied for each in told) / num_tokens,
    )


@dataclass(frozen=True)
class _Sentence:
    """Measures of one sentence."""

    num_tokens: int
    fluency: float
    support: float
    num_copied: int
    windows: tuple[Window, ...]


@lru_cache(maxsize=4096)  # the texts of a group, and those that the reference tries, share sentences
def _judged(sentence: tuple[str, ...], source: str) -> _Sentence:
    known = _read(source)
    return _Sentence(
        num_tokens=len(sentence),
        fluency=fluency(sentence, known),
        support=support(sentence, known),
        num_copied=sum(_copied(sentence, known)),
        windows=tuple(windows(sentence)),
    )


@dataclass(frozen=True)
class Source:
    """The parts of a source that texts are compared with."""

    windows: frozenset[Window]
    stems: frozenset[str]
    pairs: frozenset[Window]
    negated: frozenset[str]
    before: dict[Window, frozenset[str]]
    """Tokens that stand before a run of `RUN` tokens."""
    after: dict[Window, frozenset[str]]
    """Tokens that stand after a run."""


@lru_cache(maxsize=64)  # many texts are about one source
def _read(source: str) -> Source:
    told = sentences(source)
    before, after = defaultdict[Window, set[str]](set), defaultdict[Window, set[str]](set)
    for sentence in told:
        for place, run in _runs(sentence):
            before[run].add(sentence[place - 1] if place else PAUSE)
            after[run].add(sentence[place + RUN] if place + RUN < len(sentence) else PAUSE)
    return Source(
        windows=frozenset(window for sentence in told for window in windows(sentence)),
        stems=frozenset(token[:STEM] for sentence in told for token in sentence),
        pairs=frozenset(pair for sentence in told for pair in _pairs(sentence)),
        negated=frozenset(word for sentence in told for word in _negated(sentence)),
        before={run: frozenset(tokens) for run, tokens in before.items()},
        after={run: frozenset(tokens) for run, tokens in after.items()},
    )


def fluency(sentence: Sequence[str], source: Source) -> float:
    """The credit of a sentence's word order, 0 to 1; that of the source's own sentences is 1."""
    found = list(windows(sentence))
    is_new = [window not in source.windows for window in found]
    if _longest(token in OWN.fillers for token in sentence if token != PAUSE) > MAX_FILLERS:
        return 0.0
    if any(is_new) and _longest(_is_subject(token) for token in sentence) > MAX_SUBJECT_WORDS:
        return 0.0
    stretches = [
        [not is_familiar(window) for _, window in stretch]
        for new, stretch in groupby(zip(is_new, found, strict=True), key=itemgetter(0))
        if new
    ]
    faults = sum(max(0.0, sum(stretch) - len(stretch) / 2) for stretch in stretches)
    share = sum(map(sum, stretches)) / (1 + sum(is_new))
    return min(UNFAMILIAR.credit(share), FAULTS.credit(faults + _num_cuts(sentence, source)))


def support(sentence: Sequence[str], source: Source) -> float:
    """The credit of a sentence's content, 0 to 1."""
    pairs = list(_pairs(sentence))
    if not pairs or not source.negated.issuperset(_negated(sentence)):
        return 0.0
    exact = sum(pair in source.pairs for pair in pairs) / len(pairs)
    return EXACT.credit(exact) * KNOWN.credit(
        fmean(token[:STEM] in source.stems for token in sentence if _is_subject(token))
    )


def coverage(texts: Iterable[str], source: str, lexicon: Lexicon) -> float:
    """Share of the source's quarters that the texts tell of together, 0 to 1.

    A quarter, by the number of subject words, is told of if at least `TOLD_PAIRS` of its places hold two subject
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


def _is_subject(token: str) -> bool:
    return token != PAUSE and token not in OWN.fillers


def _pairs(sentence: Sequence[str]) -> Iterator[Window]:
    """The stems of neighbouring subject words, with the function words between them."""
    read = [token for token in sentence if token != PAUSE]
    places = [place for place, token in enumerate(read) if _is_subject(token)]
    return ((read[one][:STEM], *read[one + 1 : other], read[other][:STEM]) for one, other in pairwise(places))


def _negated(sentence: Sequence[str]) -> Iterator[str]:
    """The first subject word after each negation."""
    for place, token in enumerate(sentence):
        if token in _NEGATIONS or token == "t":  # "t" is what is left of "didn't"
            yield from [later for later in sentence[place + 1 :] if _is_subject(later)][:1]


def _runs(sentence: Sequence[str]) -> Iterator[tuple[int, Window]]:
    return ((place, tuple(sentence[place : place + RUN])) for place in range(len(sentence) - RUN + 1))


def _copied(sentence: Sequence[str], source: Source) -> list[bool]:
    """Whether each token lies in a run of the source."""
    starts = [place for place, run in _runs(sentence) if run in source.after]
    copied = {place + step for place in starts for step in range(RUN)}
    return [place in copied for place in range(len(sentence))]


def _num_cuts(sentence: Sequence[str], source: Source) -> int:
    """Number of ends of the sentence that cut a run of the source. Up to 4 words of its own may open the sentence."""
    start = sentence.index(PAUSE) + 1 if PAUSE in sentence[:5] else 0
    ends = (
        source.before.get(tuple(sentence[start : start + RUN])),
        source.after.get(tuple(sentence[-RUN:])),
    )
    return sum(tokens is not None and _JOINTS.union([PAUSE]).isdisjoint(tokens) for tokens in ends)


def _longest(flags: Iterable[bool]) -> int:
    """The length of the longest run of true flags."""
    longest = length = 0
    for flag in flags:
        length = length + 1 if flag else 0
        longest = max(longest, length)
    return longest
