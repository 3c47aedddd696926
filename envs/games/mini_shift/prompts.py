"""Prompts, feedback and replies of MiniShift, in the words of MiniBuild."""

from __future__ import annotations

from collections.abc import Sequence

from ..mini_build.prompts import Feedback, goal_text, reply, told_text, verdict_text
from ..mini_build.rules import Goal, Verdict

PLACES = {"offer": True, "seat": False, "turns": False, "feedback": False, "team": False}
"""Placeholders of a prompt template. A template must contain at least one placeholder with the value True."""

_EXPLANATION = """\
You and {partners} divide work. There are {turns} turns; in each turn a new list of {team} parts is shown to all of \
you, {order}, and each names one part and its material, at the same time, without seeing what {others} wrote. A part \
that several name is built once; what nobody names is lost. {feedback}
Reply with one part of the newest list and its material, and nothing else, for example: {example}
First list, each part followed by its material:
"""


def prompt(
    pairs: Goal,
    seat: int,
    *,
    turns: int,
    feedback: Feedback,
    is_explained: bool = False,
    is_shuffled: bool = False,
    num_builders: int = 2,
) -> str:
    """Return a builder's first prompt: its number, the first list of parts and, if `is_explained`, the rules."""
    short = f"builder {seat} goal {goal_text(pairs)}"
    if not is_explained:
        return short
    is_pair = num_builders == 2
    explanation = _EXPLANATION.format(
        partners="a partner" if is_pair else f"{num_builders - 1} partners",
        others="the other" if is_pair else "the others",
        turns=turns,
        team=num_builders,
        order="to each in an order of its own" if is_shuffled else "in the same order",
        feedback=told_text(feedback, num_builders),
        example=reply(pairs[0]),
    )
    return explanation + short


def told(feedback: Feedback, own: Verdict, partners: Sequence[Verdict], next_pairs: Goal | None) -> str:
    """Return the feedback of a turn: one word per move that is reported, then the parts of the next turn."""
    words = verdict_text(feedback, own, partners)
    return words if next_pairs is None else f"{words} goal {goal_text(next_pairs)}"


def truth_text(num_right: int, num_pairs: int, verdicts: Sequence[Verdict]) -> str:
    """Return the hidden state: the results of the last moves, if any, and the number of correct parts in the episode.

    builder 0 ok builder 1 taken goal 1 of 16
    """
    seen = [f"builder {seat} {verdict}" for seat, verdict in enumerate(verdicts)]
    return " ".join([*seen, f"goal {num_right} of {num_pairs}"])
