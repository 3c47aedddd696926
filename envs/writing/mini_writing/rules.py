"""Rules of MiniWriting: posts generated from a small vocabulary, and the score of two to four texts about one."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import prod
from random import Random
from statistics import fmean
from typing import Any, Literal

from ..documents.bands import Band

Split = Literal["train", "test"]

SHORT, LONG = 0, 1
MAX_WORDS = (14, 36)
LINKS = ("first", "then", "also", "later", "meanwhile", "finally", "however", "therefore", "besides", "still")
MIN_SHORT_WORDS = 4
RATIO = Band(1.0, 2.0, 3.0, 5.0)
FULL_OVERLAP = 0.5
ORDER = Band(0.1, 0.3)
NUM_WANTED_WORDS = (4, 6)
APART = Band(0.0, 0.0, 0.6, 0.8)  # on the overlap: above, two texts are more and more one and the same
WEIGHTS = {"length_ratio": 0.3, "overlap": 0.25, "links": 0.25, "groundedness": 0.2}
FUNCTION_WORDS = frozenset({"the", "a", "and", "of", "it"})


@dataclass(frozen=True)
class Role:
    """What one writer is to write."""

    kind: int
    """SHORT or LONG."""
    num_wanted_links: int
    """Different linking words that earn the whole of its credit; 0 where none are asked for."""


ROLES = (Role(SHORT, 0), Role(LONG, 3), Role(SHORT, 1), Role(LONG, 0))
"""By seat: a team of k has the first k."""
COMPARED = ((0, 1), (2, 1), (0, 3))
"""Seats of a short and of a long text whose lengths and words are compared."""


@dataclass(frozen=True)
class Topic:
    """Twelve words that go together; no two topics share one."""

    nouns: tuple[str, ...]  # 6
    verbs: tuple[str, ...]  # 3
    adjectives: tuple[str, ...]  # 3

    @property
    def words(self) -> tuple[str, ...]:
        return self.nouns + self.verbs + self.adjectives


def _topic(nouns: str, verbs: str, adjectives: str) -> Topic:
    return Topic(tuple(nouns.split()), tuple(verbs.split()), tuple(adjectives.split()))


TOPICS = {
    "garden": _topic("gardener roses fence shed pond rabbit", "watered shaded circled", "muddy blooming wild"),
    "kitchen": _topic("cook kettle oven onions soup pan", "stirred warmed burned", "salty spicy hungry"),
    "school": _topic("teacher pupil essay desk library exam", "graded studied copied", "strict clever noisy"),
    "harbor": _topic("sailor boat anchor gull lighthouse net", "hauled followed towed", "windy foggy drifting"),
    "office": _topic("manager printer meeting report intern memo", "booked signed mailed", "busy urgent late"),
    "concert": _topic("drummer guitar stage choir melody crowd", "tuned cheered recorded", "loud gentle famous"),
    "journey": _topic("tourist train suitcase ticket hotel map", "packed missed found", "heavy distant delayed"),
    "hospital": _topic("nurse doctor patient bandage ward pill", "healed visited checked", "tired careful pale"),
    "stadium": _topic("coach runner ball keeper whistle trophy", "chased trained kicked", "fast proud injured"),
    "farm": _topic("farmer tractor barn goat hay orchard", "plowed fed harvested", "dusty golden stubborn"),
}


@dataclass(frozen=True)
class Post:
    """What all writers read: four sentences over eight of a topic's words; the first two hold all eight."""

    topic: str
    sentences: tuple[str, ...]

    @property
    def text(self) -> str:
        return " ".join(self.sentences)


def vocabulary() -> frozenset[str]:
    """Every word that a post, a scripted text or a score knows; the prompts add their own few."""
    return frozenset(LINKS) | FUNCTION_WORDS | {word for topic in TOPICS.values() for word in topic.words}


def split_of(post: Post) -> Split:
    """Split that a post belongs to, by a hash of its text: one post in five is a test post."""
    return "test" if zlib.crc32(post.text.encode()) % 5 == 0 else "train"


def generated_post(rng: Random, split: Split = "train") -> Post:
    """A random post of the split."""
    while True:
        post = random_post(rng)
        if split_of(post) == split:
            return post


def random_post(rng: Random) -> Post:
    """A random post of either split."""
    name = rng.choice(sorted(TOPICS))
    topic = TOPICS[name]
    nouns, verbs, adjectives = rng.sample(topic.nouns, 4), rng.sample(topic.verbs, 2), rng.sample(topic.adjectives, 2)
    told = [sentence(adjectives[i], nouns[2 * i], verbs[i], nouns[2 * i + 1]) for i in range(2)]
    for _ in range(2):
        subject, thing = rng.sample(nouns, 2)
        told.append(sentence(rng.choice(adjectives), subject, rng.choice(verbs), thing))
    return Post(name, tuple(told))


def sentence(adjective: str, subject: str, verb: str, thing: str) -> str:
    return f"the {adjective} {subject} {verb} the {thing}."


