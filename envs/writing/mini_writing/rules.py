"""Rules of MiniWriting: posts that a grammar generates, and the score of two to four texts by the facts they state.

Every sentence of a post is a fact of four places. A text is parsed by the same grammar, so that facts are compared with
facts, and words outside of a sentence earn nothing.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from statistics import fmean
from typing import Literal, NamedTuple

Split = Literal["train", "test"]

SHORT, LONG = 0, 1
LINKS = ("first", "then", "also", "later", "meanwhile", "finally", "however", "therefore", "besides", "still")
FUNCTION_WORDS = frozenset({"the", "a", "and", "of", "it"})
CREDIT = (0.0, 0.0, 0.15, 0.4, 1.0)
"""Credit of a sentence, by the number of its places that have the word of a fact."""
OFF_POINT_CREDIT = 0.5
"""Factor on the credit of the first writer's sentences about another fact than the main point."""
LINKS_PART = 0.2
"""Part of a writer's score that linking words earn, if its role asks for them."""
WEAKEST_PART = 0.3
"""Part of the reward that is the lowest of the writers' scores; the rest is their mean."""


@dataclass(frozen=True)
class Role:
    """What one writer is to write."""

    kind: int
    """SHORT or LONG."""
    num_facts: int
    """Facts that the text is to state."""
    has_links: bool
    """True if every sentence is to begin with a different linking word."""


ROLES = (Role(SHORT, 1, False), Role(LONG, 3, True), Role(SHORT, 1, True), Role(LONG, 3, False))
"""By seat: a team of k has the first k, and its posts have one fact for each that these roles ask for."""


class Fact(NamedTuple):
    """The four places of a sentence."""

    adjective: str
    subject: str
    verb: str
    thing: str

    @property
    def sentence(self) -> str:
        return f"the {self.adjective} {self.subject} {self.verb} the {self.thing}."


class Sentence(NamedTuple):
    """A sentence of a writer's text."""

    fact: Fact | None
    """What it states, true or false; None if it does not parse."""
    link: str = ""
    """Linking word that it begins with."""


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


KINDS = ("adjectives", "nouns", "verbs", "nouns")
"""Kinds of words in the places of a fact."""
_KNOWN = tuple(frozenset(word for topic in TOPICS.values() for word in getattr(topic, kind)) for kind in KINDS)
_END_OF_SENTENCE = re.compile(r"[.!?;\n]")
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Post:
    """Facts over eight words of a topic, which all writers read; the first fact is the main point."""

    topic: str
    facts: tuple[Fact, ...]

    @property
    def text(self) -> str:
        return " ".join(fact.sentence for fact in self.facts)


def vocabulary() -> frozenset[str]:
    """Every word that a post, a scripted text or a score knows; the prompts add their own few."""
    return frozenset(LINKS) | FUNCTION_WORDS | {word for topic in TOPICS.values() for word in topic.words}


def num_facts(num_writers: int) -> int:
    """Number of facts in the posts of a team."""
    return sum(role.num_facts for role in ROLES[:num_writers])


def split_of(post: Post) -> Split:
    """Split that a post belongs to, by a hash of its text: one post in five is a test post."""
    return "test" if zlib.crc32(post.text.encode()) % 5 == 0 else "train"


def generated_post(rng: Random, split: Split = "train", num_writers: int = 2) -> Post:
    """A random post of the split."""
    while True:
        post = random_post(rng, num_writers)
        if split_of(post) == split:
            return post


def random_post(rng: Random, num_writers: int = 2) -> Post:
    """A random post of either split. Its first two facts hold all of its eight words; no two facts are equal."""
    name = rng.choice(sorted(TOPICS))
    topic = TOPICS[name]
    nouns, verbs, adjectives = rng.sample(topic.nouns, 4), rng.sample(topic.verbs, 2), rng.sample(topic.adjectives, 2)
    facts = [Fact(adjectives[i], nouns[2 * i], verbs[i], nouns[2 * i + 1]) for i in range(2)]
    while len(facts) < num_facts(num_writers):
        subject, thing = rng.sample(nouns, 2)
        fact = Fact(rng.choice(adjectives), subject, rng.choice(verbs), thing)
        if fact not in facts:
            facts.append(fact)
    return Post(name, tuple(facts))


def sentences_of(text: str) -> list[Sentence]:
    """Parse a text. Case does not matter, and only marks that end a sentence do: . ! ? ; and line ends.

    sentence = [linking word] "the" adjective noun verb "the" noun
    """
    pieces = (_WORD.findall(piece) for piece in _END_OF_SENTENCE.split(text.lower()))
    return [_sentence(words) for words in pieces if words]


def _sentence(words: Sequence[str]) -> Sentence:
    link = words[0] if words[0] in LINKS else ""
    rest = words[bool(link) :]
    if len(rest) != 6 or (rest[0], rest[4]) != ("the", "the"):
        return Sentence(None, link)
    fact = Fact(rest[1], rest[2], rest[3], rest[5])
    is_known = all(word in known for word, known in zip(fact, _KNOWN, strict=True))
    return Sentence(fact if is_known else None, link)


