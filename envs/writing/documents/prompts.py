"""Text in and out of TLDR and ArxivExpansion: the prompt of each writer."""

from __future__ import annotations

AGENTS = ("writer_0", "writer_1")

TLDR_PROMPTS = {
    "writer_0": """\
Two writers sum up the same post for people who have no time to read it. You are the first: you write the short \
version. A second writer, whose text you do not see, writes a longer one about the same things.

Post:
{source}

Give the main point in one or two plain sentences of at least 8 words, in the post's own terms. Write only the summary.

Short summary:""",
    "writer_1": """\
Two writers sum up the same post for people who have no time to read it. You are the second: you write the long \
version. A first writer, whose text you do not see, gives the main point in one or two sentences.

Post:
{source}

Tell the main point and the details around it, at two to three times the length of a short summary and in more varied \
words. Lead from one thought to the next with linking words, such as "however", "because of this" or "in the end". \
Stay with what the post says. Write only the summary.

Long summary:""",
}

ARXIV_EXPANSION_PROMPTS = {
    "writer_0": """\
Two writers turn the abstract of a paper into the paper's introduction. You are the first: you write the paragraph on \
the background and the motivation. A second writer, whose text you do not see, goes on with method and implications.

Abstract:
{source}

Write about 140 words, never fewer than 128: what the field is about, which problem is open, and why it matters. Link \
the sentences well, and keep to the subject and the terms of the abstract. Write only the paragraph.

Background and motivation:""",
    "writer_1": """\
Two writers turn the abstract of a paper into the paper's introduction. You are the second: you write the paragraph on \
the method and its implications. A first writer, whose text you do not see, has covered background and motivation.

Abstract:
{source}

Write about 200 words, never more than 256: what was done and how, what was found, and what follows from it. Link the \
sentences well, and keep to the subject and the terms of the abstract. Write only the paragraph.

Method and implications:""",
}


def prompt(template: str, source: str) -> str:
    """The template with the source in its place; braces in the source stay as they are."""
    return template.replace("{source}", source)