def words_of(text: str, max_words: int) -> list[str]:
    """The text's first words in lower case; what follows them is not read."""
    words = []
    for match in re.finditer(r"[^\W_]+", text.lower()):
        words.append(match.group())
        if len(words) == max_words:
            break
    return words


def content_of(words: Sequence[str]) -> frozenset[str]:
    """The different words that carry meaning: neither function words nor links."""
    return frozenset(content_in(words))


def content_in(words: Sequence[str]) -> list[str]:
    """The words that carry meaning, in order."""
    return [word for word in words if word not in FUNCTION_WORDS and word not in LINKS]


def terms(post: Post, *texts: str) -> dict[str, float]:
    """The parts of the score, each 0 to 1.

        groundedness = (product of grounded(text))^(1 / number of texts) * least of APART(likeness of two texts)
        length_ratio = groundedness * mean of RATIO(d(long) / d(short)) * min(1, d(short) / MIN_SHORT_WORDS)
        overlap      = groundedness * mean of min(1, Jaccard(content(short), content(long)) / FULL_OVERLAP)
        links        = groundedness * mean of min(1, different words that link / number wanted)

    where d counts different words; the means are over the pairs that are `COMPARED`, and over the texts of which
    linking words are wanted; a linking word links if what follows it is no other one. The factor on the ratio keeps
    the writers from agreeing on two words.

    Args:
        post: what the texts are about.
        texts: by seat, two to four.
    """
    roles = ROLES[: len(texts)]
    read = [words_of(text, MAX_WORDS[role.kind]) for text, role in zip(texts, roles, strict=True)]
    pairs = [(read[short], read[long]) for short, long in COMPARED if max(short, long) < len(read)]
    depths = [grounded(post, words, role.kind) for words, role in zip(read, roles, strict=True)]
    apart = min(APART.credit(likeness(read, one, other)) for one, other in combinations(range(len(read)), 2))
    faith = prod(depths) ** (1 / len(depths)) * apart
    linked = [
        min(1.0, len(linking(words)) / role.num_wanted_links)
        for words, role in zip(read, roles, strict=True)
        if role.num_wanted_links
    ]
    return {
        "length_ratio": faith * fmean(_ratio_credit(short, long) for short, long in pairs),
        "overlap": faith
        * fmean(min(1.0, jaccard(content_of(short), content_of(long)) / FULL_OVERLAP) for short, long in pairs),
        "links": faith * fmean(linked),
        "groundedness": faith,
    }


def _ratio_credit(short: Sequence[str], long: Sequence[str]) -> float:
    num_short, num_long = len(set(short)), len(set(long))
    return RATIO.credit(num_long / num_short) * min(1.0, num_short / MIN_SHORT_WORDS) if num_short else 0.0


def likeness(texts: Sequence[Sequence[str]], one: int, other: int) -> float:
    """How far the texts of two seats are one and the same, 0 to 1: the overlap of their content words.

    Of two short or two long texts, which share their words with one post, that of their neighbouring content words.
    """
    if ROLES[one].kind == ROLES[other].kind:
        return jaccard(*(frozenset(pairwise(content_in(texts[seat]))) for seat in (one, other)))
    return jaccard(content_of(texts[one]), content_of(texts[other]))


def jaccard(one: frozenset[Any], other: frozenset[Any]) -> float:
    """Share of what either has that both have, 0 to 1; 0 of nothing."""
    union = one | other
    return len(one & other) / len(union) if union else 0.0


def grounded(post: Post, words: Sequence[str], kind: int) -> float:
    """How far a text tells what the post tells, 0 to 1.

    share of its different content words that the post has * min(1, their number / NUM_WANTED_WORDS)
    * ORDER(different pairs of neighbouring content words that are neighbours in the post / such pairs)

    Args:
        post: what it is about.
        words: of the text.
        kind: SHORT or LONG.
    """
    told = content_in(words)
    pairs = list(pairwise(told))
    if not pairs:
        return 0.0
    source = content_in(words_of(post.text, len(post.text)))
    known = set(told) & set(source)
    share = len(known) / len(set(told)) * min(1.0, len(known) / NUM_WANTED_WORDS[kind])
    return share * ORDER.credit(len(set(pairs) & set(pairwise(source))) / len(pairs))


def linking(words: Sequence[str]) -> frozenset[str]:
    """The different linking words that another word than a linking word follows."""
    return frozenset(word for word, following in pairwise(words) if word in LINKS and following not in LINKS)


def score(parts: dict[str, float]) -> float:
    """The team's reward, 0 to 1: the terms by their weights."""
    return sum(WEIGHTS[name] * value for name, value in parts.items())


def refuse_team(num_writers: int) -> None:
    """Raise if there is not a role for each of so many writers."""
    if isinstance(num_writers, bool) or num_writers not in range(2, len(ROLES) + 1):
        raise ValueError(f"num_agents must be 2 to {len(ROLES)}, got {num_writers!r}")
