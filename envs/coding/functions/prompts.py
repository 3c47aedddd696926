"""Text in and out of the two programmers' function: every string an agent reads passes through here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..feedback import Feedback, fenced, quoted
from ..grading import Grade
from .problems import Problem
from .rules import Pair

HELPER, MAIN = AGENTS = ("helper_0", "main_0")
Style = Literal["stub", "description"]

_TASKS: dict[Style, str] = {
    "stub": "Two programmers complete one Python function, at the same time and without seeing each other's code:",
    "description": "Two programmers write one Python function, at the same time and without seeing each other's code:",
}
_ROLES = {
    HELPER: (
        "You are the helper. Write a function named `aux` that does a part of the work and returns a result that "
        "`{name}` can build on. Leave `{name}` itself to the other programmer."
    ),
    MAIN: (
        "You are the main programmer. Write the function `{name}`. The other programmer is writing a helper named "
        "`aux` for it: call `aux`, use what it returns, and do the rest of the work yourself. Do not define `aux`."
    ),
}
_ALSO = "The tests also use {names}, which the programmer of `{name}` defines."
_FORM = "Answer with Python code only: your function, and the imports that it needs."
_AGAIN = {
    HELPER: "Write `aux` once more, better if you can: the whole function, as Python code only.",
    MAIN: "Write `{name}` once more, better if you can: the whole function, as Python code only.",
}


def prompt(problem: Problem, agent: str, style: Style, public_tests: Sequence[str] = ()) -> str:
    """What an agent reads first.

    Args:
        problem: the task.
        agent: whose prompt.
        style: "stub" shows the task as the data states it, "description" the words and the function's head.
        public_tests: assertions that are shown.
    """
    parts = [_TASKS[style], task(problem, style)]
    if public_tests:
        parts.append("It must pass, among other tests:\n\n" + "\n".join(public_tests))
    if problem.functions or problem.classes:
        names = [*(f"the class `{name}`" for name in problem.classes), *(f"`{name}`" for name in problem.functions)]
        parts.append(_ALSO.format(name=problem.entry_point, names=", ".join(names)))
    parts += [_ROLES[agent].format(name=problem.entry_point), _FORM]
    return "\n\n".join(parts)


def task(problem: Problem, style: Style) -> str:
    """The task, as the data states it or in words."""
    if style == "stub":
        return fenced(problem.prompt)
    given = f"\n\nThese are given:\n\n{fenced(problem.preamble)}" if problem.preamble else ""
    return f"{problem.description.strip()}\n\nThe function is `{problem.head}`.{given}"


def request(problem: Problem, agent: str) -> str:
    """What an agent is asked for after a turn."""
    return _AGAIN[agent].format(name=problem.entry_point)


def verdict(mode: Feedback, problem: Problem, pair: Pair, grade: Grade | None, num_revealed: int | None) -> str:
    """What both agents are told of a turn.

    Args:
        mode: "plain" tells nothing; "passed" whether all tests passed; "level_passed" how far each stage of the
            reward was reached; "level_feedback", and "expert" for the expert's eyes, also why not.
        problem: the task.
        pair: the two programs.
        grade: what became of the tests; None if they were not run.
        num_revealed: how many of the assertions may be shown; None for all.
    """
    if mode == "plain":
        return ""
    if mode == "passed":
        return "All tests passed." if grade is not None and grade.is_perfect else "Not all tests passed."
    is_detailed = mode != "level_passed"
    lines = _levels(problem, pair, grade)
    if is_detailed and grade is not None:
        lines += _diagnoses(grade, num_revealed)
    if is_detailed and grade is not None and grade.num_passed:
        lines += _cooperation(problem, pair)
    return "\n".join(lines)


def _levels(problem: Problem, pair: Pair, grade: Grade | None) -> list[str]:
    name = problem.entry_point
    lines = [
        "- aux: " + ("defined, and it returns a value" if pair.is_aux_defined else "no function `aux` with a return"),
        f"- {name}: " + ("defined" if pair.is_main_defined else f"no function `{name}`"),
    ]
    if pair.is_main_defined:
        lines.append("- together: " + ("they parse" if pair.is_parsed else "a syntax error"))
    if grade is not None:
        lines.append(f"- tests: {grade.num_passed} of {len(grade.results)} passed")
    return lines


def _diagnoses(grade: Grade, num_revealed: int | None) -> list[str]:
    lines = [f"- fault: {quoted(grade.fault)}"] if grade.fault else []
    for result in grade.results[:num_revealed]:
        outcome = "passed" if result.is_passed else f"failed: {quoted(result.message)}" if result.message else "failed"
        lines.append(f"- {result.name}\n  {outcome}")
    return lines


def _cooperation(problem: Problem, pair: Pair) -> list[str]:
    if not pair.calls_aux:
        return [f"- cooperation: {problem.entry_point} does not call aux"]
    if pair.ignores_aux:
        return [f"- cooperation: {problem.entry_point} ignores what aux returns"]
    if pair.is_thin_wrapper:
        return [f"- cooperation: {problem.entry_point} only hands its arguments on to aux"]
    return [f"- cooperation: {problem.entry_point} uses aux and adds to it"]
