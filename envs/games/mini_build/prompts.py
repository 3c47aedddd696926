"""Prompts, feedback and replies of MiniBuild. They are words without punctuation, for very small models."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from .rules import MATERIALS, MAX_BUILDERS, PARTS, Goal, Move, Site, Verdict

Feedback = Literal["own", "cross", "both", "none"]

_VERDICTS: tuple[Verdict, ...] = ("ok", "taken", "wrong", "bad")
VOCABULARY = (*PARTS, *MATERIALS, *_VERDICTS, "builder", *map(str, range(MAX_BUILDERS)), "goal", "next")
"""All words of short prompts, feedback and legal replies."""

PLACES = {"goal": True, "seat": False, "turns": False, "feedback": False, "team": False}
"""Placeholders of a prompt template. A template must contain at least one placeholder with the value True."""

_EXPLANATION = """\
You and {partners} build one thing together. There are {turns} turns; in each turn {all} of you name one part and its \
material, at the same time. Each of you knows the goal, nobody sees what {others} wrote. The first to build a part \
decides its material for good; building a part again is a wasted move. {feedback}
Reply with one part and its material, and nothing else, for example: {example}
Goal, each part followed by its material:
"""
_TWO_EXPLAINED = {
    "own": "After each turn you read what became of your own move",
    "cross": "After each turn you read what became of your partner's move, not of your own",
    "both": "After each turn you read what became of your own move, then of your partner's",
    "none": "You are not told what became of the moves.",
}
_TEAM_EXPLAINED = {
    **_TWO_EXPLAINED,
    "cross": "After each turn you read what became of your partners' moves, in their order, not of your own",
    "both": "After each turn you read what became of your own move, then of your partners', in their order",
}
_WORDS_EXPLAINED = (
    ": ok (built right), taken (it stood already), wrong (built of the wrong material) or bad (not a part of the goal)."
)


def prompt(
    goal: Goal, seat: int, *, turns: int, feedback: Feedback, is_explained: bool = False, num_builders: int = 2
) -> str:
    """Return a builder's first prompt: its number, the goal and, if `is_explained`, the rules."""
    short = f"builder {seat} goal {goal_text(goal)}"
    if not is_explained:
        return short
    partners, everyone, others = (
        ("a partner", "both", "the other")
        if num_builders == 2
        else (f"{num_builders - 1} partners", "each", "the others")
    )
    return (
        _EXPLANATION.format(
            partners=partners,
            all=everyone,
            others=others,
            turns=turns,
            feedback=told_text(feedback, num_builders),
            example=reply(goal[0]),
        )
        + short
    )


def told_text(feedback: Feedback, num_builders: int) -> str:
    """Return the sentence of the rules that explains the feedback setting."""
    told = (_TWO_EXPLAINED if num_builders == 2 else _TEAM_EXPLAINED)[feedback]
    return told if feedback == "none" else told + _WORDS_EXPLAINED


def goal_text(goal: Goal) -> str:
    """Format a goal as text: each part followed by its material."""
    return " ".join(f"{part} {material}" for part, material in goal)


def reply(move: Move) -> str:
    return " ".join(move)


def parsed_move(text: str) -> Move | None:
    """Parse a reply to a (part, material) pair. Other words and the order of the words are ignored.

    Return None if the reply does not contain exactly one part and one material.
    """
    words = re.findall(r"[a-z]+", text.lower())
    parts = [word for word in words if word in PARTS]
    materials = [word for word in words if word in MATERIALS]
    return (parts[0], materials[0]) if len(parts) == len(materials) == 1 else None


def truth_text(site: Site, verdicts: Sequence[Verdict]) -> str:
    """Return the hidden state: the results of the last moves, if any, the built parts and the number of correct parts.

    builder 0 ok builder 1 taken wall ok roof wrong goal 1 of 8
    """
    told = [f"builder {seat} {verdict}" for seat, verdict in enumerate(verdicts)]
    told += [f"{part} {'ok' if (part, material) in site.goal else 'wrong'}" for part, material in site.built]
    num_right = len(set(site.goal) & set(site.built))
    return " ".join([*told, f"goal {num_right} of {len(site.goal)}"])


def verdict_text(feedback: Feedback, own: Verdict, partners: Sequence[Verdict]) -> str:
    """Return the feedback of a turn: one word per reported move."""
    others = " ".join(partners)
    return {"own": own, "cross": others, "both": f"{own} {others}", "none": "next"}[feedback]
