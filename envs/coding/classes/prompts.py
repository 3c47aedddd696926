"""Prompts and feedback of ClassEval."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ...templates import Originals
from ..extraction import Code
from ..grading import Grade
from ..sandboxed_env import NUMBERS, Feedback, fenced, quoted
from ..syntax import parsed, source
from .skeletons import ClassTask, Delivery, class_named, has_self, with_helpers

_MAX_NAMES = 20

_TASK = "{team} programmers complete one Python class, at the same time and without seeing each other's code:"
_SHARE = (
    "You write these methods: {own}. The other {write}: {others}. You may call each other's methods; "
    "`__init__` stands as it is given."
)
_NO_SHARE = "All methods are the other programmer's: {others}. Answer with `pass`."
_NO_SHARE_OF_TEAM = "All methods are the other programmers': {others}. Answer with `pass`."
_FORM = "Answer with Python code only: your methods, each from its `def` line on, and the imports that they need."
_AGAIN = "Write your methods once more, better if you can ({own}): the whole methods, as Python code only."

ORIGINALS = Originals(
    "utils/prompting.py",
    {"prompt": "build_agent_prompt"},
    {"skeleton": "{skeleton}", "class_name": "{class_name}", "assigned_text": "{own_list}"},
)
"""Prompts of github.com/OpenMLRL/LLM_Collab_Code_Completion."""


def prompt(task: ClassTask, agent: str) -> str:
    """Return the first prompt of an agent: the class skeleton and the names of the methods to write."""
    own, others = shares(task, agent)
    write = "programmer writes" if len(task.shares) == 2 else "programmers write"
    share = (_SHARE if own else _no_share(task)).format(own=_names(own), write=write, others=_names(others) or "none")
    parts = [_TASK.format(team=NUMBERS[len(task.shares)]), fenced(task.skeleton), share]
    return "\n\n".join(parts + [_FORM] * bool(own))


def _no_share(task: ClassTask) -> str:
    return _NO_SHARE if len(task.shares) == 2 else _NO_SHARE_OF_TEAM


def request(task: ClassTask, agent: str) -> str:
    own, others = shares(task, agent)
    return _AGAIN.format(own=_names(own)) if own else _no_share(task).format(others=_names(others))


def verdict(
    mode: Feedback, task: ClassTask, deliveries: Sequence[Delivery], grade: Grade | None, written: Sequence[Delivery]
) -> str:
    """Return the feedback on a turn.

    `deliveries` is the scored code of each programmer, `written` is all code. `grade` is None if the merged class did
    not parse. The mode "level_passed" gives numbers of methods and tests. Other modes also list missing methods and
    failed tests, without the code of the tests.
    """
    if grade is None:
        return "- the merged class: a syntax error, so nothing was tested"
    both = [name for name in task.methods if sum(name in delivery.methods for delivery in written) > 1]
    missing = [name for name in task.methods if not any(name in delivery.methods for delivery in deliveries)]
    lines = [
        f"- methods: {len(task.methods) - len(missing)} of {len(task.methods)} written",
        f"- tests: {grade.num_passed} of {len(grade.results)} passed",
    ]
    if mode == "level_passed":
        return "\n".join(lines)
    whose = "both of you" if len(deliveries) == 2 else "more than one of you"
    others = [name for name in missing if sum(name in delivery.methods for delivery in written) == 1]
    missing = [name for name in missing if not any(name in delivery.methods for delivery in written)]
    lines += [f"- not written: {_names(missing)}"] if missing else []
    lines += [f"- written by a programmer who was not asked for it: {_names(others)}"] if others else []
    lines += [f"- written by {whose}: {_names(both)}"] if both else []
    lines += [f"- fault: {quoted(grade.fault)}"] if grade.fault else []
    failed = [result.name for result in grade.results if not result.passed]
    if failed:
        more = f" and {len(failed) - _MAX_NAMES} more" if len(failed) > _MAX_NAMES else ""
        lines.append(f"- failed tests: {', '.join(failed[:_MAX_NAMES])}{more}")
    return "\n".join(lines)


def reference_reply(task: ClassTask, agent: str) -> str:
    """Return an agent's methods from the data's solution, with the code outside of the class."""
    own, _ = shares(task, agent)
    statements = parsed(task.solution) or []
    solved = class_named(statements, task.name)
    body = with_helpers(task, solved, own) if solved else []
    around = [node for node in statements if node is not solved and not isinstance(node, ast.If | ast.Expr)]
    if solved and not all(has_self(node) for node in body):  # outside of a class, a method without self is a function
        body = [ast.ClassDef(task.name, solved.bases, [], body, [])]
    return (source([*around, *body]) or "") if body else "pass"


def shares(task: ClassTask, agent: str) -> tuple[Sequence[str], Sequence[str]]:
    """Return the names of an agent's methods, and the names of the other agents' methods."""
    number = int(agent.rpartition("_")[2])
    others = (*task.shares[:number], *task.shares[number + 1 :])
    return task.shares[number], [name for share in others for name in share]


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def code_text(code: Code) -> str:
    return "\n".join(part for part in (source(code.statements), code.broken) if part)
