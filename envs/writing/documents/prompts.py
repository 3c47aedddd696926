"""Prompt templates of TLDR and ArxivExpansion."""

from __future__ import annotations

from collections.abc import Mapping

from ...templates import Originals

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

Tell the main point and the details around it, from the post's beginning to its end, at two to three \
times the length of a short summary and in more varied words. Lead from one thought to the next with linking words, \
such as "however", "because of this" or "in the end". Stay with what the post says. Write only the summary.

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

TLDR_PROTOCOLS = {
    "pipeline": {
        "writer_1": "Start from the short summary above and expand it. Make your text two to three times as long."
    },
    "discussion": {
        "writer_0": "Refine your short summary, now that you know the long one. Write only the refined short summary. "
        "It should be a good base for the long summary, short, and with a clear focus.",
        "writer_1": "Refine your long summary, now that you know the short one. Start from the short summary and "
        "expand it: use more different words than it has, use transition words, and write two to three times as much.",
    },
}
ARXIV_EXPANSION_PROTOCOLS = {
    "pipeline": {"writer_1": "Build on this text about the background. Do not repeat what it says."},
    "discussion": {
        "writer_0": "Refine your text about background and motivation, now that you know the text about the method. "
        "Write only the refined text. It should be a good base for the other text, and about equally long.",
        "writer_1": "Refine your text about the method and its implications, now that you know the text about the "
        "background. Build on that text, be consistent with it, and write about as much.",
    },
}
"""Instructions with the content of CoMLRL's pipeline and discussion, in other words."""
ORIGINAL_TLDR = Originals(
    "train_magrpo.py",
    {"writer_0": "summary_agent_formatter", "writer_1": "elaboration_agent_formatter"},
    {"prompt": "{source}"},
)
ORIGINAL_ARXIV_EXPANSION = Originals(
    "train_magrpo.py",
    {"writer_0": "background_agent_formatter", "writer_1": "complementary_agent_formatter"},
    {"abstract": "{source}"},
)
"""Prompts of github.com/OpenMLRL/LLM_Collab_Writing."""

_TLDR_FIRST = """\
{team} writers sum up the same post for people who have no time to read it. You are the first: you write the short \
version. The others, whose texts you do not see, each write a longer one about a part of its own.

Post:
{{source}}

Give the main point in one or two plain sentences of at least 8 words, in the post's own terms. Write only the summary.

Short summary:"""
_TLDR_LATER = """\
{team} writers sum up the same post for people who have no time to read it. You are the {place}: you tell {own}. The \
first gives the main point in one or two sentences; the others tell {others}. You do not see their texts.

Post:
{{source}}

Tell your part in detail, at two to three times the length of a short summary and in more varied words. Lead from one \
thought to the next with linking words, such as "however", "because of this" or "in the end". Stay with what the post \
says, and leave to the others what is theirs. Write only the summary.

Long summary of your part:"""
_TLDR_PARTS = {
    3: ("what led to it and what happened", "what came of it and what is asked or thought now"),
    4: ("what led to it", "what happened", "what came of it and what is asked or thought now"),
}

_ARXIV_FIRST = """\
{team} writers turn the abstract of a paper into the paper's introduction. You are the first: you write the paragraph \
on the background and the motivation. The others, whose texts you do not see, go on with {others}.

Abstract:
{{source}}

Write about 140 words, never fewer than 128: what the field is about, which problem is open, and why it matters. Link \
the sentences well, and keep to the subject and the terms of the abstract. Write only the paragraph.

Background and motivation:"""
_ARXIV_LATER = """\
{team} writers turn the abstract of a paper into the paper's introduction. You are the {place}: you write the \
paragraph on {own}. The first covers background and motivation; the others write about {others}. You do not \
see their texts.

Abstract:
{{source}}

Write about 200 words, never more than 256, on your part alone. Link the sentences well, and keep to the subject and \
the terms of the abstract. Write only the paragraph.

Your paragraph:"""
_ARXIV_PARTS = {
    3: ("the method", "what was found and what follows from it"),
    4: ("the method", "what was found", "what follows from it and what it leaves open"),
}
_NUMBERS = {3: "Three", 4: "Four"}
_PLACES = ("first", "second", "third", "fourth")


def tldr_prompts(num_writers: int) -> Mapping[str, str]:
    if num_writers == 2:
        return TLDR_PROMPTS
    return _of_team(_TLDR_FIRST, _TLDR_LATER, _TLDR_PARTS[num_writers])


def arxiv_expansion_prompts(num_writers: int) -> Mapping[str, str]:
    if num_writers == 2:
        return ARXIV_EXPANSION_PROMPTS
    return _of_team(_ARXIV_FIRST, _ARXIV_LATER, _ARXIV_PARTS[num_writers])


def _of_team(first: str, later: str, parts: tuple[str, ...]) -> dict[str, str]:
    team = _NUMBERS[len(parts) + 1]
    texts = {"writer_0": first.format(team=team, others="; ".join(parts))}
    for seat, own in enumerate(parts, 1):
        others = "; ".join(part for part in parts if part != own)
        texts[f"writer_{seat}"] = later.format(team=team, place=_PLACES[seat], own=own, others=others)
    return texts
