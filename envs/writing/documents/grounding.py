"""Groundedness: the degree to which a text states the content of its source, in whole sentences.

    groundedness = FLUENCY(fluency) * SUPPORT(support) * VARIETY(variety)
                   * (UNVERIFIED_CREDIT + (1 - UNVERIFIED_CREDIT) * EXTRACTED(extracted))

fluency    mean of the fluency of the sentences, weighted by their words
support    mean of the fluency * support of the sentences, weighted by their words
variety    number of different windows / number of windows
extracted  mean of the extract credit of the sentences, weighted by their words

A window is three successive tokens of a sentence. It is unfamiliar if neither the source nor `forms.json` has it. An
opening such as "However," does not count as part of its sentence.

    fluency of a sentence = min(UNFAMILIAR(unfamiliar / (1 + new)), FAULTS(faults + cuts))
    support of a sentence = EXACT(exact pairs / pairs) * KNOWN(subject words that the source has / subject words)
    extract credit of a sentence = min(SAME_WINDOWS(1 - new / windows), SAME_ORDER(common / tokens))

new        windows that are not in the source; unfamiliar: those of them that `forms.json` does not have either
faults     sum over the stretches of successive new windows of max(0, unfamiliar - new / 2)
pairs      stems of neighbouring subject words of the sentence, with the function words between them
exact      pairs that the source has, with the same words between them
cuts       ends of the sentence that cut a run of the source's words in the middle of a phrase
common     length of the longest common subsequence with one sentence of the source that has as many negations

Rules can verify a sentence of the source, whole or shortened. They cannot verify a sentence in words of its own, so a
text of such sentences has only `UNVERIFIED_CREDIT`. A sentence with a negation that the source lacks has no support.
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
    """Full credit between `full_from` and `full_to`, a straight ramp on each side, none beyond.

        0 at zero_below -> 1 from full_from to full_to -> 0 at zero_above

    Raises:
        ValueError: if the four corners are not in ascending order.
    """

    zero_below: float
    full_from: float
    full_to: float = inf
    zero_above: float = inf

    def __post_init__(self) -> None:
        if not self.zero_below <= self.full_from <= self.full_to <= self.zero_above:
            raise ValueError(f"a band's corners must ascend, got {self}")

    def __contains__(self, value: float) -> bool:
        """Whether the value is not beyond the ramps; at their outer ends it still is inside."""
        return self.zero_below <= value <= self.zero_above

    def credit(self, value: float) -> float:
        """The height of the band at the value, 0 to 1."""
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
UNVERIFIED_CREDIT = 0.5
"""Credit of a fluent text that shares words with the source and has none of its sentences."""
MAX_OPENING = 4
"""Words of an opening, all of them function or transition words, before the first comma of a sentence."""
RUN = 5
_OPENING_WORDS = OWN.fillers.union(
    word for phrases in OWN.transitions.values() for phrase in phrases for word in phrase.split()
)
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
    extracted: float

    @property
    def credit(self) -> float:
        """The groundedness, 0 to 1."""
        verified = UNVERIFIED_CREDIT + (1 - UNVERIFIED_CREDIT) * EXTRACTED.credit(self.extracted)
        told = FLUENCY.credit(self.fluency) * SUPPORT.credit(self.support)
        return told * VARIETY.credit(self.variety) * verified


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
        extracted=sum(each.extract_credit * each.num_tokens for each in told) / num_tokens,
    )


@dataclass(frozen=True)
class _Sentence:
    """Measures of one sentence."""

    num_tokens: int
    fluency: float
    support: float
    extract_credit: float
    windows: tuple[Window, ...]


@lru_cache(maxsize=4096)  # the texts of a group, and those that the reference tries, share sentences
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
    """The parts of a source that texts are compared with."""

    sentences: tuple[Window, ...]
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
        sentences=tuple(map(tuple, told)),
        windows=frozenset(window for sentence in told for window in chain(windows(sentence), _borders(sentence))),
        stems=frozenset(token[:STEM] for sentence in told for token in sentence),
        pairs=frozenset(pair for sentence in told for pair in _pairs(sentence)),
        negated=frozenset(word for sentence in told for word in _negated(sentence)),
        before={run: frozenset(tokens) for run, tokens in before.items()},
        after={run: frozenset(tokens) for run, tokens in after.items()},
    )


def fluency(sentence: Sequence[str], source: Source) -> float:
    """The credit of a sentence's word order, 0 to 1; that of the source's own sentences is 1."""
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
    """The credit of a sentence's content, 0 to 1."""
    pairs = list(_pairs(sentence))
    if not pairs or not source.negated.issuperset(_negated(sentence)):
        return 0.0
    exact = sum(pair in source.pairs for pair in pairs) / len(pairs)
    return EXACT.credit(exact) * KNOWN.credit(
        fmean(token[:STEM] in source.stems for token in sentence if _is_subject(token))
    )


def extract_credit(sentence: Sequence[str], source: Source) -> float:
    """The degree to which the sentence is one of the source, whole or shortened, 0 to 1."""
    same = SAME_WINDOWS.credit(fmean(window in source.windows for window in windows(sentence)))
    if same == 0:
        return 0.0
    num_negations = _num_negations(sentence)
    candidates = [told for told in source.sentences if _num_negations(told) == num_negations]
    common = max((_num_common(sentence, told) for told in candidates), default=0)
    return min(same, SAME_ORDER.credit(common / len(sentence)))


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


def _borders(sentence: Sequence[str]) -> Iterator[Window]:
    """The windows at the ends of the sentence's phrases, as if they were sentences."""
    for before, one, other, after in zip(sentence, sentence[1:], sentence[2:], sentence[3:], strict=False):
        if before in _JOINTS or before == PAUSE:
            yield EDGE, one, other
        if after in _JOINTS or after == PAUSE:
            yield one, other, EDGE


def _runs(sentence: Sequence[str]) -> Iterator[tuple[int, Window]]:
    return ((place, tuple(sentence[place : place + RUN])) for place in range(len(sentence) - RUN + 1))


def _body(sentence: Sequence[str]) -> Sequence[str]:
    """The sentence without its opening, such as "However,"."""
    end = sentence.index(PAUSE) if PAUSE in sentence[: MAX_OPENING + 1] else 0
    is_opening = 0 < end < len(sentence) - 1 and _OPENING_WORDS.issuperset(sentence[:end])
    return sentence[end + 1 :] if is_opening else sentence


def _num_negations(sentence: Sequence[str]) -> int:
    return sum(token in _NEGATIONS or token == "t" for token in sentence)


def _num_common(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of the longest common subsequence."""
    row = [0] * (len(other) + 1)
    for token in one:
        last = 0
        for place, each in enumerate(other, 1):
            last, row[place] = row[place], last + 1 if token == each else max(row[place], row[place - 1])
    return row[-1]


def _num_cuts(sentence: Sequence[str], source: Source) -> int:
    """Number of ends of the sentence that cut a run of the source."""
    ends = (
        source.before.get(tuple(sentence[:RUN])),
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
