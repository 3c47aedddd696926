"""HumanEval, MBPP and CoopHumanEval: environments in which helpers and a main programmer write one function."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from ...core import TextParallelEnv
from ...sandbox import Case, Limits, TestOutcome
from ..extraction import code_in
from ..grading import Grade, graded_by_source
from ..rows import Sources
from ..sandboxed_env import Judgement, SandboxedCodingEnv, refuse_team
from ..syntax import function_named, parsed, rename_inside, source
from . import prompts, published, rules
from .problems import Problem, drawn_arguments, problem_of, shown_assertions

Tests = Literal["given", "generated"]
SAMPLES = Path(__file__).parent / "samples"


class FunctionPair(SandboxedCodingEnv):
    """Base class of environments in which a main programmer and one to three helpers write one Python function.

    `helper_0` writes the function `aux`, and `main_0` writes the function of the task, which should call `aux`. Several
    helpers write `aux_1` to `aux_3`. In a turn, agents do not see each other's code. The joined programs are tested in
    the sandbox. The return is 0 to 4 (see `rules`). The data needs "task_id" and the columns of `problems.problem_of`.

    Args:
        num_agents: number of programmers, 2 to 4. One is the main programmer, the others are helpers.
        style: form of the task in the prompt: "stub" (head of the function with its docstring) or "description" (in
            words). None: the benchmark's form.
        num_revealed: number of test assertions in the feedback "level_feedback" and "expert". None: all.
        tests: "given": the data's tests. "generated": in each episode, arguments are sampled as the column "inputs"
            describes, and the reference solution computes the expected values.
        num_generated: number of generated tests per episode.
        num_public: number of tests that the prompt shows. Only hidden tests are scored. At least one test is hidden.
        needs_both: whether a team that solves the task gets the helper's rewards only if both programs are needed. The
            tests then run 4 more times: with an `aux` that repeats its first return value, returns its first argument,
            or raises, and with a main function that only calls `aux`. Each of these runs must fail a test. Only for two
            programmers and variant="ours".
        stop_at: see `SandboxedCodingEnv`. The default is the score of a team that solves the task together.
        **kwargs: see `SandboxedCodingEnv` and `TextParallelEnv`. The placeholders in `prompts` are {task} (in
            `style`), {prompt} (the data's text), {description}, {entry_point}, {head} (`def` line),
            {parameters} and {public_tests}.

    Raises:
        ValueError: if a setting is out of range, or the data lacks a column.
    """

    own_style: ClassVar[prompts.Style] = "stub"
    published_prompts = Path(__file__).parent / "published"
    originals = prompts.ORIGINALS
    protocol_instructions = prompts.PROTOCOLS
    max_score = rules.MAX_SCORE
    places: ClassVar[Mapping[str, bool]] = {
        **dict.fromkeys(("task", "prompt", "description"), True),
        **dict.fromkeys(("entry_point", "head", "parameters", "public_tests"), False),
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
        refuse_team(num_agents, kwargs.get("variant"))
        self.programmers = prompts.agents(num_agents)
        self._needs_both = needs_both
        self.depends_on = self._is_generated = tests == "generated"
        super().__init__(stop_at=stop_at, **kwargs)
        style = style or self.own_style
        if style not in get_args(prompts.Style):
            raise ValueError(f"{style=} must be one of {get_args(prompts.Style)} or None")
        if tests not in get_args(Tests):
            raise ValueError(f"{tests=} must be one of {get_args(Tests)}")
        if num_public < 0 or num_generated <= num_public * (tests == "generated"):
            raise ValueError(f"{num_public=} must be 0 to num_generated - 1 = {num_generated - 1}")
        if self._is_published and (num_public or tests == "generated"):
            raise ValueError("variant='published' uses hidden tests from the data row; leave out tests and num_public")
        if needs_both and (self._is_published or num_agents != 2):
            raise ValueError("needs_both=True needs num_agents=2 and variant='ours'; leave out variant and num_agents")
        if num_revealed is not None and num_revealed < 0:
            raise ValueError(f"{num_revealed=} must be at least 0, or None to show all")
        self._style, self._num_revealed = style, num_revealed
        self._num_generated, self._num_public = num_generated, num_public
        self._problem: Problem | None = None
        self._calls: tuple[tuple[tuple[Any, ...], Any], ...] = ()

    @property
    def problem(self) -> Problem:
        """Programming problem of the current episode."""
        if self._problem is None:
            raise RuntimeError("no episode is running; call reset() first")
        return self._problem

    def sources(self, row: Mapping[str, Any]) -> Sources:
        problem = problem_of(row)
        if self._is_generated and (problem.inputs is None or problem.reference is None):
            raise ValueError(f"task {problem.id!r} needs a column 'inputs' and a solution for tests='generated'")
        if not self._is_generated and not problem.tests:
            raise ValueError(f"task {problem.id!r} has no tests; add tests to the data row, or use tests='generated'")
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
            "parameters": problem.head.partition("(")[2].removesuffix(")"),
            "public_tests": "\n".join(text for _, text in self._public_tests()),
        }

    def judge(self, replies: Mapping[str, str]) -> Judgement:
        problem = self.problem
        found = [replies[agent] for agent in self.programmers]
        if self._is_published:
            programs = published.programs_of(problem, found)
        else:
            *helpers, main = map(code_in, found)
            programs = rules.programs_of(problem, helpers, main)
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
            raise ValueError(f"the data has no solution of task {self.problem.id!r}; add a column 'code'")
        return reference[self.programmers.index(agent)]

    def absence(self, agent: str) -> str:
        """Return the reply that replaces an agent. A helper's function then returns None, so that its calls succeed."""
        return "" if agent == prompts.MAIN else idle_helper(prompts.written_by(self.problem, agent))

    def exploits(self) -> Mapping[str, Callable[[str], str]]:
        return {name: partial(self._exploit, team) for name, team in EXPLOITS.items()}

    def _exploit(self, team: Callable[[Problem], Sequence[str]], agent: str) -> str:
        return team(self.problem)[self.programmers.index(agent)]

    @property
    def allowed_exploits(self) -> Mapping[str, str]:
        secret = {"secret helpers": "running a solution does not show that main undoes a helper's work"}
        if self._needs_both:
            return secret
        reason = "as in the published task, one programmer may do all the work; `needs_both=True` prevents it"
        return dict.fromkeys(("helpers for show", "lone helper"), reason) | secret

    def _generated_calls(self) -> tuple[tuple[tuple[Any, ...], Any], ...]:
        """Sample the arguments of this episode's tests, and compute the expected values with the reference solution."""
        problem = self.problem
        assert problem.inputs is not None and problem.reference is not None  # checked by `sources`
        calls = drawn_arguments(problem.inputs, self.rng, self._num_generated)
        program = "\n\n".join((problem.preamble, *problem.reference))
        # In the sandbox, because the data may be untrusted.
        report = self.sandbox.call(program, problem.entry_point, calls, limits=self.limits)
        for arguments, outcome in zip(calls, report.outcomes, strict=True):
            if outcome.failure is not None:
                raise ValueError(
                    f"the reference solution {problem.entry_point}{arguments} fails: {outcome.failure}; repair the row"
                )
        return tuple(zip(calls, report.values, strict=True))

    def _public_tests(self) -> list[tuple[int, str]]:
        """Return (line in the data, or number of a generated test; text) for each test that the prompt shows."""
        name = self.problem.entry_point
        if self._is_generated:
            found = [(number, _assertion(name, *call)) for number, call in enumerate(self._calls)]
        else:
            found = shown_assertions(self.problem.tests, name)
        return found[: min(self._num_public, max(0, len(found) - 1))]

    def _with_needs(self, programs: rules.Programs, solved: Grade) -> rules.Programs:
        """Set `is_needed` of each helper: run the tests of the solved task again with replaced functions."""
        # The time limit is short, because a correct main function may loop forever with a replaced helper.
        limits = replace(self.limits, cpu_s=min(self.limits.cpu_s, 0.5 + 2 * solved.cpu_s), max_deaths=1)

        def is_solved(**code: str) -> bool:
            return self._grade(programs, limits, **code).is_perfect

        def is_needed(name: str) -> bool:
            main = f"def {self.problem.entry_point}(*arguments, **named):\n    return {name}(*arguments, **named)"
            return not is_solved(after_main=main) and not any(
                is_solved(after_helpers=code.format(name=name)) for code in rules.HELPER_REPLACEMENTS
            )

        helpers = [
            replace(helper, is_needed=helper.is_defined and helper.is_called and is_needed(name))
            for name, helper in zip(self.problem.helpers, programs.helpers, strict=True)
        ]
        return replace(programs, helpers=tuple(helpers))

    def _grade(self, programs: rules.Programs, limits: Limits | None = None, **code: str) -> Grade:
        limits = limits or self.limits
        problem = self.problem
        if self._is_published:
            program = programs.program(published.imports_of(problem.prompt))
            tests, public = published.counted_tests(problem.tests, problem.entry_point), set[int]()
        else:
            program = programs.program(problem.preamble, **code)
            tests, public = problem.tests, {number for number, _ in self._public_tests()}
        if self._is_generated:
            return self._grade_calls(program, len(public), limits)
        grade = graded_by_source(
            self.sandbox,
            program,
            tests,
            problem.entry_point,
            limits,
            seed=self.test_seed,
            functions=problem.functions,
            classes=problem.classes,
            support=problem.support,
        )
        return replace(grade, results=tuple(result for result in grade.results if result.line not in public))

    def _grade_calls(self, program: str, num_public: int, limits: Limits) -> Grade:
        name, calls = self.problem.entry_point, self._calls[num_public:]
        cases = [Case(arguments, expected, tolerance=1e-9) for arguments, expected in calls]
        verdict = self.sandbox.check(program, name, cases, limits=limits, seed=self.test_seed)
        report = verdict.report
        results = tuple(
            TestOutcome(
                _assertion(name, *call),
                passed,
                "" if passed else str(outcome.failure or f"it returned {outcome.value!r:.200}"),
            )
            for call, passed, outcome in zip(calls, verdict.passed, report.outcomes, strict=True)
        )
        return Grade(results, report.status, str(report.failure or ""), report.cpu_s)


def _assertion(name: str, arguments: tuple[Any, ...], value: Any) -> str:
    return f"assert {name}({', '.join(map(repr, arguments))}) == {value!r}"


class HumanEval(FunctionPair):
    """HumanEval for one main programmer and one to three helpers. `FunctionPair` explains the arguments.

    The 164 problems are "openai/openai_humaneval" on the Hugging Face hub. CoMLRL trains on ":test[33:163]" and
    evaluates on ":test[:32]". The built-in data has 15 other problems of the same form.
    """

    metadata: ClassVar[dict[str, Any]] = {**TextParallelEnv.metadata, "name": "human_eval_v1"}
    sample = SAMPLES / "human_eval_{split}.jsonl"


class MBPP(FunctionPair):
    """MBPP for one main programmer and one to three helpers. The prompt describes the task in words.

    Reads the columns of "google-research-datasets/mbpp" ("sanitized", or "full" with columns={"prompt": "text"}). The
    built-in data has 15 other problems. `FunctionPair` explains the arguments.
    """

    metadata: ClassVar[dict[str, Any]] = {**TextParallelEnv.metadata, "name": "mbpp_v1"}
    own_style = "description"
    sample = SAMPLES / "mbpp_{split}.jsonl"


class CoopHumanEval(FunctionPair):
    """CoopHumanEval: functions whose solution has two natural parts. `FunctionPair` explains the arguments."""

    metadata: ClassVar[dict[str, Any]] = {**TextParallelEnv.metadata, "name": "coop_human_eval_v1"}
    sample = SAMPLES / "coop_human_eval_{split}.jsonl"


def idle_helper(name: str) -> str:
    return f"def {name}(*arguments, **named):\n    return None"


def constant_answer(problem: Problem) -> Sequence[str]:
    """Return the programs of an exploit: the helpers return None, and the main function always returns False."""
    calls = ", ".join(f"{name}(0)" for name in problem.helpers)
    main = (
        f"def {problem.entry_point}(*arguments, **named):\n    helped = [{calls}]\n    return False if helped else None"
    )
    return *map(idle_helper, problem.helpers), main


def helpers_for_show(problem: Problem) -> Sequence[str]:
    """Return the programs of an exploit: the helpers return None, and main calls them and solves the task alone."""
    return *map(idle_helper, problem.helpers), _lone_main(problem, "helped = {name}(0)\nhelped")


def secret_helpers(problem: Problem) -> Sequence[str]:
    """Return the programs of an exploit: the helpers add 1, and main checks this and solves the task alone."""
    helpers = (f"def {name}(value):\n    return value + 1" for name in problem.helpers)
    return *helpers, _lone_main(problem, "if [{name}(1), {name}(2)] != [2, 3]:\n    return None")


def lone_helper(problem: Problem) -> Sequence[str]:
    """Return the programs of an exploit: a helper solves the task, and main returns the value of this helper."""
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
"""Exploits (attempts to get reward without teamwork) by name: functions that return the programs, helpers first."""


def _solution(problem: Problem) -> list[ast.stmt]:
    statements = parsed("\n\n".join(problem.reference or ())) or []
    for name in problem.helpers:
        rename_inside(statements, name, f"own_{name}")
    return statements


def _lone_main(problem: Problem, call: str) -> str:
    """Return a main program that calls each helper and then solves the task alone."""
    statements = _solution(problem)
    main = function_named(statements, problem.entry_point)
    if main is not None:
        main.body[:0] = parsed("\n".join(call.format(name=name) for name in problem.helpers)) or []
    return source(statements) or ""
