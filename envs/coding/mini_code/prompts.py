"""Prompts and replies of MiniCode. Spaces separate words and signs, for small models with one token per word."""

from __future__ import annotations

import re

from .language import Function, parsed_function
from .rules import COMBINATIONS, OPERATIONS, Exercise, Operand

HELPER, MAIN = AGENTS = ("helper_0", "main_0")
_SEATS = {HELPER: "helper", MAIN: "main"}
_FORMS = {
    "double": "2 * {}",
    "triple": "3 * {}",
    "square": "{0} * {0}",
    "negate": "- {}",
    "increment": "{} + 1",
    "decrement": "{} - 1",
    "half": "{} // 2",
    "odd": "{} % 2",
}
_SIGNS = {"plus": "+", "minus": "-", "times": "*"}
VOCABULARY = (
    *OPERATIONS,
    *COMBINATIONS,
    *("helper", "main", "task", "of", "x", "y"),
    *("def", "aux", "return", "(", ")", ",", ":", "+", "-", "*", "//", "%"),
    *"0123456789",
)
"""Words of the short prompts and scripted replies."""

_EXPLANATION = """\
Two programmers write one function of whole numbers, at the same time, without seeing each other's code. The helper \
writes aux(x), the main programmer writes main(x, y), which computes the task and must call aux. Each writes a single \
line: def, one return, and between numbers and parameters only + - * // % and parentheses. In the task, half is \
rounded down and odd is the remainder by 2. {role}
Reply with your line and nothing else, for example: {example}
"""
_ROLES = {HELPER: "You are the helper.", MAIN: "You are the main programmer."}
_EXAMPLES = {HELPER: "def aux(x): return x + 4", MAIN: "def main(x, y): return aux(y) - 5 * x"}


def phrase(task: Exercise) -> str:
    """Return the task in words: "double of x plus square of y"."""
    left, right = (" of ".join((*operand.operations, operand.variable)) for operand in (task.left, task.right))
    return f"{left} {task.combination} {right}"


def prompt(task: Exercise, agent: str, *, is_explained: bool = False) -> str:
    """Return an agent's first prompt: its role and the task. With `is_explained`, the rules are added."""
    short = f"{_SEATS[agent]} task {phrase(task)}"
    if not is_explained:
        return short
    return _EXPLANATION.format(role=_ROLES[agent], example=_EXAMPLES[agent]) + short


def expression(operand: Operand, variable: str) -> str:
    code = variable
    for i, name in enumerate(reversed(operand.operations)):
        code = _FORMS[name].format(f"( {code} )" if i else code)
    return code


def aux_code(operand: Operand) -> str:
    return f"def aux ( x ) : return {expression(operand, 'x')}"


def main_code(task: Exercise, left_by_aux: bool, right_by_aux: bool) -> str:
    """Return the main program, one line of code that calls `aux` for the chosen operands."""
    left, right = (
        f"aux ( {operand.variable} )" if by_aux else f"( {expression(operand, operand.variable)} )"
        for operand, by_aux in ((task.left, left_by_aux), (task.right, right_by_aux))
    )
    return f"def main ( x , y ) : return {left} {_SIGNS[task.combination]} {right}"


def reference_reply(task: Exercise, agent: str) -> str:
    """Return an agent's part of a solution with reward 1, in which aux computes the left operand."""
    return aux_code(task.left) if agent == HELPER else main_code(task, True, False)


def parsed_reply(text: str) -> Function | None:
    """Parse a reply that is one function, with or without a Markdown code block. Return None for other texts."""
    fenced = re.fullmatch(r"\s*```[a-z]*\n(.*?)```\s*", text[:1000], re.DOTALL)
    return parsed_function(fenced[1] if fenced else text)
