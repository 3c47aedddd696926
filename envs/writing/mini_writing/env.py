"""MiniWriting: writers divide the facts of a post, in short and at length, in a vocabulary of about 140 words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from random import Random
from typing import Any, ClassVar, get_args

from ...core import Message, Outcome, TextParallelEnv
from ...templates import Prompts, templates
from . import prompts as texts
from . import rules
from .prompts import WRITERS, own_facts, reference_reply, text_of
from .rules import LINKS, ROLES, SHORT, TOPICS, Fact, Post, Role


class MiniWriting(TextParallelEnv):
    """Writers divide the facts of a generated post; one turn, reward 0 to 1.

    All writers read a post of short sentences, each a fact: "the dusty goat fed the barn.". `writer_0` states the main
    point, which is the first fact, and nothing more. `writer_1` states the other three, each behind a different linking
    word. In a larger team the post has more facts: a third writer states one of them behind a linking word, a fourth
    one three without. No writer sees another's text, and a fact counts once over the team. The reward compares the
    facts that each text states with its role (`rules.terms`): true sentences earn it, and sentences that do not parse,
    are false, repeat a fact or are too many lower it.

    Args:
        split: "train" or "test"; the posts of the two do not overlap.
        num_agents: writers, 2 to 4.
        prompts: what each writer reads, with the places "{post}" and "{task}" (the own prompt's last line), and a
            "system" prompt: a mapping by agent, or a folder of files such as writer_0.txt; None for the package's own.
        render_mode: see `TextParallelEnv`.
    """

    metadata: ClassVar[dict[str, Any]] = {**TextParallelEnv.metadata, "name": "mini_writing_v2"}
    truth_metric: ClassVar[str | None] = "fact_f1"

    def __init__(
        self,
        *,
        split: rules.Split = "train",
        num_agents: int = 2,
        prompts: Prompts | None = None,
        render_mode: str | None = None,
    ):
        rules.refuse_team(num_agents)
        if split not in get_args(rules.Split):
            raise ValueError(f"split must be 'train' or 'test', got {split!r}")
        super().__init__(texts.WRITERS[:num_agents], max_turns=1, render_mode=render_mode)
        self._templates = templates(prompts, self.possible_agents, texts.PLACES)
        self._split = split
        self._post: rules.Post | None = None

    def deal(self, task: Any) -> Mapping[str, list[Message]]:
        """A post: drawn, or where the task is a whole number from 0 up, that post of the split."""
        if task is not None and (isinstance(task, bool) or not isinstance(task, int) or task < 0):
            raise ValueError(f"a task of {self} is a whole number from 0 up, the seed of its post; got {task!r}")
        rng = self.rng if task is None else Random(task)
        post = rules.generated_post(rng, self._split, len(self.possible_agents))
        self.task = self._post = post
        return {
            agent: self._templates.opening(agent, texts.fields(post, agent), texts.prompt(post, agent))
            for agent in self.possible_agents
        }

    def play(self, replies: Mapping[str, str]) -> Outcome:
        texts = [replies[agent] for agent in self.possible_agents]
        parts = rules.terms(self._dealt(), *texts)
        words = {f"{agent}_words": len(replies[agent].split()) for agent in self.possible_agents}
        return Outcome(sum(parts.values()), terms=parts, metrics=rules.truth(self._dealt(), *texts) | words)

    def reference_reply(self, agent: str) -> str:
        """The agent's text of a team about the current post that scores 1."""
        return texts.reference_reply(self._dealt(), agent)

    def exploits(self) -> Mapping[str, Callable[[str], str]]:
        """Teams that write salads, lies, copies or too much (`EXPLOITS`)."""
        return {name: partial(self._written, writer) for name, writer in EXPLOITS.items()}

    def _written(self, writer: Callable[[rules.Post, str], str], agent: str) -> str:
        return writer(self._dealt(), agent)

    def _dealt(self) -> rules.Post:
        if self._post is None:
            raise RuntimeError("no episode is running; call reset() first")
        return self._post


Writer = Callable[[Post, str], str]
"""(post, agent) -> the agent's text."""


def one_word(post: Post, agent: str) -> str:
    """One word of the post among words that any text may hold."""
    links = LINKS[:6] if _role(agent).has_links else ()
    return " ".join(["the", min(post.facts[0]), "and", "it", *links])


def rotated(post: Post, agent: str) -> str:
    """The reference text, with each third content word moved before the two others: one pair in three is kept."""
    words = [word for fact in own_facts(post, agent) for word in fact]
    threes = [words[start : start + 3] for start in range(0, len(words), 3)]
    moved = [word for three in threes for word in (*three[2:], *three[:2])]
    return text_of([Fact(*moved[start : start + 4]) for start in range(0, len(moved), 4)], _links(agent))


def shuffled(post: Post, agent: str) -> str:
    """The words of the reference text in random places, a full stop after every six."""
    words = reference_reply(post, agent).replace(".", "").split()
    _rng(post, agent).shuffle(words)
    return " ".join(word + "." * (number % 6 == 5) for number, word in enumerate(words))


def recombined(post: Post, agent: str) -> str:
    """Sentences of the grammar, at random of the words that stand in the same places of the post."""
    rng, columns = _rng(post, agent), list(zip(*post.facts, strict=True))
    facts = [Fact(*map(rng.choice, columns)) for _ in range(_role(agent).num_facts)]
    return text_of(facts, _links(agent))


def every_combination(post: Post, agent: str) -> str:
    """All sentences of the words that stand in the same places of the post: the true ones are among them."""
    columns = [sorted(set(words)) for words in zip(*post.facts, strict=True)]
    return text_of([Fact(*words) for words in product(*columns)], _links(agent))


def fixed_sentences(post: Post, agent: str) -> str:
    """The same sentences for every post."""
    farm = TOPICS["farm"]
    facts = [
        Fact(farm.adjectives[number % 2], farm.nouns[number], farm.verbs[number % 2], farm.nouns[number + 1])
        for number in range(_role(agent).num_facts)
    ]
    return text_of(facts, _links(agent))


def links_alone(post: Post, agent: str) -> str:
    """Every linking word, with an adjective of the post behind it."""
    return " ".join(f"{link} {post.facts[0].adjective}." for link in LINKS)


def run_on(post: Post, agent: str) -> str:
    """All facts in one long sentence."""
    return " and ".join(fact.sentence.removesuffix(".") for fact in post.facts)


def main_point_by_all(post: Post, agent: str) -> str:
    """The main point, once."""
    return post.facts[0].sentence


def main_point_repeated(post: Post, agent: str) -> str:
    """The main point, as often as the role has facts, each time behind another linking word."""
    return text_of([post.facts[0]] * _role(agent).num_facts, _links(agent))


def own_fact_repeated(post: Post, agent: str) -> str:
    """A fact that the other writers do not state, repeated as in `main_point_repeated`."""
    return text_of([post.facts[WRITERS.index(agent)]] * _role(agent).num_facts, _links(agent))


def whole_post_by_all(post: Post, agent: str) -> str:
    """All facts."""
    return text_of(post.facts, _links(agent))


def whole_post_by_one(post: Post, agent: str) -> str:
    """All facts by the second writer, with linking words, and nothing by the others."""
    return text_of(post.facts, LINKS) if agent == WRITERS[1] else ""


def long_writers_idle(post: Post, agent: str) -> str:
    """The reference, but nothing by the writers of long texts."""
    return reference_reply(post, agent) if _role(agent).kind == SHORT else ""


def first_writer_idle(post: Post, agent: str) -> str:
    """The reference, but nothing by the first writer."""
    return "" if agent == WRITERS[0] else reference_reply(post, agent)


def every_second_sentence_true(post: Post, agent: str) -> str:
    """The reference, with every second fact, from the main point on, replaced by words of another topic."""
    facts = (_foreign(post, fact) if number % 2 == 0 else fact for number, fact in enumerate(post.facts))
    return reference_reply(Post(post.topic, tuple(facts)), agent)


def _subject_and_thing_swapped(post: Post, fact: Fact) -> Fact:
    return fact._replace(subject=fact.thing, thing=fact.subject)


def _foreign(post: Post, fact: Fact) -> Fact:
    """The fact in words of another topic."""
    names = sorted(TOPICS)
    own, other = TOPICS[post.topic], TOPICS[names[names.index(post.topic) - 1]]
    words = dict(zip(own.words, other.words, strict=True))
    return Fact(*(words[word] for word in fact))


def _swapped(places: Sequence[str], post: Post, fact: Fact) -> Fact:
    """The fact with other words of the post in these places; the same words if the post has no others."""
    others = {place: [getattr(each, place) for each in post.facts] for place in places}
    chosen = {place: [word for word in words if word != getattr(fact, place)] for place, words in others.items()}
    return fact._replace(**{place: words[0] for place, words in chosen.items() if words})


def _lying(change: Callable[[Post, Fact], Fact], post: Post, agent: str) -> str:
    """The reference text of a post whose facts are changed."""
    return reference_reply(Post(post.topic, tuple(change(post, fact) for fact in post.facts)), agent)


def _role(agent: str) -> Role:
    return ROLES[WRITERS.index(agent)]


def _links(agent: str) -> Sequence[str]:
    return LINKS if _role(agent).has_links else ()


def _rng(post: Post, agent: str) -> Random:
    return Random(f"{agent}: {post.text}")


EXPLOITS: Mapping[str, Writer] = {
    "one word": one_word,
    "words rotated by three": rotated,
    "words shuffled": shuffled,
    "words recombined": recombined,
    "every combination of words": every_combination,
    "fixed sentences": fixed_sentences,
    "linking words alone": links_alone,
    "one run-on sentence": run_on,
    "main point by all": main_point_by_all,
    "main point repeated": main_point_repeated,
    "own fact repeated": own_fact_repeated,
    "whole post by all": whole_post_by_all,
    "whole post by one": whole_post_by_one,
    "long writers idle": long_writers_idle,
    "first writer idle": first_writer_idle,
    "every second sentence true": every_second_sentence_true,
    "subject and thing swapped": partial(_lying, _subject_and_thing_swapped),
    "adjectives swapped": partial(_lying, partial(_swapped, ("adjective",))),
    "verbs swapped": partial(_lying, partial(_swapped, ("verb",))),
    "things swapped": partial(_lying, partial(_swapped, ("thing",))),
    "adjectives and verbs swapped": partial(_lying, partial(_swapped, ("adjective", "verb"))),
    "another topic": partial(_lying, _foreign),
}
"""By name, in words for a table."""
