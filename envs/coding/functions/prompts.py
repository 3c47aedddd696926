"""Prompts and feedback of HumanEval, MBPP and CoopHumanEval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ...templates import Originals
from ..grading import Grade
from ..sandboxed_env import NUMBERS, Feedback, fenced, quoted
from .problems import Problem
from .rules import Programs

MAIN = "main_0"
Style = Literal["stub", "description"]

_TASKS: dict[Style, str] = {
    "stub": "{team} programmers complete one Python function, at the same time and without seeing each other's code:",
    "description": (
        "{team} programmers write one Python function, at the same time and without seeing each other's code:"
    ),
}
_HELPER = (
    "You are the helper. Write a function named `{aux}` that does a part of the work and returns a result that "
    "`{name}` can build on. Leave `{name}` itself to the other programmer."
)
_MAIN = (
    "You are the main programmer. Write the function `{name}`. The other programmer is writing a helper named "
    "`{aux}` for it: call `{aux}`, use what it returns, and do the rest of the work yourself. Do not define `{aux}`."
)
_HELPER_OF_SEVERAL = (
    "You are helper {place} of {count}. Write a function named `{own}` that does a part of the work and returns a "
    "result that `{name}` can build on. {division} Leave {others} and `{name}` itself to the other programmers."
)
_MAIN_OF_SEVERAL = (
    "You are the main programmer. Write the function `{name}`. The other programmers are writing {count} helpers for "
    "it, {helpers}. {division} Call each of them, use what it returns, and do the rest of the work yourself. Do not "
    "define the helpers."
)
_DIVISION = "Take the work as {count} steps, one after another: {steps}; `{name}` puts the steps together."
_STEPS = ("the first", "the second", "the third")
_ALSO = "The tests also use {names}, which the programmer of `{name}` defines."
_FORM = "Answer with Python code only: your function, and the imports that it needs."
_AGAIN = "Write `{name}` once more, better if you can: the whole function, as Python code only."


PROTOCOLS = {
    "discussion": {
        "helper_0": "Improve your helper function: look at how the main function uses it or could use it. The helper "
        "should provide exactly what the main function needs. Write only the code of the improved helper function.",
        "main_0": "Improve your function, in view of the helper function. Do not define the helper function again. "
        "Make good use of it and of its return value. Write only the code of the improved function.",
    }
}
"""Instructions with the content of CoMLRL's discussion, in other words."""
ORIGINALS = Originals(
    "train_magrpo.py",
    {"helper_0": "aux_function_formatter", "main_0": "main_function_formatter"},
    {"prompt": "{prompt}", "entry_point": "{entry_point}", "params_str": "{parameters}"},
)
"""Prompts of github.com/OpenMLRL/LLM_Collab_Code_Generation."""


def agents(num_agents: int) -> tuple[str, ...]:
    return (*(f"helper_{seat}" for seat in range(num_agents - 1)), MAIN)


def written_by(problem: Problem, agent: str) -> str:
    """Return the name of an agent's function."""
    return problem.entry_point if agent == MAIN else problem.helpers[_seat(agent)]


def prompt(problem: Problem, agent: str, style: Style, public_tests: Sequence[str] = ()) -> str:
    """Return the first prompt of an agent, with the assertions in `public_tests`."""
    parts = [_TASKS[style].format(team=NUMBERS[len(problem.helpers) + 1]), task(problem, style)]
    if public_tests:
        parts.append("It must pass, among other tests:\n\n" + "\n".join(public_tests))
    if problem.functions or problem.classes:
        names = [*(f"the class `{name}`" for name in problem.classes), *(f"`{name}`" for name in problem.functions)]
        parts.append(_ALSO.format(name=problem.entry_point, names=", ".join(names)))
    parts += [_role(problem, agent), _FORM]
    return "\n\n".join(parts)


