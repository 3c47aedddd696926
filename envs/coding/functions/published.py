"""Extraction and scoring of code as in CoMLRL, by lines and text patterns instead of syntax trees.

    reward = 0.4 [aux has a return] + 0.6 [main has a return], and if main has a return
             + 0.5 [both together parse], and if they parse
             + 1.0 fraction of tests passed, and if any passed and main calls aux
             + 0.5 + 1.0 [main is no wrapper of aux] - 0.5 [a line of main is a bare call of aux]

Source: reimplementation of the scorer of github.com/OpenMLRL/LLM_Collab_Code_Generation. A function ends before the
first line that is not indented deeper than the latest `def`. Therefore code after an inner function is lost. Imports
and other functions of the completion are also lost.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..syntax import parsed
from .problems import HELPER_FUNCTION, Problem
from .rules import Helper, Programs

_FENCE = re.compile(r"```(?:python)?\s*\n?")
_DEF = re.compile(r"(?P<indent>\s*)def\s+(?P<name>\w+)\s*\(")
_IMPORT = re.compile(r"from\s+[\w.]+\s+import\s+.*|import\s+[\w.,\s]+")
_RETURN = re.compile(r"return\s+")
_CALL = re.compile(rf"\b{HELPER_FUNCTION}\s*\(")
# CoMLRL's pattern, which matches `aux (x)` only with this space.
_WASTED_CALL = re.compile(rf"{HELPER_FUNCTION}\s\([^)]\);?\s?")
_ASSIGNED_CALL = re.compile(rf"(?P<name>\w+)\s*=\s*{HELPER_FUNCTION}\s*\(")


def programs_of(problem: Problem, replies: Sequence[str]) -> Programs:
    """Extract the functions from the completions of the helper and the main programmer."""
    helper, main = replies
    aux_text, main_text = function_text(helper, HELPER_FUNCTION), function_text(main, problem.entry_point)
    is_main_defined = bool(_RETURN.search(main_text))
    together = "\n\n".join(part for part in (aux_text, main_text) if part)
    return Programs(
        helpers=(
            Helper(
                code=aux_text,
                is_defined=bool(_RETURN.search(aux_text)),
                is_called=bool(aux_text and _CALL.search(main_text)),
                is_ignored=any(_WASTED_CALL.fullmatch(line.strip()) for line in main_text.split("\n")),
            ),
        ),
        main=main_text,
        is_main_defined=is_main_defined,
        is_parsed=is_main_defined and parsed(together) is not None,
        is_thin_wrapper=is_wrapper(main_text),
    )


def terms(programs: Programs, pass_rate: float) -> dict[str, float]:
    """Compute the terms of CoMLRL's reward, without the constant that CoMLRL subtracts in each turn."""
    (helper,) = programs.helpers
    is_cooperative = programs.is_runnable and pass_rate > 0 and helper.is_called
    return {
        "aux_defined": 0.4 * helper.is_defined,
        "main_defined": 0.6 * programs.is_main_defined,
        "parses": 0.5 * programs.is_runnable,
        "tests": 1.0 * pass_rate * programs.is_runnable,
        "calls_aux": 0.5 * is_cooperative,
        "more_than_wrapper": 1.0 * (is_cooperative and not programs.is_thin_wrapper),
        "ignores_aux": 0.0 - 0.5 * (is_cooperative and helper.is_ignored),
    }


def function_text(reply: str, name: str) -> str:
    """Return the lines of a function in a completion. Empty: the function is not defined."""
    kept: list[str] = []
    own_indent = inner_indent = 0
    is_inside = False
    for line in _FENCE.sub("", reply).split("\n"):
        begins = _DEF.match(line)
        if begins and not kept:
            if begins["name"] == name:
                kept, own_indent, inner_indent, is_inside = [line], _width(line), _width(line), True
        elif begins:
            if _width(line) <= own_indent:
                break
            kept.append(line)
            inner_indent, is_inside = _width(line), True
        elif is_inside and (not line.strip() or line.startswith((" " * (inner_indent + 1), "\t"))):
            kept.append(line)
        else:
            is_inside = False
    return "\n".join(kept).strip()


def is_wrapper(main: str) -> bool:
    """Return True if a main function is empty, is one `return` with `aux`, or only assigns and returns aux's value."""
    lines = _statements(main)
    if len(lines) == 1:
        return lines[0].startswith("return ") and HELPER_FUNCTION in lines[0]
    if len(lines) == 2:
        assigned = _ASSIGNED_CALL.search(lines[0])
        return assigned is not None and lines[1] == f"return {assigned['name']}"
    return not lines


def imports_of(prompt: str) -> str:
    """Return the distinct import lines of a prompt. The tested programs get no other code of the prompt."""
    return "\n".join(dict.fromkeys(filter(_IMPORT.fullmatch, map(str.strip, prompt.split("\n")))))


def counted_tests(tests: str, entry_point: str) -> str:
    """Return the source of a function `check` with the distinct assertion lines that name the tested function.

    An assertion over several lines never passes, because only its first line is used.
    """
    lines = [line.strip() for line in tests.split("\n")]
    named = [line for line in lines if line.startswith("assert") and ("candidate" in line or entry_point in line)]
    counted = [line if parsed(line) is not None else "assert False" for line in dict.fromkeys(named)]
    return "import math\n\n\ndef check(candidate):\n" + "".join(f"    {line}\n" for line in counted or ["pass"])


def _statements(function: str) -> list[str]:
    """Return the lines of a function, except comments, docstrings, `def` lines and empty lines."""
    found: list[str] = []
    is_docstring = False
    for line in map(str.strip, function.split("\n")):
        is_mark = line.startswith(('"""', "'''"))
        if is_docstring:
            is_docstring = not ('"""' in line or "'''" in line)
        elif is_mark:
            is_docstring = not (line.endswith(line[:3]) and len(line) > 3)
        elif line and not line.startswith(("#", "def ")):
            found.append(line)
    return found


def _width(line: str) -> int:
    return len(line) - len(line.lstrip())
