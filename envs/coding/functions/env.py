"""HumanEval, MBPP and CoopHumanEval: a helper and a main programmer write one function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from ...core import Message, Outcome, TextParallelEnv, Transcript
from ...data import load_tasks
from ..extraction import code_in
from ..grading import Grade, graded_by_calls, graded_by_source, values_of
from ..sandbox import Limits, shared_sandbox
from ..sandbox.settings import AskedIsolation
from . import prompts, rules
from .inputs import drawn_arguments
from .problems import Problem, problem_of, shown_assertions

SAMPLE = Path(__file__).parent / "samples" / "problems_{split}.jsonl"

Expert = Callable[[Transcript], str]
Tests = Literal["given", "generated"]


class FunctionPair(TextParallelEnv):
    """`helper_0` writes `aux`, `main_0` the function that the task asks for and that should call it.

    Neither sees the other's code of the turn. Both programs are joined and tested in the sandbox; the reward is that
    of `rules`, 0 to 4. In later turns both write their functions anew, after feedback on the last ones.

    Args:
        data: "builtin", a file, a directory, a hub name, or one of these per split; see `collm.envs.data.load_tasks`.
            The columns are those of `problems.problem_of`, with the id in "task_id".
        split: "train", "test", or another that the data has.
        columns: the data's names of columns that are called otherwise, such as {"prompt": "text"}.
        test_fraction: share of the rows that make up the test split, for data without splits.
        style: how the task is shown, "stub" (the head of the function with its docstring) or "description" (in
            words); None for the benchmark's own.
        max_turns: at least 1.
        feedback: what is told between turns: "plain" (nothing), "passed" (whether all tests passed), "level_passed"
            (which stages of the reward were reached), "level_feedback" (also why not) or "expert".
        num_revealed: how many assertions "level_feedback" and the expert may see; None for all.
        expert: for feedback "expert": given a transcript of one question, its reply is what both agents are told. Any
            policy can be it: `lambda text: policy.act([Request("expert_0", text, (0,))])[0].action`.
        original_prompt: whether the first prompt stays in the history after a turn.
        previous_response: whether an agent's own replies do.
        partner_code: whether an agent is shown the other's code after a turn.
        tests: "given" (the data's) or "generated": drawn in each episode from the column "inputs", with the values
            that the reference returns.
        num_generated: tests drawn in an episode.
        num_public: how many of the tests are shown in the prompt; the reward counts the others, of which there must
            be one at least.
        stop_at: the reward at which an episode ends before its last turn; None for never.
        test_seconds: processor seconds after which a program is stopped, at least 0.1.
        max_timeouts: how often a program may be stopped, and tested on from the next assertion, at least 1.
        packages: installed packages that programs may import besides the standard library, such as numpy.
        isolation: of the sandbox: "auto", a tier, or "none" to run models' code unconfined.
        **kwargs: of `TextParallelEnv`.

    Raises:
        ValueError: if a setting is none of the above, or the data lacks what it needs.
    """

    own_style: ClassVar[prompts.Style] = "stub"

    def __init__(
        self,
        *,
        data: str | Mapping[str, str] = "builtin",
        split: str = "train",
        columns: Mapping[str, str] | None = None,
        test_fraction: float | None = None,
        style: prompts.Style | None = None,
        max_turns: int = 2,
        feedback: prompts.Feedback = "level_feedback",
        num_revealed: int | None = 1,
        expert: Expert | None = None,
        original_prompt: bool = True,
        previous_response: bool = True,
        partner_code: bool = False,
        tests: Tests = "given",
        num_generated: int = 16,
        num_public: int = 0,
        stop_at: float | None = 3.8,
        test_seconds: float = 10.0,
        max_timeouts: int = 3,
        packages: Sequence[str] = (),
        isolation: AskedIsolation = "auto",
        **kwargs: Any,
    ):
        super().__init__(prompts.AGENTS, max_turns, **kwargs)
        style = style or self.own_style
        for name, given, kind in (("style", style, prompts.Style), ("tests", tests, Tests)):
            if given not in get_args(kind):
                raise ValueError(f"{name} must be one of {get_args(kind)}, got {given!r}")
        if feedback not in get_args(prompts.Feedback):
            raise ValueError(f"feedback must be one of {get_args(prompts.Feedback)}, got {feedback!r}")
        if (feedback == "expert") != (expert is not None):
            raise ValueError("feedback='expert' and expert=<a function from text to text> go together; give both")
        if num_public < 0 or num_generated <= num_public * (tests == "generated"):
            raise ValueError(f"num_public must be 0 to num_generated - 1 = {num_generated - 1}, got {num_public}")
        if num_revealed is not None and num_revealed < 0:
            raise ValueError(f"num_revealed must be at least 0, or None for all, got {num_revealed}")
        if test_seconds < 0.1 or max_timeouts < 1:
            raise ValueError(
                f"test_seconds must be at least 0.1 and max_timeouts at least 1, got {test_seconds} and {max_timeouts}"
            )
        self.tasks = load_tasks(
            data,
            split,
            text_fields=["prompt"],
            builtin=SAMPLE,
            columns={"id": "task_id", **(columns or {})},
            test_fraction=test_fraction,
        )
        if tests == "generated" and (lacking := [row["id"] for row in self.tasks if not row.get("inputs")]):
            raise ValueError(f"tests='generated' needs a column 'inputs', which task {lacking[0]!r} lacks; use 'given'")
        self._style: prompts.Style = style
        self._feedback: prompts.Feedback = feedback
        self._num_revealed = num_revealed
        self._expert = expert
        self._keeps_prompt = original_prompt
        self._keeps_replies = previous_response
        self._shows_partner = partner_code
        self._is_generated = tests == "generated"
        self._num_generated = num_generated
        self._num_public = num_public
        self._stop_at = stop_at
        self._limits = Limits(cpu_s=test_seconds, wall_s=10 * test_seconds, max_deaths=max_timeouts)
        self._sandbox = shared_sandbox(packages=packages, isolation=isolation)
        self._problem: Problem | None = None
        self._calls: tuple[tuple[tuple[Any, ...], Any], ...] = ()
        self._prompts: dict[str, str] = {}

    @property
    def problem(self) -> Problem:
        """What the two are to write."""
        if self._problem is None:
            raise RuntimeError("no episode is running; call reset() first")
        return self._problem

    def deal(self, task: Any) -> Mapping[str, str]:
        """A problem: drawn, or the one at an index or with an id."""
        self._problem = problem_of(self.tasks.task(self.rng.randrange(len(self.tasks)) if task is None else task))
        self._calls = self._generated_calls() if self._is_generated else ()
        shown = [text for _, text in self._public_tests()]
        self._prompts = {agent: prompts.prompt(self._problem, agent, self._style, shown) for agent in prompts.AGENTS}
        return self._prompts

    def play(self, replies: Mapping[str, str]) -> Outcome:
        problem = self.problem
        pair = rules.pair_of(problem, *(code_in(replies[agent]) for agent in prompts.AGENTS))
        grade = self._grade(pair.program(problem.preamble)) if pair.is_runnable else None
        terms = rules.terms(pair, grade.pass_rate if grade else 0.0)
        reward = sum(terms.values())
        is_over = self._stop_at is not None and reward >= self._stop_at - 1e-9
        is_last = is_over or self.turn + 1 == self.max_turns
        return Outcome(
            reward,
            feedback={} if is_last else self._feedback_texts(pair, grade, replies),
            terms=terms,
            metrics={
                "pass_rate": grade.pass_rate if grade else 0.0,
                "solved": float(grade is not None and grade.is_perfect),
                "ran_to_end": float(grade is not None and grade.status == "ok"),
            },
            is_over=is_over,
            rewritten={}
            if is_last or (self._keeps_prompt and self._keeps_replies)
            else dict.fromkeys(prompts.AGENTS, ()),
        )

    def reference_reply(self, agent: str) -> str:
        """The agent's code of a pair that reaches the maximum, where the data has a solution.

        Raises:
            ValueError: if it has none.
        """
        reference = self.problem.reference
        if reference is None:
            raise ValueError(f"the data has no solution of task {self.problem.id!r}, so there is no reference reply")
        return reference[prompts.AGENTS.index(agent)]

    def _generated_calls(self) -> tuple[tuple[tuple[Any, ...], Any], ...]:
        """(arguments, expected value) of this episode's tests."""
        problem = self.problem
        if problem.inputs is None or problem.reference is None:
            raise ValueError(f"task {problem.id!r} needs 'inputs' and a reference to have tests generated; use 'given'")
        calls = drawn_arguments(problem.inputs, self.rng, self._num_generated)
        program = "\n\n".join((problem.preamble, *problem.reference))
        values = values_of(self._sandbox, program, problem.entry_point, calls, self._limits)
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

    def _grade(self, program: str) -> Grade:
        problem = self.problem
        public = {number for number, _ in self._public_tests()}
        if self._is_generated:
            return graded_by_calls(
                self._sandbox, program, problem.entry_point, self._calls[len(public) :], self._limits
            )
        grade = graded_by_source(
            self._sandbox, program, problem.tests, self._limits, candidate=problem.entry_point, support=problem.preamble
        )
        return grade.of(lambda result: result.line not in public)

    def _feedback_texts(self, pair: rules.Pair, grade: Grade | None, replies: Mapping[str, str]) -> dict[str, str]:
        problem = self.problem
        told = prompts.verdict(self._feedback, problem, pair, grade, self._num_revealed)
        if self._expert is not None:
            told = self._expert(
                Transcript([Message("user", prompts.question_to_expert(problem, self._style, pair, told))])
            )
        codes = dict(zip(prompts.AGENTS, (pair.aux, pair.main), strict=True))
        partners = dict(zip(prompts.AGENTS, reversed(prompts.AGENTS), strict=True))
        is_rewritten = not (self._keeps_prompt and self._keeps_replies)
        return {
            agent: prompts.feedback(
                problem,
                agent,
                told,
                opening=self._prompts[agent] if is_rewritten and self._keeps_prompt else "",
                own_code=codes[agent] if is_rewritten and self._keeps_replies else "",
                partner_code=codes[partners[agent]] if self._shows_partner else "",
            )
            for agent in replies
        }


class HumanEval(FunctionPair):
    """HumanEval for two programmers; arguments as of `FunctionPair`.

    The 164 problems are "openai/openai_humaneval" on the hub, where CoMLRL trains on ":test[33:163]" and evaluates on
    ":test[:32]". The built-in data are 45 other problems of the same form.
    """

    metadata: ClassVar[dict[str, Any]] = {**TextParallelEnv.metadata, "name": "human_eval_v0"}


class MBPP(FunctionPair):
    """MBPP for two programmers: the task is told in words; arguments as of `FunctionPair`.

    Reads the columns of "google-research-datasets/mbpp" ("sanitized", or "full" with columns={"prompt": "text"}).
    """

    metadata: ClassVar[dict[str, Any]] = {**TextParallelEnv.metadata, "name": "mbpp_v0"}
    own_style = "description"


class CoopHumanEval(FunctionPair):
    """Problems whose solution falls into two natural parts; arguments as of `FunctionPair`."""

    metadata: ClassVar[dict[str, Any]] = {**TextParallelEnv.metadata, "name": "coop_human_eval_v0"}