def _role(problem: Problem, agent: str) -> str:
    name, helpers = problem.entry_point, problem.helpers
    if len(helpers) == 1:
        return (_MAIN if agent == MAIN else _HELPER).format(name=name, aux=helpers[0])
    steps = [f"`{helper}` does {step}" for helper, step in zip(helpers, _STEPS, strict=False)]
    division = _DIVISION.format(count=len(helpers), steps=", ".join(steps), name=name)
    if agent == MAIN:
        return _MAIN_OF_SEVERAL.format(name=name, count=len(helpers), helpers=_listed(helpers), division=division)
    own = written_by(problem, agent)
    return _HELPER_OF_SEVERAL.format(
        place=_seat(agent) + 1,
        count=len(helpers),
        own=own,
        name=name,
        division=division,
        others=_listed([helper for helper in helpers if helper != own]),
    )


def _listed(names: Sequence[str]) -> str:
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} and {last}" if first else last


def _seat(agent: str) -> int:
    return int(agent.rpartition("_")[2])


def task(problem: Problem, style: Style) -> str:
    """Return the task as in the data ("stub"), or in words with the head of the function ("description")."""
    if style == "stub":
        return fenced(problem.prompt)
    given = f"\n\nThese are given:\n\n{fenced(problem.preamble)}" if problem.preamble else ""
    return f"{problem.description.strip()}\n\nThe function is `{problem.head}`.{given}"


def request(problem: Problem, agent: str) -> str:
    return _AGAIN.format(name=written_by(problem, agent))


def verdict(mode: Feedback, problem: Problem, programs: Programs, grade: Grade | None, num_revealed: int | None) -> str:
    """Return the feedback on a turn. `grade` is None if the tests did not run.

    The mode "level_passed" gives the stages of the reward that were reached. Other modes also give the reasons why
    other stages were not reached, with the first `num_revealed` test assertions (None: all).
    """
    is_detailed = mode != "level_passed"
    lines = _levels(problem, programs, grade)
    if is_detailed and grade is not None:
        lines += _diagnoses(grade, num_revealed)
    if is_detailed and grade is not None and grade.num_passed:
        lines += _cooperation(problem, programs)
    return "\n".join(lines)


def _levels(problem: Problem, programs: Programs, grade: Grade | None) -> list[str]:
    name = problem.entry_point
    lines = [
        f"- {own}: "
        + ("defined, and it returns a value" if helper.is_defined else f"no function `{own}` with a return")
        for own, helper in zip(problem.helpers, programs.helpers, strict=True)
    ]
    lines.append(f"- {name}: " + ("defined" if programs.is_main_defined else f"no function `{name}`"))
    if programs.is_main_defined:
        lines.append("- together: " + ("they parse" if programs.is_parsed else "a syntax error"))
    if grade is not None:
        lines.append(f"- tests: {grade.num_passed} of {len(grade.results)} passed")
    return lines


def _diagnoses(grade: Grade, num_revealed: int | None) -> list[str]:
    lines = [f"- fault: {quoted(grade.fault)}"] if grade.fault else []
    for result in grade.results[:num_revealed]:
        outcome = "passed" if result.passed else f"failed: {quoted(result.message)}" if result.message else "failed"
        lines.append(f"- {result.name}\n  {outcome}")
    return lines


def _cooperation(problem: Problem, programs: Programs) -> list[str]:
    name = problem.entry_point
    named = list(zip(problem.helpers, programs.helpers, strict=True))
    lines = [f"- cooperation: {name} does not call {own}" for own, helper in named if not helper.is_called]
    lines += [f"- cooperation: {name} ignores what {own} returns" for own, helper in named if helper.is_ignored]
    lines += [
        f"- cooperation: the work is not divided: {name} solves the task without {own}, or {own} without {name}"
        for own, helper in named
        if not helper.is_needed
    ]
    used = " and ".join(own for own, helper in named if helper.is_called and not helper.is_ignored and helper.is_needed)
    if used and programs.is_thin_wrapper:
        lines.append(f"- cooperation: {name} only hands its arguments on to {used}")
    elif used:
        lines.append(f"- cooperation: {name} uses {used} and adds to it")
    return lines
