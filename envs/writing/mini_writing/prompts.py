"""Text in and out of MiniWriting: the prompts, texts that score the maximum, and noisy demonstrations."""

from __future__ import annotations

from random import Random

from .rules import (
    LINKS,
    MAX_WORDS,
    ROLES,
    SHORT,
    TOPICS,
    Post,
    Split,
    Topic,
    generated_post,
    score,
    terms,
    vocabulary,
)

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
    """A text of the team that scores 1.

    The short ones are the first and the second sentence; the long ones the first three sentences, and the first two in
    another order, shortened or with a later one where otherwise the two would be too much alike.
    """
    first, second, *later = post.sentences
    told = {
        "writer_0": first,
        "writer_1": " ".join(f"{link} {sentence}" for link, sentence in zip(LINKS, post.sentences[:3], strict=False)),
        "writer_2": f"{LINKS[1]} {second}",
    }
    if agent in told:
        return told[agent]
    fourth = later[-1]
    brief = second.replace(f"{second.split()[1]} ", "", 1)
    orders = (
        (second, first),
        (second, first, fourth),
        (fourth, second, first),
        (second, fourth, first),
        (brief, first),
        (brief, fourth, first),
        (first, brief),
        (first, fourth, brief),
    )
    candidates = (" and it ".join(order) for order in orders)
    return max(candidates, key=lambda text: score(terms(post, *told.values(), text)))


def demonstration(rng: Random, agent: str | None = None, split: Split = "train") -> tuple[str, str]:
    """A prompt and a reply of a careless writer, to start a small model from.

    The writer keeps to the good form only partly (in short it mostly tells too much, at length too little, from any
    place in the post, and it forgets most links), and 20 to 35 % of its content words are mistakes. A model that
    imitates it scores about a fifth of the maximum, and its samples vary enough for learning to find better ones.

    Args:
        agent: whose; None draws one of the first two.

    Returns:
        The prompt as the environment gives it, without the line end that a transcript adds, and the reply.
    """
    agent = agent or rng.choice(AGENTS)
    post = generated_post(rng, split)
    return prompt(post, agent), careless_reply(rng, post, agent)


def careless_reply(rng: Random, post: Post, agent: str) -> str:
    """What the writer of `demonstration` makes of the post."""
    role = ROLES[WRITERS.index(agent)]
    if role.kind == SHORT:
        told = [post.sentences[0]] if rng.random() < 0.1 else rng.sample(post.sentences, rng.choice((1, 2, 2, 2)))
    else:
        told = rng.sample(post.sentences, rng.choice((1, 1, 1, 2, 2, 3)))
    if role.num_wanted_links:
        told = [f"{rng.choice(LINKS)} {each}" if rng.random() < 0.12 else each for each in told]
    error_rate = rng.uniform(0.2, 0.35)
    words = [_mistaken(rng, word, TOPICS[post.topic], error_rate) for each in told for word in each.split()]
    return " ".join(words[: MAX_WORDS[role.kind]])


def _mistaken(rng: Random, word: str, topic: Topic, rate: float) -> str:
    """The word, or at the rate another of its kind, mostly of another topic. The grammar stays."""
    bare = word.rstrip(".")
    if bare not in topic.words or rng.random() >= rate:
        return word
    source = topic if rng.random() < 0.1 else rng.choice(tuple(TOPICS.values()))
    kind = next(kind for kind in ("nouns", "verbs", "adjectives") if bare in getattr(topic, kind))
    return str(rng.choice(getattr(source, kind))) + word[len(bare) :]
