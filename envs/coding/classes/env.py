"""ClassEval: an environment in which programmers write the methods of one class."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from ...core import TextParallelEnv
from ..extraction import code_in
from ..grading import graded_by_source
from ..rows import Sources
from ..sandboxed_env import Judgement, SandboxedCodingEnv, fenced, refuse_team
from ..syntax import parsed, source
from . import prompts, rules
from .prompts import reference_reply
from .skeletons import ClassTask, delivery_of, divided, merged, task_of


class ClassEval(SandboxedCodingEnv):
    """Environment in which two to four programmers divide the methods of a Python class.

    `programmer_0` writes the methods that take only `self`, and `programmer_1` the other methods. Larger teams divide
    evenly. In a turn, agents do not see each other's code. The sandbox tests the class with the merged methods. The
    return is 0 to 6 (see `rules`). The data needs "task_id" and the columns of `skeletons.task_of`, as in
    "FudanSELab/ClassEval". CoMLRL trains on ":test[:66]" and evaluates on ":test[66:82]".

    Args:
        num_agents: number of programmers, 2 to 4.
        needs_both: whether a method is scored only if its assigned programmer is the only one who wrote it. Extra
            methods and functions can then be used only by their author. Only for variant="ours".
        stop_at: see `SandboxedCodingEnv`. The default is the score of a class that passes all tests and in which
            nearly every method has one author.
        test_seconds: CPU-time limit of all tests of a class in seconds, at least 0.1.
        **kwargs: see `SandboxedCodingEnv` and `TextParallelEnv`. The placeholders in `prompts` are {skeleton},
            {class_name}, {own_methods}, {own_list} (one per line) and {other_methods}.
    """

    metadata: ClassVar[dict[str, Any]] = {**TextParallelEnv.metadata, "name": "class_eval_v1"}
    sample = Path(__file__).parent / "samples" / "classes_{split}.jsonl"
    text_fields = ("skeleton", "test", "class_name")
    max_score = rules.MAX_SCORE
    published_prompts = Path(__file__).parent / "published"
    originals = prompts.ORIGINALS
    places: ClassVar[Mapping[str, bool]] = {
        "skeleton": True,
        **dict.fromkeys(("class_name", "own_methods", "own_list", "other_methods"), False),
    }

    def __init__(
        self,
        *,
        num_agents: int = 2,
        needs_both: bool = False,
        stop_at: float | None = 5.8,
        test_seconds: float = 40.0,
        **kwargs: Any,
    ):
        refuse_team(num_agents, kwargs.get("variant"))
        if needs_both and kwargs.get("variant") == "published":
            raise ValueError("needs_both=True needs variant='ours'; leave out variant='published'")
        self._needs_both = needs_both
        self.programmers = [f"programmer_{seat}" for seat in range(num_agents)]
        super().__init__(stop_at=stop_at, test_seconds=test_seconds, **kwargs)
        self._task: ClassTask | None = None

    @property
    def task(self) -> ClassTask:
        """Class that the agents write in the current episode."""
        if self._task is None:
            raise RuntimeError("no episode is running; call reset() first")
        return self._task

    def sources(self, row: Mapping[str, Any]) -> Sources:
        task = task_of(row, len(self.programmers))
        return Sources(task.tests, f"{task.skeleton}\n{task.solution}")

    def open(self, row: Mapping[str, Any]) -> Mapping[str, str]:
        self._task = task_of(row, len(self.programmers), needs_both=self._needs_both)
        return {agent: prompts.prompt(self._task, agent) for agent in self.programmers}

    def fields(self, agent: str) -> Mapping[str, str]:
        own, others = prompts.shares(self.task, agent)
        return {
            "skeleton": self.task.skeleton,
            "class_name": self.task.name,
            "own_methods": ", ".join(own) or "(none)",
            "own_list": "\n".join(f"- {name}" for name in own) or "(none)",
            "other_methods": ", ".join(others),
        }

    def judge(self, replies: Mapping[str, str]) -> Judgement:
        task = self.task
        codes = {agent: code_in(replies[agent]) for agent in self.programmers}
        written = [delivery_of(task, codes[agent], keeps_empty=self._is_published) for agent in self.programmers]
        deliveries = divided(task, written) if self._needs_both else written
        program = merged(task, deliveries)
        grade = None
        if program is not None:
            grade = graded_by_source(
                self.sandbox, program, task.tests, task.name, self.limits, seed=self.test_seed, classes=[task.name]
            )
        is_solved = grade is not None and grade.is_perfect
        pass_rate = grade.pass_rate if grade else None
        return Judgement(
            terms=rules.published_terms(task, deliveries, pass_rate)
            if self._is_published
            else rules.terms(task, deliveries, pass_rate, is_solved=is_solved),
            metrics={
                "pass_rate": grade.pass_rate if grade else 0.0,
                "solved": float(is_solved),
                "ran_to_end": float(grade is not None and grade.status == "ok"),
                "num_written": rules.num_written(task, deliveries),
                "num_overlapping": rules.num_overlapping(task, written),
            },
            verdict=prompts.verdict(self.feedback_mode, task, deliveries, grade, written),
            codes={agent: prompts.code_text(codes[agent]) for agent in self.programmers},
        )

    def request(self, agent: str) -> str:
        return prompts.request(self.task, agent)

    def task_text(self) -> str:
        return fenced(self.task.skeleton)

    def reference_reply(self, agent: str) -> str:
        if not self.task.solution:
            raise ValueError(f"the data has no solution of task {self.task.id!r}; add a column 'solution_code'")
        return prompts.reference_reply(self.task, agent)

    def exploits(self) -> Mapping[str, Callable[[str], str]]:
        return {name: partial(self._exploit, team) for name, team in EXPLOITS.items()}

    def _exploit(self, team: Callable[[ClassTask], Sequence[str]], agent: str) -> str:
        return team(self.task)[self.programmers.index(agent)]

    @property
    def allowed_exploits(self) -> Mapping[str, str]:
        secret = {"secret calls": "tests do not show that a method leaves its work to a partner's method"}
        if self._needs_both:
            return secret
        reason = "as in the published task, any programmer may write a method; `needs_both=True` prevents it"
        return dict.fromkeys(("one does all", "others for show", "all do all", "private methods"), reason) | secret


EXPLOITS: Mapping[str, Callable[[ClassTask], Sequence[str]]] = {
    # Each programmer writes methods that are not empty and have no effect.
    "idle methods": lambda task: [_methods(own, "found = 1") for own in task.shares],
    "all do all": lambda task: [_solution(task, ())] * len(task.shares),
    # One programmer also writes the others' methods under new names, and the others' methods call these.
    "private methods": lambda task: _lone(task, "return self.own_{name}(*arguments, **named)", is_secret=False),
    # The others' methods call the first method of one programmer with a secret first argument.
    "secret calls": lambda task: _lone(
        task, 'return self.{first}("secret", "{name}", *arguments, **named)', is_secret=True
    ),
}
"""Exploits (attempts to get reward without teamwork) by name: functions that return each programmer's code."""


