"""Groundedness: the degree to which a text states the content of its source in whole sentences.

    groundedness = FLUENCY(fluency) * SUPPORT(support) * VARIETY(variety)
                   * (UNVERIFIED_CREDIT + (1 - UNVERIFIED_CREDIT) * EXTRACTED(extracted))

fluency    mean fluency of the sentences, weighted by their number of tokens
support    mean fluency * support of the sentences, weighted by their number of tokens
variety    number of different windows / number of windows
extracted  mean extract credit of the sentences, weighted by their number of tokens

A window is three successive tokens of a sentence. It is unfamiliar if it is neither in the source nor in `forms.json`.
An opening such as "However," is not treated as a part of the sentence.

    fluency of a sentence = min(UNFAMILIAR(unfamiliar / (1 + new)), FAULTS(faults + cuts))
    support of a sentence = EXACT(exact pairs / pairs) * KNOWN(subject words that the source has / subject words)
    extract credit of a sentence = min(SAME_WINDOWS(1 - new / windows), SAME_ORDER(common / tokens))

new        windows that are not in the source; unfamiliar: new windows that `forms.json` does not have
faults     sum over the runs of successive new windows of max(0, unfamiliar - new / 2)
pairs      stems of neighbouring subject words of the sentence, with the function words between them
exact      pairs that the source has, with the same words between them
cuts       ends of the sentence at which a phrase of the source is cut off
common     length of the longest common subsequence with one sentence of the source with equally many negations

Rules can only verify sentences that are copied from the source, whole or shortened. A text without such sentences gets
only `UNVERIFIED_CREDIT`. A sentence with a negation that is not in the source has no support.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, groupby, pairwise
from math import inf
from operator import itemgetter
from statistics import fmean

from .forms import EDGE, PAUSE, Window, is_familiar, sentences, windows
from .lexicon import OWN, Lexicon


@dataclass(frozen=True)
class Band:
    """Trapezoid function: 1 from `full_from` to `full_to`, with linear ramps to 0 at `zero_below` and `zero_above`."""

    zero_below: float
    full_from: float
    full_to: float = inf
    zero_above: float = inf

    def __post_init__(self) -> None:
        if not self.zero_below <= self.full_from <= self.full_to <= self.zero_above:
            raise ValueError(f"the corners of {self} must be in ascending order")

    def __contains__(self, value: float) -> bool:
        return self.zero_below <= value <= self.zero_above

    def credit(self, value: float) -> float:
        if value not in self:
            return 0.0
        if value < self.full_from:
            return (value - self.zero_below) / (self.full_from - self.zero_below)
        if value > self.full_to:
            return (self.zero_above - value) / (self.zero_above - self.full_to)
        return 1.0


UNFAMILIAR = Band(0.0, 0.0, 0.35, 0.55)
FAULTS = Band(0.0, 0.0, 0.5, 1.25)
FLUENCY = Band(0.6, 0.9)
EXACT = Band(0.0, 0.1)
KNOWN = Band(0.25, 0.5)
SUPPORT = Band(0.45, 0.75)
VARIETY = Band(0.5, 0.75)
SAME_WINDOWS = Band(0.7, 0.95)
SAME_ORDER = Band(0.8, 0.95)
EXTRACTED = Band(0.2, 0.5)
UNVERIFIED_CREDIT = 0.5  # factor for a fluent text that has words but no sentences of the source
MAX_OPENING = 4  # maximum number of words, all function or transition words, before the first comma of an opening
RUN = 5
_OPENING_WORDS = OWN.fillers.union(
    word for phrases in OWN.transitions.values() for phrase in phrases for word in phrase.split()
)
MAX_FILLERS = 12
"""Maximum number of successive function and transition words in a sentence. Texts by humans have at most 9."""
MAX_SUBJECT_WORDS = 7
"""Maximum number of successive subject words in a sentence with new windows. Human summaries have at most 7."""
STEM = 5  # number of letters that are compared as a word's stem, so that "train" equals "training"
REACH = 3
NUM_PARTS = 4
TOLD_PAIRS = 2
_NEGATIONS = frozenset("not no never cannot none nothing".split())
_JOINTS = frozenset(
    "and or but nor that which who whom whose when while where because if as to in for by with from on at so than into "
    "through via without within over under although though since after before until whether how what we it this these "
    "those".split()
)
"""Words that separate phrases: a phrase may end before such a word, or start after it."""


@dataclass(frozen=True)
class Groundedness:
    """Measures of how well one text states the content of its source, each 0 to 1."""

    fluency: float
    support: float
    variety: float
    extracted: float

    @property
    def credit(self) -> float:
        verified = UNVERIFIED_CREDIT + (1 - UNVERIFIED_CREDIT) * EXTRACTED.credit(self.extracted)
        told = FLUENCY.credit(self.fluency) * SUPPORT.credit(self.support)
        return told * VARIETY.credit(self.variety) * verified


NOT_GROUNDED = Groundedness(0.0, 0.0, 0.0, 0.0)


def groundedness(text: str, source: str) -> Groundedness:
    judged = [_judged(tuple(sentence), source) for sentence in sentences(text)]
    if not judged:
        return NOT_GROUNDED
    num_tokens = sum(each.num_tokens for each in judged)
    found = [window for each in judged for window in each.windows]
    return Groundedness(
        fluency=sum(each.fluency * each.num_tokens for each in judged) / num_tokens,
        support=sum(each.fluency * each.support * each.num_tokens for each in judged) / num_tokens,
        variety=len(set(found)) / len(found),
        extracted=sum(each.extract_credit * each.num_tokens for each in judged) / num_tokens,
    )


@dataclass(frozen=True)
class _Sentence:
    num_tokens: int
    fluency: float
    support: float
    extract_credit: float
    windows: tuple[Window, ...]


@lru_cache(maxsize=4096)  # texts of a GRPO group, and texts that `reference` tries, share sentences
def _judged(sentence: tuple[str, ...], source: str) -> _Sentence:
    known = _read(source)
    body = _body(sentence)
    return _Sentence(
        num_tokens=len(sentence),
        fluency=fluency(sentence, known),
        support=support(body, known),
        extract_credit=extract_credit(body, known),
        windows=tuple(windows(sentence)),
    )


@dataclass(frozen=True)
class Source:
    """Precomputed properties of a source text."""

    sentences: tuple[Window, ...]
    windows: frozenset[Window]
    stems: frozenset[str]
    pairs: frozenset[Window]
    negated: frozenset[str]
    before: dict[Window, set[str]]  # tokens that precede each run of `RUN` successive tokens
    after: dict[Window, set[str]]  # tokens that follow each run of `RUN` successive tokens


@lru_cache(maxsize=64)  # many texts have the same source
def _read(source: str) -> Source:
    found = sentences(source)
    before, after = defaultdict[Window, set[str]](set), defaultdict[Window, set[str]](set)
    for sentence in found:
        for place in range(len(sentence) - RUN + 1):
            run = tuple(sentence[place : place + RUN])
            before[run].add(sentence[place - 1] if place else PAUSE)
            after[run].add(sentence[place + RUN] if place + RUN < len(sentence) else PAUSE)
    return Source(
        sentences=tuple(map(tuple, found)),
        windows=frozenset(window for sentence in found for window in chain(windows(sentence), _borders(sentence))),
        stems=frozenset(token[:STEM] for sentence in found for token in sentence),
        pairs=frozenset(pair for sentence in found for pair in _pairs(sentence)),
        negated=frozenset(word for sentence in found for word in _negated(sentence)),
        before=before,
        after=after,
    )


def fluency(sentence: Sequence[str], source: Source) -> float:
    """Score the word order of a sentence, 0 to 1. A sentence of the source gets 1."""
    if _longest(token in OWN.fillers for token in sentence if token != PAUSE) > MAX_FILLERS:
        return 0.0
    sentence = _body(sentence)
    found = list(windows(sentence))
    is_new = [window not in source.windows for window in found]
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
    """Score how well the source supports the content of a sentence, 0 to 1."""
    pairs = list(_pairs(sentence))
    if not pairs or not source.negated.issuperset(_negated(sentence)):
        return 0.0
    exact = sum(pair in source.pairs for pair in pairs) / len(pairs)
    return EXACT.credit(exact) * KNOWN.credit(
        fmean(token[:STEM] in source.stems for token in sentence if _is_subject(token))
    )


def extract_credit(sentence: Sequence[str], source: Source) -> float:
    """Score how closely a sentence copies one sentence of the source, whole or shortened, 0 to 1."""
    same = SAME_WINDOWS.credit(fmean(window in source.windows for window in windows(sentence)))
    if same == 0:
        return 0.0
    num_negations = _num_negations(sentence)
    candidates = [each for each in source.sentences if _num_negations(each) == num_negations]
    common = max((_num_common(sentence, each) for each in candidates), default=0)
    return min(same, SAME_ORDER.credit(common / len(sentence)))


def coverage(texts: Iterable[str], source: str, lexicon: Lexicon) -> float:
    """Return the fraction of the source's quarters that the texts cover together, 0 to 1.

    The quarters have equal numbers of subject words. A quarter is covered if at least `TOLD_PAIRS` of its pairs of
    nearby subject words, in order, are neighbours in a text.
    """
    told = {pair for text in texts for pair in pairwise(lexicon.subject_words(text))}
    return fmean(sum(pair in told for pair in part) >= TOLD_PAIRS for part in _pairs_by_part(source, lexicon))


@lru_cache(maxsize=64)
def _pairs_by_part(source: str, lexicon: Lexicon) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Return the ordered pairs of nearby, different subject words in each quarter of the source."""
    subject = lexicon.subject_words(source)
    parts: list[list[tuple[str, str]]] = [[] for _ in range(NUM_PARTS)]
    for at, word in enumerate(subject):
        near = subject[at + 1 : at + 1 + REACH]
        parts[at * NUM_PARTS // len(subject)] += [(word, later) for later in near if word != later]
    return tuple(map(tuple, parts))


def _is_subject(token: str) -> bool:
    return token != PAUSE and token not in OWN.fillers


def _pairs(sentence: Sequence[str]) -> Iterator[Window]:
    """Yield the stems of every two neighbouring subject words, with the function words between them."""
    read = [token for token in sentence if token != PAUSE]
    places = [place for place, token in enumerate(read) if _is_subject(token)]
    return ((read[one][:STEM], *read[one + 1 : other], read[other][:STEM]) for one, other in pairwise(places))


def _negated(sentence: Sequence[str]) -> Iterator[str]:
    """Yield the first subject word after each negation."""
    for place, token in enumerate(sentence):
        if token in _NEGATIONS or token == "t":  # "didn't" is read as two tokens, "didn" and "t"
            yield from [later for later in sentence[place + 1 :] if _is_subject(later)][:1]


def _borders(sentence: Sequence[str]) -> Iterator[Window]:
    """Yield the first and the last window of words of each phrase. Phrases are padded like sentences."""
    for before, one, other, after in zip(sentence, sentence[1:], sentence[2:], sentence[3:], strict=False):
        if before in _JOINTS or before == PAUSE:
            yield EDGE, one, other
        if after in _JOINTS or after == PAUSE:
            yield one, other, EDGE


def _body(sentence: Sequence[str]) -> Sequence[str]:
    """Return the sentence without an opening such as "However,"."""
    end = sentence.index(PAUSE) if PAUSE in sentence[: MAX_OPENING + 1] else 0
    is_opening = 0 < end < len(sentence) - 1 and _OPENING_WORDS.issuperset(sentence[:end])
    return sentence[end + 1 :] if is_opening else sentence


def _num_negations(sentence: Sequence[str]) -> int:
    return sum(token in _NEGATIONS or token == "t" for token in sentence)


def _num_common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the longest common subsequence."""
    row = [0] * (len(other) + 1)
    for token in one:
        last = 0
        for place, each in enumerate(other, 1):
            last, row[place] = row[place], last + 1 if token == each else max(row[place], row[place - 1])
    return row[-1]


def _num_cuts(sentence: Sequence[str], source: Source) -> int:
    """Count the ends of the sentence, 0 to 2, at which a phrase of the source is cut off."""
    ends = (source.before.get(tuple(sentence[:RUN])), source.after.get(tuple(sentence[-RUN:])))
    return sum(tokens is not None and _JOINTS.union([PAUSE]).isdisjoint(tokens) for tokens in ends)


def _longest(flags: Iterable[bool]) -> int:
    """Return the length of the longest run of true flags."""
    return max((sum(1 for _ in run) for flag, run in groupby(flags) if flag), default=0)
