"""MiniWriting: writers divide the facts of a post, with a vocabulary of about 140 words."""

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
    """Writers divide the facts of a generated post. There is one turn; the reward is 0 to 1.

    All writers read a post of short sentences, each a fact: "the dusty goat fed the barn.". `writer_0` states only the
    main point, which is the first fact. `writer_1` states the other three, each after a different linking word. The
    posts of larger teams have more facts: a third writer states one more fact after a linking word, and a fourth
    writer three more without linking words. No writer sees another's text. A fact is scored once per team. The reward
    compares the facts of each text with the writer's role (see `rules.terms`). It is lower if sentences do not parse,
    are false, repeat a fact or are too many.

    Args:
        split: "train" or "test", which share no post.
        num_agents: writers, 2 to 4.
        is_explained: True adds the rules in English.
        prompts: prompt of each writer, with the placeholders "{post}" and "{task}" (the built-in last line), and a
            "system" prompt: a dict with agents as keys, or a folder of files such as writer_0.txt. None: built in.
        render_mode: see `TextParallelEnv`.
    """

    metadata: ClassVar[dict[str, Any]] = {**TextParallelEnv.metadata, "name": "mini_writing_v2"}
    truth_metric: ClassVar[str | None] = "fact_f1"

    def __init__(
        self,
        *,
        split: rules.Split = "train",
        num_agents: int = 2,
        is_explained: bool = False,
        prompts: Prompts | None = None,
        render_mode: str | None = None,
    ):
        if isinstance(num_agents, bool) or num_agents not in range(2, len(ROLES) + 1):
            raise ValueError(f"num_agents must be 2 to {len(ROLES)}, got {num_agents!r}")
        if split not in get_args(rules.Split):
            raise ValueError(f"{split=} must be 'train' or 'test'")
        super().__init__(texts.WRITERS[:num_agents], max_turns=1, render_mode=render_mode)
        self._templates = templates(prompts, self.possible_agents, texts.PLACES)
        self._split, self._is_explained = split, is_explained

    def deal(self, task: Any) -> Mapping[str, list[Message]]:
        if task is not None and (isinstance(task, bool) or not isinstance(task, int) or task < 0):
            raise ValueError(f"{task=} of {self} must be an integer >= 0, the seed of its post")
        rng = self.rng if task is None else Random(task)
        post = rules.generated_post(rng, self._split, len(self.possible_agents))
        self.task = post
        return {
            agent: self._templates.opening(agent, texts.fields(post, agent), own)
            for agent in self.possible_agents
            for own in [texts.prompt(post, agent, is_explained=self._is_explained)]
        }

    def play(self, replies: Mapping[str, str]) -> Outcome:
        texts = [replies[agent] for agent in self.possible_agents]
        parts = rules.terms(self._dealt(), *texts)
        words = {f"{agent}_words": len(replies[agent].split()) for agent in self.possible_agents}
        return Outcome(sum(parts.values()), terms=parts, metrics=rules.truth(self._dealt(), *texts) | words)

    def reference_reply(self, agent: str) -> str:
        return texts.reference_reply(self._dealt(), agent)

    def exploits(self) -> Mapping[str, Callable[[str], str]]:
        return {name: partial(self._exploit, writer) for name, writer in EXPLOITS.items()}

    def _exploit(self, writer: Writer, agent: str) -> str:
        return writer(self._dealt(), agent)

    def _dealt(self) -> rules.Post:
        if self.task is None:
            raise RuntimeError("no episode is running; call reset() first")
        post: Post = self.task
        return post


Writer = Callable[[Post, str], str]  # function of the post and the agent's name that returns the agent's text


def one_word(post: Post, agent: str) -> str:
    """Exploit: write one word of the post among function words."""
    links = LINKS[:6] if _role(agent).has_links else ()
    return " ".join(["the", min(post.facts[0]), "and", "it", *links])


def rotated(post: Post, agent: str) -> str:
    """Exploit: write the reference text, with each third content word moved in front of the two words before it."""
    words = [word for fact in own_facts(post, agent) for word in fact]
    threes = [words[start : start + 3] for start in range(0, len(words), 3)]
    moved = [word for three in threes for word in (*three[2:], *three[:2])]
    return text_of([Fact(*moved[start : start + 4]) for start in range(0, len(moved), 4)], _links(agent))


