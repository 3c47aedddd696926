"""HumanEval, MBPP and CoopHumanEval: helpers and a main programmer write one function."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from ...core import TextParallelEnv
from ...sandbox import Limits
from ..extraction import code_in
from ..grading import Grade, graded_by_calls, graded_by_source, values_of
from ..rows import Sources
from ..syntax import function_named, parsed, rename_inside, source
from ..two_programmers import Judgement, TwoProgrammers, refuse_team
from . import prompts, published, rules
from .problems import Problem, drawn_arguments, problem_of, shown_assertions

Tests = Literal["given", "generated"]


SAMPLES = Path(__file__).parent / "samples"


class FunctionPair(TwoProgrammers):
    """`helper_0` writes `aux`, `main_0` the function that the task asks for and that should call it.

    None sees another's code of the turn. All programs are joined and tested in the sandbox; the reward is that of
    `rules`, 0 to 4 in an episode. In a larger team each helper has a function of its own, `aux_1` to `aux_3`. The
    data's columns are those of `problems.problem_of`, with the id in "task_id".

    Args:
        num_agents: programmers, 2 to 4: one main programmer, all others helpers.
        style: how the task is shown, "stub" (the head of the function with its docstring) or "description" (in
            words); None for the benchmark's own.
        num_revealed: how many assertions "level_feedback" and the expert may see; None for all.
        tests: "given" (the data's) or "generated": drawn in each episode from the column "inputs", with the values
            that the reference returns.
        num_generated: tests drawn in an episode.
        num_public: how many of the tests are shown in the prompt; the reward counts the others, of which one at least
            is kept back.
        needs_both: whether the helper counts in a solution only if both are needed; for two programmers.
            A solution is run again with the helper's function replaced by its own first value, by its first argument
            and by an error, and once with a main that only calls the helper's function; each of these must fail a
            test. The published task has no such rule.
        stop_at: as of `TwoProgrammers`; by default that of a pair that solves the task together.
        **kwargs: of `TwoProgrammers` and `TextParallelEnv`. The places of `prompts` are {task} (in `style`), {prompt}
            (as the data states it), {description}, {entry_point}, {head} and {public_tests}.

    Raises:
        ValueError: if a setting is none of the above, or the data lacks what it needs.
    """

    own_style: ClassVar[prompts.Style] = "stub"
    max_score = rules.MAX_SCORE
    places: ClassVar[Mapping[str, bool]] = {
        "task": True,
        "prompt": True,
        "description": True,
        "entry_point": False,
        "head": False,
        "public_tests": False,
    }
    text_fields = ("prompt",)

    def __init__(
        self,
        *,
        num_agents: int = 2,
        style: prompts.Style | None = None,
        num_revealed: int | None = 1,
        tests: Tests = "given",
        num_generated: int = 16,
        num_public: int = 0,
        needs_both: bool = False,
        stop_at: float | None = 3.8,
        **kwargs: Any,
    ):
        refuse_team(num_agents, kwargs.get("variant", "own"))
        self.programmers = prompts.agents(num_agents)
        self._needs_both = needs_both
        self.depends_on = self._is_generated = tests == "generated"
        super().__init__(stop_at=stop_at, **kwargs)
        style = style or self.own_style
        if style not in get_args(prompts.Style):
            raise ValueError(f"style must be one of {get_args(prompts.Style)} or None, got {style!r}")
        if tests not in get_args(Tests):
            raise ValueError(f"tests must be one of {get_args(Tests)}, got {tests!r}")
        if num_public < 0 or num_generated <= num_public * (tests == "generated"):
            raise ValueError(f"num_public must be 0 to num_generated - 1 = {num_generated - 1}, got {num_public}")
        if self._is_published and (num_public or tests == "generated"):
            raise ValueError("variant='published' has the data's tests, all hidden; leave out tests and num_public")
        if needs_both and (self._is_published or num_agents != 2):
            raise ValueError("needs_both=True is for two programmers of our variant; leave out variant and num_agents")
        if num_revealed is not None and num_revealed < 0:
            raise ValueError(f"num_revealed must be at least 0, or None for all, got {num_revealed}")
        self._style: prompts.Style = style
        self._num_revealed = num_revealed
        self._num_generated = num_generated
        self._num_public = num_public
        self._problem: Problem | None = None
        self._calls: tuple[tuple[tuple[Any, ...], Any], ...] = ()

    @property
    def problem(self) -> Problem:
        """What the team is to write."""
        if self._problem is None:
            raise RuntimeError("no episode is running; call reset() first")
        return self._problem

    def sources(self, row: Mapping[str, Any]) -> Sources:
        problem = problem_of(row)
        if self._is_generated and (problem.inputs is None or problem.reference is None):
            raise ValueError(f"tests='generated' needs a column 'inputs' and a solution, task {problem.id!r} lacks one")
        if not self._is_generated and not problem.tests:
            raise ValueError(f"task {problem.id!r} has no tests; give it some, or use tests='generated'")
        return Sources(
            "\n".join([problem.support, problem.tests]), "\n".join([problem.preamble, *(problem.reference or ())])
        )

    def open(self, row: Mapping[str, Any]) -> Mapping[str, str]:
        self.task = self._problem = problem_of(row, len(self.programmers) - 1, needs_both=self._needs_both)
        self._calls = self._generated_calls() if self._is_generated else ()
        shown = [text for _, text in self._public_tests()]
        return {agent: prompts.prompt(self._problem, agent, self._style, shown) for agent in self.programmers}

    def fields(self, agent: str) -> Mapping[str, str]:
        problem = self.problem
        return {
            "task": prompts.task(problem, self._style),
            "prompt": problem.prompt,
            "description": problem.description,
            "entry_point": problem.entry_point,
            "head": problem.head,
            "public_tests": "\n".join(text for _, text in self._public_tests()),
        }

    def judge(self, replies: Mapping[str, str]) -> Judgement:
        problem = self.problem
        programs = self._programs(replies)
        grade = self._grade(programs) if programs.is_runnable else None
        pass_rate, is_solved = (grade.pass_rate, grade.is_perfect) if grade else (0.0, False)
        if self._needs_both and grade and is_solved:
            programs = self._with_needs(programs, grade)
        own = rules.terms(programs, pass_rate, is_solved=is_solved)
        return Judgement(
            terms=published.terms(programs, pass_rate) if self._is_published else own,
            metrics={
                "pass_rate": pass_rate,
                "solved": float(is_solved),
                "ran_to_end": float(grade is not None and grade.status == "ok"),
            },
            verdict=prompts.verdict(self.feedback_mode, problem, programs, grade, self._num_revealed),
            codes=dict(zip(self.programmers, programs.codes, strict=True)),
        )

    def request(self, agent: str) -> str:
        return prompts.request(self.problem, agent)

    def task_text(self) -> str:
        return prompts.task(self.problem, self._style)

    def reference_reply(self, agent: str) -> str:
        reference = self.problem.reference
        if reference is None:
            raise ValueError(f"the data has no solution of task {self.problem.id!r}, so there is no reference reply")
        return reference[self.programmers.index(agent)]

    def absence(self, agent: str) -> str:
        """A helper that is left out returns nothing, so that main's calls for show lose nothing by it."""
        return "" if agent == prompts.MAIN else idle_helper(prompts.written_by(self.problem, agent))

    def exploits(self) -> Mapping[str, Callable[[str], str]]:
        """Teams in which one programmer does all the work, or none."""

        def player(team: Callable[[Problem], Sequence[str]]) -> Callable[[str], str]:
            return lambda agent: team(self.problem)[self.programmers.index(agent)]

        return {name: player(team) for name, team in EXPLOITS.items()}

    @property
    def allowed_exploits(self) -> Mapping[str, str]:
        """Teams that the published task pays, without `needs_both`; and one that no test of a solution tells apart."""
        secret = {"secret helpers": "running a solution does not show that main undoes a helper's work"}
        if self._needs_both:
            return secret
        reason = "as in the published task, one programmer may do all the work; `needs_both=True` does not pay it"
        return dict.fromkeys(("helpers for show", "lone helper"), reason) | secret

    def _generated_calls(self) -> tuple[tuple[tuple[Any, ...], Any], ...]:
        """(arguments, expected value) of this episode's tests."""
        problem = self.problem
        assert problem.inputs is not None and problem.reference is not None  # `sources` has seen to it
        calls = drawn_arguments(problem.inputs, self.rng, self._num_generated)
        program = "\n\n".join((problem.preamble, *problem.reference))
        values = values_of(self.sandbox, program, problem.entry_point, calls, self.limits)
        return tuple(zip(calls, values, strict=True))

    def _public_tests(self) -> list[tuple[int, str]]:
        """Number (a line of the given tests, or a place among the generated ones) and text of the tests to show."""
        name = self.problem.entry_point
        if self._is_generated:
            found = [
                (number, f"assert {name}({', '.join(map(repr, arguments))}) == {value!r}")
                for number, (arguments, value) in enumerate(self._calls)
            ]
        else:
            found = shown_assertions(self.problem.tests, name)
        return found[: min(self._num_public, max(0, len(found) - 1))]

    def _programs(self, replies: Mapping[str, str]) -> rules.Programs:
        found = [replies[agent] for agent in self.programmers]
        if self._is_published:
            return published.programs_of(self.problem, found)
        *helpers, main = map(code_in, found)
        return rules.programs_of(self.problem, helpers, main)

    def _with_needs(self, programs: rules.Programs, solved: Grade) -> rules.Programs:
        """The programs of a solution, with the helpers marked that are not needed or that solve the task alone."""
        # Loops of a sound main may not end with another function in place of the helper's, so its time is short.
        limits = replace(self.limits, cpu_s=min(self.limits.cpu_s, 0.5 + 2 * solved.cpu_s), max_deaths=1)

        def is_solved(**code: str) -> bool:
            return self._grade(programs, limits, **code).is_perfect

        def is_needed(name: str) -> bool:
            return not is_solved(after_main=rules.main_stand_in(self.problem.entry_point, name)) and not any(
                is_solved(after_helpers=code) for code in rules.helper_stand_ins(name)
            )

        helpers = [
            replace(helper, is_needed=helper.is_defined and helper.is_called and is_needed(name))
            for name, helper in zip(self.problem.helpers, programs.helpers, strict=True)
        ]
        return replace(programs, helpers=tuple(helpers))

    def _grade(self, programs: rules.Programs, limits: Limits | None = None, **code: str) -> Grade:
        """The programs under the tests; `code` as of `rules.Programs.program`."""
        limits = limits or self.limits
        problem = self.problem
        if self._is_published:
            program = programs.program(published.imports_of(problem.prompt))
            tests = published.counted_tests(problem.tests, problem.entry_point)
            return self._graded(program, tests, limits)
        program = programs.program(problem.preamble, **code)
        public = {number for number, _ in self._public_tests()}
        if self._is_generated:
            calls = self._calls[len(public) :]
            return graded_by_calls(self.sandbox, program, problem.entry_point, calls, limits, seed=self.test_seed)
        return self._graded(program, problem.tests, limits).of(lambda result: result.line not in public)

    def _graded(self, program: str, tests: str, limits: Limits) -> Grade:
        problem = self.problem
        return graded_by_source(
            self.sandbox,
            program,
            tests,
            limits,
            seed=self.test_seed,
            candidate=problem.entry_point,
            functions=problem.functions,
            classes=problem.classes,
            support=problem.support,
        )


class HumanEval(FunctionPair):
    """HumanEval for a main programmer and one to three helpers; arguments as of `FunctionPair`.

    The 164 problems are "openai/openai_humaneval" on the hub, where CoMLRL trains on ":test[33:163]" and evaluates on
    ":test[:32]". The built-in data are 15 other problems of the same form.
    """

    sample = SAMPLES / "human_eval_{split}.jsonl"

    metadata: ClassVar[dict[str, Any]] = {**TextParallelEnv.metadata, "name": "human_eval_v1"}


class MBPP(FunctionPair):
    """MBPP for a main programmer and one to three helpers: the task is told in words; arguments as of `FunctionPair`.

    Reads the columns of "google-research-datasets/mbpp" ("sanitized", or "full" with columns={"prompt": "text"}). The
    built-in data are 15 problems of its own.
    """

    metadata: ClassVar[dict[str, Any]] = {**TextParallelEnv.metadata, "name": "mbpp_v1"}
    own_style = "description"
    sample = SAMPLES / "mbpp_{split}.jsonl"


class CoopHumanEval(FunctionPair):
    """Problems whose solution falls into two natural parts; arguments as of `FunctionPair`.

    The built-in data are 15 problems of its own.
    """

    sample = SAMPLES / "coop_human_eval_{split}.jsonl"

    metadata: ClassVar[dict[str, Any]] = {**TextParallelEnv.metadata, "name": "coop_human_eval_v1"}


_SHOW = "helped = {name}(0)\nhelped"
_SECRET = "if [{name}(1), {name}(2)] != [2, 3]:\n    return None"


def idle_helper(name: str) -> str:
    """A helper's function that takes anything and returns nothing."""
    return f"def {name}(*arguments, **named):\n    return None"


def constant_answer(problem: Problem) -> Sequence[str]:
    """Helpers that return nothing, and a main program that answers False, whatever it is asked."""
    calls = ", ".join(f"{name}(0)" for name in problem.helpers)
    main = (
        f"def {problem.entry_point}(*arguments, **named):\n    helped = [{calls}]\n    return False if helped else None"
    )
    return *map(idle_helper, problem.helpers), main


def helpers_for_show(problem: Problem) -> Sequence[str]:
    """Helpers that return nothing, and a main program that solves the task and calls them."""
    return *map(idle_helper, problem.helpers), _lone_main(problem, _SHOW)


def secret_helpers(problem: Problem) -> Sequence[str]:
    """Helpers that add 1, and a main program that solves the task if they do."""
    helpers = (f"def {name}(value):\n    return value + 1" for name in problem.helpers)
    return *helpers, _lone_main(problem, _SECRET)


def lone_helper(problem: Problem) -> Sequence[str]:
    """A helper that solves the task, and a main program that hands its value on."""
    first, *others = problem.helpers
    solved = _solution(problem)
    rename_inside(solved, problem.entry_point, "solved")
    helper = f"{source(solved)}\n\ndef {first}(*arguments, **named):\n    return solved(*arguments, **named)"
    calls = "".join(f"    {name}(0)\n" for name in others)
    value = f"    value = {first}(*arguments, **named)\n    if value is None:\n        return None\n    return value"
    main = f"def {problem.entry_point}(*arguments, **named):\n{calls}{value}"
    return helper, *map(idle_helper, others), main


EXPLOITS: Mapping[str, Callable[[Problem], Sequence[str]]] = {
    "constant answer": constant_answer,
    "helpers for show": helpers_for_show,
    "lone helper": lone_helper,
    "secret helpers": secret_helpers,
}
"""The helpers' programs and then the main programmer's, by the name of the team."""


def _solution(problem: Problem) -> list[ast.stmt]:
    """The reference, with the helpers' functions under names of its own."""
    statements = parsed("\n\n".join(problem.reference or ())) or []
    for name in problem.helpers:
        rename_inside(statements, name, f"own_{name}")
    return statements


def _lone_main(problem: Problem, call: str) -> str:
    """A main program that does all the work of the reference, after code that calls each helper."""
    statements = _solution(problem)
    main = function_named(statements, problem.entry_point)
    if main is not None:
        main.body[:0] = parsed("\n".join(call.format(name=name) for name in problem.helpers)) or []
    return source(statements) or ""
