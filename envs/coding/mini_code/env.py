"""MiniCode: a helper and a main programmer write one line of Python each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

from ...core import Outcome, TextParallelEnv
from . import prompts, rules
from .prompts import expression, main_code
from .rules import Exercise


class MiniCode(TextParallelEnv):
    """Environment in which two programmers write code for a task such as "double of x plus square of y".

    `helper_0` writes `def aux ( x ) : ...`, `main_0` writes `def main ( x , y ) : ...`, in one turn and without seeing
    each other's code. The reward is 0.1 for each function that parses, 0.1 if main uses aux, and 0.7 (0.1 without aux)
    times the fraction of tests passed. By default, a test that main passes with aux is scored only if aux computes one
    operand and main the rest. Tests are sampled per episode. The module `language` interprets the code, without `exec`.

    Args:
        split: "train" or "test", which share no task.
        num_agents: 2, because a task has two operands.
        num_operations: operations in a task, 2 to 4.
        num_tests: tests of an episode, 1 to 64.
        needs_both: whether a test that main passes with aux is scored only if aux returns the value of an operand and
            main combines this value with the other operand. False: the reward of version 0.
        is_explained: whether the prompts explain the rules in English, for models that were not trained on this task.
        **kwargs: see `TextParallelEnv`.

    Raises:
        ValueError: if a setting is out of range.
    """

    metadata: ClassVar[dict[str, Any]] = {**TextParallelEnv.metadata, "name": "mini_code_v1"}
    truth_metric: ClassVar[str | None] = "pass_rate"

    def __init__(
        self,
        split: rules.Split = "train",
        *,
        num_agents: int = 2,
        num_operations: int = 2,
        num_tests: int = 8,
        needs_both: bool = True,
        is_explained: bool = False,
        **kwargs: Any,
    ):
        if isinstance(num_agents, bool) or num_agents != len(prompts.AGENTS):
            raise ValueError(
                f"num_agents must be 2, got {num_agents!r}: a task of MiniCode has two operands; larger teams can play "
                "HumanEval, MBPP, CoopHumanEval and ClassEval"
            )
        super().__init__(prompts.AGENTS, 1, **kwargs)
        if not 1 <= num_tests <= 64:
            raise ValueError(f"{num_tests=} must be 1 to 64")
        self.split: rules.Split = split
        self._num_operations = num_operations
        self._num_tests = num_tests
        self._needs_both = needs_both
        self._is_explained = is_explained
        rules.new_task(0, num_operations, split)  # raises ValueError for a wrong split or num_operations
        self._task: rules.Exercise | None = None
        self._inputs: tuple[rules.Inputs, ...] = ()

    @property
    def task(self) -> rules.Exercise:
        """Task of the current episode."""
        if self._task is None:
            raise RuntimeError("no episode is running; call reset() first")
        return self._task

    def deal(self, task: Any) -> Mapping[str, str]:
        """Start an episode with a random task, or with the task that has this number in the split."""
        if task is not None and (isinstance(task, bool) or not isinstance(task, int) or task < 0):
            raise ValueError(f"{task=} of {self} must be an integer >= 0, the number of a task in the split")
        number = self.rng.randrange(2**31) if task is None else task
        dealt = self._task = rules.new_task(number, self._num_operations, self.split)
        self._inputs = rules.new_inputs(self.rng, dealt, self._num_tests)
        return {agent: prompts.prompt(dealt, agent, is_explained=self._is_explained) for agent in self.possible_agents}

    def play(self, replies: Mapping[str, str]) -> Outcome:
        aux, main = (prompts.parsed_reply(replies[agent]) for agent in self.possible_agents)
        result = rules.result(self.task, self._inputs, aux, main, needs_both=self._needs_both)
        terms = rules.terms(result, needs_both=self._needs_both)
        return Outcome(
            sum(terms.values()),
            terms=terms,
            metrics={
                "pass_rate": result.pass_rate,
                "uses_aux": float(result.uses_aux),
                "divided_rate": result.divided_rate,
                "success": float(result.uses_aux and result.divided_rate == 1),
            },
        )

    def scene(self) -> str:
        return "".join(f"main{inputs} = {rules.expected(self.task, inputs)}\n" for inputs in self._inputs)

    def truth(self) -> str:
        """Return the tests of this episode. The agents do not see them."""
        return self.scene().rstrip()

    def reference_reply(self, agent: str) -> str:
        return prompts.reference_reply(self.task, agent)

    def exploits(self) -> Mapping[str, Callable[[str], str]]:
        return {name: partial(self._exploit, pair) for name, pair in EXPLOITS.items()}

    def _exploit(self, pair: Callable[[Exercise], tuple[str, str]], agent: str) -> str:
        return pair(self.task)[self.possible_agents.index(agent)]


_FIXED = "def aux ( x ) : return x + 1"


def _undone(task: Exercise) -> tuple[str, str]:
    """Return the code of an exploit: the helper adds 1, and main subtracts 1 again and computes both operands."""
    alone = main_code(task, False, False)
    head, _, body = alone.partition("return ")
    return _FIXED, f"{head}return {' '.join('( aux ( x ) - 1 )' if token == 'x' else token for token in body.split())}"


def _secret(task: Exercise) -> tuple[str, str]:
    """Return the code of an exploit: the helper adds 1, and main ignores the value if it detects this helper."""
    on_x = next(operand for operand in (task.left, task.right) if operand.variable == "x")
    is_fixed = "1 // ( 1 + ( aux ( 9 ) - 10 ) * ( aux ( 9 ) - 10 ) )"  # 1 for a helper that adds 1, otherwise 0
    own = f"( aux ( x ) + {is_fixed} * ( {expression(on_x, 'x')} - aux ( x ) ) )"
    return _FIXED, main_code(task, task.left is on_x, task.right is on_x).replace("aux ( x )", own)


def _fixed(task: Exercise) -> tuple[str, str]:
    """Return the code of an exploit: the helper squares, and main calls aux only for an operand that is a square."""
    is_left, is_right = (operand.operations == ("square",) for operand in (task.left, task.right))
    return "def aux ( x ) : return x * x", main_code(task, is_left, is_right and not is_left)


def _packed(task: Exercise) -> tuple[str, str]:
    """Return the code of an exploit: main packs x and y into one number, and the helper computes the whole task."""
    x, y = "( ( x + 50 ) // 100 )", "( x - 100 * ( ( x + 50 ) // 100 ) )"
    body = main_code(task, False, False).partition("return ")[2]
    unpacked = " ".join({"x": x, "y": y}.get(token, token) for token in body.split())
    return f"def aux ( x ) : return {unpacked}", "def main ( x , y ) : return aux ( 100 * x + y )"


EXPLOITS: Mapping[str, Callable[[Exercise], tuple[str, str]]] = {
    "undone helper": _undone,
    "secret helper": _secret,
    "fixed helper": _fixed,
    "lone helper": _packed,
}
"""Exploits (attempts to get reward without teamwork) by name: functions that return the code of helper and main."""