def terms(post: Post, *texts: str) -> dict[str, float]:
    """The parts of the reward. Their sum is 1 if every writer states the facts of its role alone, with its links.

        score  = facts * (1 - LINKS_PART + LINKS_PART * links), or facts if the role asks for no linking words
        reward = (1 - WEAKEST_PART) * mean of the scores + WEAKEST_PART * lowest score

    Args:
        post: what the texts are about.
        texts: by seat, two to four.

    Returns:
        "facts" and "links", which together are the part of the mean, and "weakest", the part of the lowest score.
    """
    roles = ROLES[: len(texts)]
    written = [sentences_of(text) for text in texts]
    found = credits(post, written)
    stated = [facts_score(role, credit) for role, credit in zip(roles, found, strict=True)]
    for_links = [
        score * LINKS_PART * links_score(role, sentences, credit) if role.has_links else 0.0
        for role, score, sentences, credit in zip(roles, stated, written, found, strict=True)
    ]
    for_facts = [score * (1 - LINKS_PART * role.has_links) for role, score in zip(roles, stated, strict=True)]
    return {
        "facts": (1 - WEAKEST_PART) * fmean(for_facts),
        "links": (1 - WEAKEST_PART) * fmean(for_links),
        "weakest": WEAKEST_PART * min(map(sum, zip(for_facts, for_links, strict=True))),
    }


def credits(post: Post, written: Sequence[Sequence[Sentence]]) -> list[list[float]]:
    """Credit of every sentence, 0 to 1.

    Every fact is paid once over the team, and every writer for at most the number of facts in its role. By seat, true
    sentences are paid first, the main point before the others; then false sentences, by their likeness to a fact that
    is not paid yet (CREDIT). The first writer's credit for another fact than the main point is multiplied by
    OFF_POINT_CREDIT.

    Args:
        post: what the texts are about.
        written: sentences by seat.

    Returns:
        Credits by seat and sentence.
    """
    main, unpaid = post.facts[0], list(post.facts)
    found = [[0.0] * len(sentences) for sentences in written]
    said = [
        (seat, place, sentence.fact)
        for seat, sentences in enumerate(written)
        for place, sentence in enumerate(sentences)
        if sentence.fact
    ]
    num_unpaid = [role.num_facts for role in ROLES]
    for seat, place, fact in sorted(said, key=lambda each: (each[2] not in post.facts, each[0], each[2] != main)):
        is_repeated = fact in post.facts and fact not in unpaid
        if is_repeated or not unpaid or not num_unpaid[seat]:
            continue
        nearest = max(unpaid, key=partial(num_equal_places, fact))
        if credit := CREDIT[num_equal_places(fact, nearest)]:
            found[seat][place] = credit * (OFF_POINT_CREDIT if seat == 0 and nearest != main else 1.0)
            unpaid.remove(nearest)
            num_unpaid[seat] -= 1
    return found


def num_equal_places(one: Fact, other: Fact) -> int:
    """Number of places, 0 to 4, that have the same word in both."""
    return sum(word == same for word, same in zip(one, other, strict=True))


def facts_score(role: Role, credit: Sequence[float]) -> float:
    """Jaccard index of the facts that a text states and those that its role asks for, 0 to 1.

    C / (number of sentences + number of facts in the role - C)

    C is the sum of the credits. A sentence that does not parse, is false, repeats a fact or is one too many has no
    credit, and so lowers the score.
    """
    total = sum(credit)
    return total / (len(credit) + role.num_facts - total)


def links_score(role: Role, sentences: Sequence[Sentence], credit: Sequence[float]) -> float:
    """Different linking words at the head of sentences that have the whole credit / facts in the role, at most 1."""
    heads = {sentence.link for sentence, each in zip(sentences, credit, strict=True) if each == 1 and sentence.link}
    return min(1.0, len(heads) / role.num_facts)


def truth(post: Post, *texts: str) -> dict[str, float]:
    """How true the texts are, each 0 to 1, whatever the reward pays.

    Returns:
        "true_sentences" and "well_formed": shares of the sentences written that the post states, and that parse; 0 if
        there are none. "facts": share of the post's facts that some text states. "fact_f1": F1 score of the facts,
        2 * facts stated / (sentences written + facts of the post), with each fact counted once.
    """
    stated = [sentence.fact for text in texts for sentence in sentences_of(text)]
    num_written = max(1, len(stated))
    num_facts_stated = len(set(stated) & set(post.facts))
    return {
        "true_sentences": sum(fact in post.facts for fact in stated) / num_written,
        "well_formed": sum(fact is not None for fact in stated) / num_written,
        "facts": num_facts_stated / len(post.facts),
        "fact_f1": 2 * num_facts_stated / (len(stated) + len(post.facts)),
    }


def refuse_team(num_writers: int) -> None:
    """Raise if there is not a role for each of so many writers."""
    if isinstance(num_writers, bool) or num_writers not in range(2, len(ROLES) + 1):
        raise ValueError(f"num_agents must be 2 to {len(ROLES)}, got {num_writers!r}")
