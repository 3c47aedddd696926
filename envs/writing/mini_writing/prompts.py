"""Text in and out of MiniWriting: the prompts, texts that score the maximum, and noisy demonstrations."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from .rules import KINDS, LINKS, ROLES, SHORT, TOPICS, Fact, Post, Split, Topic, generated_post, num_facts, vocabulary

_TASKS = {
    "writer_0": "short summary:",
    "writer_1": "long summary with linking words:",
    "writer_2": "short summary with linking words:",
    "writer_3": "long summary:",
}
WRITERS = tuple(_TASKS)
"""By seat: a team of k has the first k."""
AGENTS = WRITERS[:2]
"""The team unless a larger one is asked for."""

PLACES = {"post": True, "task": False}
"""Places of a template; one of those that are true must be in it."""

_IN_PLACE_SHARE, _LINKED_SHARE, _CARELESS_SHARE = 0.3, 0.4, 0.35
"""Shares of the demonstrations that begin with the first fact of the role, and of their sentences that have a linking
word, and a wrong word."""


def fields(post: Post, agent: str) -> dict[str, str | int]:
    """What stands in the places of a template."""
    return {"post": post.text, "task": _TASKS[agent]}


def prompt(post: Post, agent: str) -> str:
    """What the agent reads: the post, then which of the texts it is to write."""
    return f"post: {post.text}\n{_TASKS[agent]}"


def prompt_vocabulary() -> frozenset[str]:
    """Every word that a prompt or a scripted reply may hold."""
    return vocabulary() | frozenset("post short summary long with linking words".split())


def reference_reply(post: Post, agent: str) -> str:
    """The agent's text of a team that scores 1."""
    return text_of(own_facts(post, agent), LINKS if ROLES[WRITERS.index(agent)].has_links else ())


def own_facts(post: Post, agent: str) -> tuple[Fact, ...]:
    """The agent's facts if the team divides them in their order."""
    seat = WRITERS.index(agent)
    return post.facts[num_facts(seat) : num_facts(seat + 1)]


def text_of(facts: Sequence[Fact], links: Sequence[str] = ()) -> str:
    """A text that states the facts, each behind one of the linking words as long as there are some."""
    heads = [f"{link} " if link else "" for link in links] + [""] * len(facts)
    return " ".join(head + fact.sentence for head, fact in zip(heads, facts, strict=False))


def demonstration(rng: Random, agent: str | None = None, split: Split = "train") -> tuple[str, str]:
    """A prompt and a reply of a careless writer, to start a small model from.

    Args:
        agent: whose; None draws one of the first two.

    Returns:
        The prompt as the environment gives it, without the line end that a transcript adds, and the reply.
    """
    agent = agent or rng.choice(AGENTS)
    post = generated_post(rng, split)
    return prompt(post, agent), careless_reply(rng, post, agent)


def careless_reply(rng: Random, post: Post, agent: str) -> str:
    """What the writer of `demonstration` makes of the post.

    It often states other facts than its role asks for, one too many or too few, and forgets most linking words. In
    _CARELESS_SHARE of its sentences one to three words are wrong; the others are exact copies. A model that imitates it
    earns about a quarter of the maximum, and its samples vary enough for learning to find better ones.
    """
    seat = WRITERS.index(agent)
    role = ROLES[seat]
    start = num_facts(seat) if rng.random() < _IN_PLACE_SHARE else rng.randrange(len(post.facts))
    count = rng.choice((1, 1, 2) if role.kind == SHORT else (2, 3, 3, 4))
    told = [post.facts[(start + number) % len(post.facts)] for number in range(count)]
    links = [link if rng.random() < _LINKED_SHARE else "" for link in rng.sample(LINKS, len(told))]
    return text_of([_mistaken(rng, fact, TOPICS[post.topic]) for fact in told], links if role.has_links else ())


def _mistaken(rng: Random, fact: Fact, topic: Topic) -> Fact:
    """The fact, or in _CARELESS_SHARE of all cases one with other words of the same kinds, mostly of other topics."""
    if rng.random() >= _CARELESS_SHARE:
        return fact
    words = list(fact)
    for place in rng.sample(range(len(fact)), rng.choice((1, 2, 2, 3))):
        source = topic if rng.random() < 0.2 else rng.choice(tuple(TOPICS.values()))
        words[place] = rng.choice(getattr(source, KINDS[place]))
    return Fact(*words)
