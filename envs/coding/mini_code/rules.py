"""Rules of MiniCode: tasks, tests and the score of a pair of functions, free of text and of the agent API."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from .language import EvaluationError, Function, calls, value

Split = Literal["train", "test"]
VARIABLES = ("x", "y")
OPERATIONS: dict[str, Callable[[int], int]] = {
    "double": lambda number: 2 * number,
    "triple": lambda number: 3 * number,
    "square": lambda number: number * number,
    "negate": lambda number: -number,
    "increment": lambda number: number + 1,
    "decrement": lambda number: number - 1,
    "half": lambda number: number // 2,
    "odd": lambda number: number % 2,
}
COMBINATIONS: dict[str, Callable[[int, int], int]] = {
    "plus": lambda left, right: left + right,
    "minus": lambda left, right: left - right,
    "times": lambda left, right: left * right,
}
MAX_OPERATIONS = 4
MAX_INPUT = 9
WEIGHTS = {"helper_parses": 0.1, "main_parses": 0.1, "uses_aux": 0.1, "tests": 0.7}
TESTS_WEIGHT_ALONE = 0.2  # in place of 0.7 where main does without aux

_RANGE = 2 * MAX_INPUT + 1
_TEST_SHARE = 5  # one task in five is held out
_PROBES = (-3, 2, 5)  # on these no operation is constant, or leaves every number as it is


@dataclass(frozen=True)
class Operand:
    """Operations applied to a variable, the outermost first: "double of square of x"."""

    operations: tuple[str, ...]
    variable: str


@dataclass(frozen=True)
class Task:
    """What `main(x, y)` is to compute: left combined with right."""

    left: Operand
    combination: str
    right: Operand


Inputs = tuple[int, int]


def is_held_out(task: Task) -> bool:
    """Whether a task belongs to the test split, whichever of its operands comes first.

    A stable hash decides, so that the two splits share no task, on any machine and for any seeds.
    """
    operands = sorted((operand.operations, operand.variable) for operand in (task.left, task.right))
    return zlib.crc32(repr((operands, task.combination)).encode()) % _TEST_SHARE == 0


def new_task(seed: int, num_operations: int = 2, split: Split = "train") -> Task:
    """The task with this number in its split.

    Args:
        seed: any integer; the same one gives the same task.
        num_operations: 2 to 4, of both operands together.
        split: "train" or "test"; the two are disjoint.

    Raises:
        ValueError: for another split or number.
    """
    if split not in ("train", "test"):
        raise ValueError(f"split must be 'train' or 'test', got {split!r}")
    if not 2 <= num_operations <= MAX_OPERATIONS:
        raise ValueError(f"num_operations must be 2 to {MAX_OPERATIONS}, got {num_operations}")
    rng = random.Random(f"{split} {num_operations} {seed}")
    while True:
        num_left = rng.randint(1, num_operations - 1)
        names = [rng.choice(tuple(OPERATIONS)) for _ in range(num_operations)]
        first, second = rng.sample(VARIABLES, 2)
        task = Task(
            Operand(tuple(names[:num_left]), first),
            rng.choice(tuple(COMBINATIONS)),
            Operand(tuple(names[num_left:]), second),
        )
        is_worth_a_function = all(_computes(_curried(operand)) for operand in (task.left, task.right))
        if is_worth_a_function and is_held_out(task) == (split == "test"):
            return task


def operand_value(operand: Operand, number: int) -> int:
    """The operand's value where its variable has this one."""
    for name in reversed(operand.operations):
        number = OPERATIONS[name](number)
    return number


def expected(task: Task, inputs: Inputs) -> int:
    """What `main` must return."""
    return COMBINATIONS[task.combination](*_operand_values(task, inputs))


def _operand_values(task: Task, inputs: Inputs) -> tuple[int, int]:
    scope = dict(zip(VARIABLES, inputs, strict=True))
    left, right = (operand_value(operand, scope[operand.variable]) for operand in (task.left, task.right))
    return left, right


def new_inputs(rng: random.Random, task: Task, num_tests: int) -> tuple[Inputs, ...]:
    """Different arguments (x, y) of `main`, each number -9 to 9.

    They are drawn anew where an operand is 0 in all of them, as the other one would then not matter in a product.
    """
    while True:
        inputs = tuple(
            (number // _RANGE - MAX_INPUT, number % _RANGE - MAX_INPUT)
            for number in rng.sample(range(_RANGE**2), num_tests)
        )
        values = ([_operand_values(task, pair)[side] for pair in inputs] for side in (0, 1))
        if all(any(numbers) for numbers in values):
            return inputs


@dataclass(frozen=True)
class Result:
    """What a pair of functions did."""

    helper_parses: bool
    main_parses: bool
    uses_aux: bool
    pass_rate: float


def result(task: Task, inputs: Sequence[Inputs], aux: Function | None, main: Function | None) -> Result:
    """The pair on the tests; None stands for a function that did not parse.

    A function of another name than `aux` or `main` counts as not parsed. `main` uses `aux` if it calls it, if its own
    values follow those of `aux`, and if `aux` computes something: neither a constant nor its argument.
    """
    helper, programmer = _named(aux, "aux"), _named(main, "main")
    if programmer is None:
        return Result(helper is not None, False, False, 0.0)
    values = [_main_value(programmer, helper, pair) for pair in inputs]
    num_passed = sum(got == expected(task, pair) for got, pair in zip(values, inputs, strict=True))
    uses_aux = (
        helper is not None
        and calls(programmer, "aux")
        and _helps(helper)
        and any(_main_value(programmer, helper, pair, shift=1) != got for got, pair in zip(values, inputs, strict=True))
    )
    return Result(helper is not None, True, uses_aux, num_passed / len(inputs))


def terms(result: Result) -> dict[str, float]:
    """The parts of the reward; their sum is the team's reward, 0 to 1."""
    weight = WEIGHTS["tests"] if result.uses_aux else TESTS_WEIGHT_ALONE
    return {
        "helper_parses": WEIGHTS["helper_parses"] * result.helper_parses,
        "main_parses": WEIGHTS["main_parses"] * result.main_parses,
        "uses_aux": WEIGHTS["uses_aux"] * result.uses_aux,
        "tests": weight * result.pass_rate,
    }


def _named(function: Function | None, name: str) -> Function | None:
    return function if function is not None and function.name == name else None


def _main_value(main: Function, aux: Function | None, inputs: Inputs, shift: int = 0) -> int | None:
    """What `main` returns, with `shift` added to every value of `aux`; None if it has no value."""
    known = {} if aux is None else {"aux": lambda arguments: value(aux, arguments, {}) + shift}
    try:
        return value(main, inputs, known)
    except EvaluationError:
        return None


def _helps(aux: Function) -> bool:
    """Whether the helper's function does any work."""
    if len(aux.parameters) != 1:
        return len(aux.parameters) > 1
    try:
        return _computes(lambda number: value(aux, (number,), {}))
    except EvaluationError:
        return False


def _computes(function: Callable[[int], int]) -> bool:
    """Whether a function's value depends on its argument, and is not just that."""
    values = tuple(function(probe) for probe in _PROBES)
    return len(set(values)) > 1 and values != _PROBES


def _curried(operand: Operand) -> Callable[[int], int]:
    return lambda number: operand_value(operand, number)
