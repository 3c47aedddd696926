"""Text in and out of MiniWriting: the two prompts, texts that score the maximum, and noisy demonstrations."""

from __future__ import annotations

from random import Random

from .rules import LINKS, LONG, MAX_WORDS, SHORT, TOPICS, Post, Split, Topic, generated_post, vocabulary

AGENTS = ("writer_0", "writer_1")
_TASKS = {"writer_0": "short summary:", "writer_1": "long summary with linking words:"}


def prompt(post: Post, agent: str) -> str:
    """What the agent reads: the post, then which of the two texts it is to write."""
    return f"post: {post.text}\n{_TASKS[agent]}"


def prompt_vocabulary() -> frozenset[str]:
    """Every word that a prompt or a scripted reply may hold."""
    return vocabulary() | frozenset("post short summary long with linking words".split())


def reference_reply(post: Post, agent: str) -> str:
    """A text of the pair that scores 1: the first sentence, and the first three with a linking word each."""
    if agent == "writer_0":
        return post.sentences[0]
    return " ".join(f"{link} {sentence}" for link, sentence in zip(LINKS, post.sentences[:3], strict=False))


def demonstration(rng: Random, agent: str | None = None, split: Split = "train") -> tuple[str, str]:
    """A prompt and a reply of a careless writer, to start a small model from.

    The writer keeps to the good form only partly (in short it mostly tells too much, at length too little, from any
    place in the post, and it forgets most links), and 20 to 35 % of its content words are mistakes. A model that
    imitates it scores about a fifth of the maximum, and its samples vary enough for learning to find better ones.

    Args:
        agent: whose; None draws one.

    Returns:
        The prompt as the environment gives it, without the line end that a transcript adds, and the reply.
    """
    agent = agent or rng.choice(AGENTS)
    post = generated_post(rng, split)
    return prompt(post, agent), careless_reply(rng, post, agent)


def careless_reply(rng: Random, post: Post, agent: str) -> str:
    """What the writer of `demonstration` makes of the post."""
    if agent == "writer_0":
        told = [post.sentences[0]] if rng.random() < 0.1 else rng.sample(post.sentences, rng.choice((1, 2, 2, 2)))
    else:
        told = rng.sample(post.sentences, rng.choice((1, 1, 1, 2, 2, 3)))
        told = [f"{rng.choice(LINKS)} {each}" if rng.random() < 0.12 else each for each in told]
    error_rate = rng.uniform(0.2, 0.35)
    words = [_mistaken(rng, word, TOPICS[post.topic], error_rate) for each in told for word in each.split()]
    return " ".join(words[: MAX_WORDS[SHORT if agent == "writer_0" else LONG]])


def _mistaken(rng: Random, word: str, topic: Topic, rate: float) -> str:
    """The word, or at the rate another of its kind, mostly of another topic. The grammar stays."""
    bare = word.rstrip(".")
    if bare not in topic.words or rng.random() >= rate:
        return word
    source = topic if rng.random() < 0.1 else rng.choice(tuple(TOPICS.values()))
    kind = next(kind for kind in ("nouns", "verbs", "adjectives") if bare in getattr(topic, kind))
    return str(rng.choice(getattr(source, kind))) + word[len(bare) :]