def shuffled(post: Post, agent: str) -> str:
    """Exploit: write the words of the reference text in random order, with a full stop after every six words."""
    words = reference_reply(post, agent).replace(".", "").split()
    _rng(post, agent).shuffle(words)
    return " ".join(word + "." * (number % 6 == 5) for number, word in enumerate(words))


def recombined(post: Post, agent: str) -> str:
    """Exploit: write sentences of random words from the same places in the post's sentences."""
    rng, columns = _rng(post, agent), list(zip(*post.facts, strict=True))
    facts = [Fact(*map(rng.choice, columns)) for _ in range(_role(agent).num_facts)]
    return text_of(facts, _links(agent))


def every_combination(post: Post, agent: str) -> str:
    """Exploit: write all sentences of words from the same places in the post's sentences, including the true ones."""
    columns = [sorted(set(words)) for words in zip(*post.facts, strict=True)]
    return text_of([Fact(*words) for words in product(*columns)], _links(agent))


def fixed_sentences(post: Post, agent: str) -> str:
    farm = TOPICS["farm"]
    facts = [
        Fact(farm.adjectives[number % 2], farm.nouns[number], farm.verbs[number % 2], farm.nouns[number + 1])
        for number in range(_role(agent).num_facts)
    ]
    return text_of(facts, _links(agent))


def every_second_sentence_true(post: Post, agent: str) -> str:
    """Exploit: write the reference text, with every second fact replaced by words of another topic."""
    facts = (_foreign(post, fact) if number % 2 == 0 else fact for number, fact in enumerate(post.facts))
    return reference_reply(Post(post.topic, tuple(facts)), agent)


def _foreign(post: Post, fact: Fact) -> Fact:
    names = sorted(TOPICS)
    own, other = TOPICS[post.topic], TOPICS[names[names.index(post.topic) - 1]]
    words = dict(zip(own.words, other.words, strict=True))
    return Fact(*(words[word] for word in fact))


def _swapped(places: Sequence[str], post: Post, fact: Fact) -> Fact:
    """Replace the words at these places of a fact by other words from the same places in the post."""
    others = {place: [getattr(each, place) for each in post.facts] for place in places}
    chosen = {place: [word for word in words if word != getattr(fact, place)] for place, words in others.items()}
    return fact._replace(**{place: words[0] for place, words in chosen.items() if words})


def _lying(change: Callable[[Post, Fact], Fact], post: Post, agent: str) -> str:
    """Return the reference text of a post with changed facts."""
    return reference_reply(Post(post.topic, tuple(change(post, fact) for fact in post.facts)), agent)


def _repeated(fact: Fact, agent: str) -> str:
    return text_of([fact] * _role(agent).num_facts, _links(agent))


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
    "linking words alone": lambda post, agent: " ".join(f"{link} {post.facts[0].adjective}." for link in LINKS),
    "one run-on sentence": lambda post, agent: " and ".join(fact.sentence.removesuffix(".") for fact in post.facts),
    "main point by all": lambda post, agent: post.facts[0].sentence,
    "main point repeated": lambda post, agent: _repeated(post.facts[0], agent),
    "own fact repeated": lambda post, agent: _repeated(post.facts[WRITERS.index(agent)], agent),
    "whole post by all": lambda post, agent: text_of(post.facts, _links(agent)),
    "whole post by one": lambda post, agent: text_of(post.facts, LINKS) if agent == WRITERS[1] else "",
    "long writers idle": lambda post, agent: reference_reply(post, agent) if _role(agent).kind == SHORT else "",
    "first writer idle": lambda post, agent: "" if agent == WRITERS[0] else reference_reply(post, agent),
    "every second sentence true": every_second_sentence_true,
    "subject and thing swapped": partial(
        _lying, lambda post, fact: fact._replace(subject=fact.thing, thing=fact.subject)
    ),
    "adjectives swapped": partial(_lying, partial(_swapped, ("adjective",))),
    "verbs swapped": partial(_lying, partial(_swapped, ("verb",))),
    "things swapped": partial(_lying, partial(_swapped, ("thing",))),
    "adjectives and verbs swapped": partial(_lying, partial(_swapped, ("adjective", "verb"))),
    "another topic": partial(_lying, _foreign),
}
"""Exploits: a dict from the name to a function that returns an agent's text."""