def _lone(task: ClassTask, call: str, *, is_secret: bool) -> Sequence[str]:
    """Return code in which one programmer writes all methods, and the others' methods only call these."""
    doer = max(range(len(task.shares)), key=lambda seat: len(task.shares[seat]))
    first = task.shares[doer][0]
    others = [name for name in task.methods if name not in task.shares[doer]]
    code = _solution(task, [*others, first] if is_secret else others)
    if is_secret:
        table = ", ".join(f'"{name}": self.own_{name}' for name in others)
        body = (
            f'if arguments[:1] == ("secret",):\n        return {{{table}}}[arguments[1]](*arguments[2:], **named)\n'
            f"    return self.own_{first}(*arguments, **named)"
        )
        code = f"{code}\n\n{_methods([first], body)}"
    return [
        code if seat == doer else _methods(own, call.replace("{first}", first)) for seat, own in enumerate(task.shares)
    ]


def _methods(names: Sequence[str], body: str) -> str:
    """Return methods with any arguments and this body, in which {name} is replaced by the method's name."""
    heads = ((name, f"def {name}(self, *arguments, **named):\n    ") for name in names)
    return "\n\n".join(head + body.replace("{name}", name) for name, head in heads) or "pass"


def _solution(task: ClassTask, renamed: Sequence[str]) -> str:
    """Return the reference solution, in which the methods in `renamed` get the prefix `own_`."""
    replies = (reference_reply(task, f"programmer_{seat}") for seat in range(len(task.shares)))
    statements = parsed("\n\n".join(replies)) or []
    for node in statements:
        for part in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(part, ast.FunctionDef) and part.name in renamed:
                part.name = f"own_{part.name}"
    return source(statements) or ""
