"""Rules of MiniWriting: posts that a grammar generates, and the score of texts by the facts that they state.

Every sentence of a post states a fact, which consists of four words. Texts are parsed by the same grammar, and
only their facts are scored. Words outside of parsed sentences get no reward.
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
"""Credit of a sentence. The index is the number of its four words that agree with a fact of the post."""
OFF_POINT_CREDIT = 0.5  # factor of the credit for the first writer's sentences about other facts than the main point
LINKS_PART = 0.2  # fraction of a writer's score for linking words, if its role requires them
WEAKEST_PART = 0.3  # weight of the writers' lowest score in the reward. Their mean score has the remaining weight.


@dataclass(frozen=True)
class Role:
    kind: int  # length of the text: SHORT or LONG
    num_facts: int  # number of facts that the writer must state
    has_links: bool  # True: every sentence must begin with a different linking word


ROLES = (Role(SHORT, 1, False), Role(LONG, 3, True), Role(SHORT, 1, True), Role(LONG, 3, False))
"""Role of each writer. A team of k writers has the first k roles, and its posts have the facts of these roles."""


class Fact(NamedTuple):
    """Fact that a sentence states: its four words."""

    adjective: str
    subject: str
    verb: str
    thing: str

    @property
    def sentence(self) -> str:
        return f"the {self.adjective} {self.subject} {self.verb} the {self.thing}."


class Sentence(NamedTuple):
    fact: Fact | None  # stated fact, true or false. None: the sentence does not parse.
    link: str = ""  # linking word at the beginning; empty if there is none


@dataclass(frozen=True)
class Topic:
    """Words of a topic. No other topic has these words."""

    nouns: tuple[str, ...]  # 6 nouns
    verbs: tuple[str, ...]  # 3 verbs
    adjectives: tuple[str, ...]  # 3 adjectives

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
KINDS = ("adjectives", "nouns", "verbs", "nouns")  # kind of word in each place of a fact
_KNOWN = tuple(frozenset(word for topic in TOPICS.values() for word in getattr(topic, kind)) for kind in KINDS)
_END_OF_SENTENCE = re.compile(r"[.!?;\n]")
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Post:
    """Post that all writers read. Its facts use eight words of a topic. The first fact is the main point."""

    topic: str
    facts: tuple[Fact, ...]

    @property
    def text(self) -> str:
        return " ".join(fact.sentence for fact in self.facts)


def vocabulary() -> frozenset[str]:
    """Return all words of posts and scripted texts, without the additional words of the prompts."""
    return frozenset(LINKS) | FUNCTION_WORDS | {word for topic in TOPICS.values() for word in topic.words}


def num_facts(num_writers: int) -> int:
    return sum(role.num_facts for role in ROLES[:num_writers])


def split_of(post: Post) -> Split:
    """Return the split of a post. A hash of its text decides; one post in five is a test post."""
    return "test" if zlib.crc32(post.text.encode()) % 5 == 0 else "train"


def generated_post(rng: Random, split: Split = "train", num_writers: int = 2) -> Post:
    while True:
        post = random_post(rng, num_writers)
        if split_of(post) == split:
            return post


def random_post(rng: Random, num_writers: int = 2) -> Post:
    """Sample a post with different facts, of any split. Its first two facts contain all of its eight words."""
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
    """Parse a text into sentences, which end at . ! ? ; or a line end. Case and all other marks are ignored.

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
    """Compute the terms of the reward. Their sum is 1 if each writer states exactly the facts and links of its role.

        score  = facts * (1 - LINKS_PART + LINKS_PART * links), or facts for a role without linking words
        reward = (1 - WEAKEST_PART) * mean score + WEAKEST_PART * lowest score

    Args:
        post: source of the texts.
        texts: text of each writer, for two to four writers.

    Returns:
        "facts" and "links", with the sum (1 - WEAKEST_PART) * mean score; "weakest" = WEAKEST_PART * lowest score.
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
    """Compute the credit of every sentence of each writer, 0 to 1.

    Each fact gets credit once per team, and each writer for at most the number of facts in its role. True sentences get
    credit first, in the order of the writers, and the main point before other facts. Then false sentences get the
    CREDIT of their similarity to a fact without credit. The first writer's credit for other facts than the main point
    is multiplied by OFF_POINT_CREDIT.
    """
    main, unpaid = post.facts[0], list(post.facts)
    found = [[0.0] * len(sentences) for sentences in written]
    stated = [
        (seat, place, sentence.fact)
        for seat, sentences in enumerate(written)
        for place, sentence in enumerate(sentences)
        if sentence.fact
    ]
    num_unpaid = [role.num_facts for role in ROLES]
    for seat, place, fact in sorted(stated, key=lambda each: (each[2] not in post.facts, each[0], each[2] != main)):
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
    return sum(word == same for word, same in zip(one, other, strict=True))


def facts_score(role: Role, credit: Sequence[float]) -> float:
    """Return the Jaccard index of the facts of a text and the facts of its role, 0 to 1.

        C / (number of sentences + number of facts in the role - C), where C is the sum of the credits

    Sentences that do not parse, are false, repeat a fact or exceed the role have no credit and lower the score.
    """
    total = sum(credit)
    return total / (len(credit) + role.num_facts - total)


def links_score(role: Role, sentences: Sequence[Sentence], credit: Sequence[float]) -> float:
    """Count different linking words before sentences with full credit, as a fraction of the role's facts, up to 1."""
    heads = {sentence.link for sentence, each in zip(sentences, credit, strict=True) if each == 1 and sentence.link}
    return min(1.0, len(heads) / role.num_facts)


def truth(post: Post, *texts: str) -> dict[str, float]:
    """Measure the correctness of the texts independently of the reward. Each value is 0 to 1.

    Returns:
        "true_sentences": fraction of the sentences that the post states. "well_formed": fraction that parses.
        "facts": fraction of the post's facts that a text states. "fact_f1": F1 score of the facts,
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
