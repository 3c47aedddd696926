"""Prompts, reference texts and imperfect demonstrations of MiniWriting."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from .rules import KINDS, LINKS, ROLES, SHORT, TOPICS, Fact, Post, Topic, generated_post, num_facts, vocabulary

_TASKS = {
    "writer_0": "short summary:",
    "writer_1": "long summary with linking words:",
    "writer_2": "short summary with linking words:",
    "writer_3": "long summary:",
}
WRITERS = tuple(_TASKS)  # a team of k writers has the first k names
AGENTS = WRITERS[:2]  # writers of the default team
PLACES = {"post": True, "task": False}
"""Placeholders of a prompt template. A template must contain at least one placeholder with the value True."""

_EXPLANATION = f"""\
All writers read a post, and no writer reads another's text. writer_0 states the first fact of the post. writer_1 \
states the other three facts, each after a different linking word ({", ".join(LINKS)}). A third \
writer states one more fact after a linking word, and a fourth three more. Write sentences like those of the post: \
"the dusty goat fed the barn." The team gets reward once for each true fact; additional sentences lower it.\
"""

_IN_PLACE_SHARE = 0.3  # fraction of the demonstrations that begin with the first fact of the role
_LINKED_SHARE, _CARELESS_SHARE = 0.4, 0.35  # fractions of their sentences with a linking word, and with wrong words


def fields(post: Post, agent: str) -> dict[str, str | int]:
    return {"post": post.text, "task": _TASKS[agent]}


def explanation(agent: str) -> str:
    return f"{_EXPLANATION} You are {agent}. Reply with your sentences and nothing else."


def prompt(post: Post, agent: str, *, is_explained: bool = False) -> str:
    """Return an agent's prompt: the post and the agent's task. With `is_explained`, the rules are added."""
    return f"{explanation(agent)}\n" * is_explained + f"post: {post.text}\n{_TASKS[agent]}"


def prompt_vocabulary() -> frozenset[str]:
    """Return all words of prompts and scripted replies."""
    return vocabulary() | frozenset("post short summary long with linking words".split())


def reference_reply(post: Post, agent: str) -> str:
    """Return the reference player's text. A team of such players gets the reward 1."""
    return text_of(own_facts(post, agent), LINKS if ROLES[WRITERS.index(agent)].has_links else ())


def own_facts(post: Post, agent: str) -> tuple[Fact, ...]:
    """Return the agent's part of the facts if the team divides them in order."""
    seat = WRITERS.index(agent)
    return post.facts[num_facts(seat) : num_facts(seat + 1)]


def text_of(facts: Sequence[Fact], links: Sequence[str] = ()) -> str:
    """Return a text that states the facts. The first sentences begin with the words of `links`, in order."""
    heads = [f"{link} " if link else "" for link in links] + [""] * len(facts)
    return " ".join(head + fact.sentence for head, fact in zip(heads, facts, strict=False))


def demonstration(rng: Random, agent: str | None = None) -> tuple[str, str]:
    """Return the prompt and the reply of a careless writer, for the supervised training of a small model.

    Args:
        rng: random number generator for the post and the mistakes.
        agent: name of the writer. None: one of the first two at random.
    """
    agent = agent or rng.choice(AGENTS)
    post = generated_post(rng)
    return prompt(post, agent), careless_reply(rng, post, agent)


def careless_reply(rng: Random, post: Post, agent: str) -> str:
    """Return a careless writer's reply.

    The reply often states facts of other roles, or too many or too few facts, and omits most linking words. In
    _CARELESS_SHARE of its sentences, one to three words are wrong. A model that imitates such replies gets about a
    quarter of the maximum reward, and its samples vary enough for reinforcement learning.
    """
    seat = WRITERS.index(agent)
    role = ROLES[seat]
    start = num_facts(seat) if rng.random() < _IN_PLACE_SHARE else rng.randrange(len(post.facts))
    count = rng.choice((1, 1, 2) if role.kind == SHORT else (2, 3, 3, 4))
    facts = [post.facts[(start + number) % len(post.facts)] for number in range(count)]
    links = [link if rng.random() < _LINKED_SHARE else "" for link in rng.sample(LINKS, len(facts))]
    return text_of([_mistaken(rng, fact, TOPICS[post.topic]) for fact in facts], links if role.has_links else ())


def _mistaken(rng: Random, fact: Fact, topic: Topic) -> Fact:
    """Replace words of the fact with probability _CARELESS_SHARE, mostly by words of other topics."""
    if rng.random() >= _CARELESS_SHARE:
        return fact
    words = list(fact)
    for place in rng.sample(range(len(fact)), rng.choice((1, 2, 2, 3))):
        source = topic if rng.random() < 0.2 else rng.choice(tuple(TOPICS.values()))
        words[place] = rng.choice(getattr(source, KINDS[place]))
    return Fact(*words)
