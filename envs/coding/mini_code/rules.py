"""Rules of MiniCode: tasks, tests and the score of a pair of functions, free of text and of the agent API."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
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
TESTS_WEIGHT_ALONE = 0.1  # instead of 0.7 if main does not use aux
TESTS_WEIGHT_ALONE_V0 = 0.2  # if both programmers are not needed

_RANGE = 2 * MAX_INPUT + 1
_TEST_SHARE = 5  # one task in five is held out
_PROBES = (-3, 2, 5)  # on these no operation is constant, or leaves every number as it is
_STAND_INS: tuple[Callable[[int], int], ...] = (  # functions in place of `aux`, with values far from every operand's
    lambda number: 307 + (31 * number * number + 17 * number) % 101,
    lambda number: -509 - (43 * number * number + 29 * number) % 97,
)


@dataclass(frozen=True)
class Operand:
    """Operations applied to a variable, the outermost first: "double of square of x"."""

    operations: tuple[str, ...]
    variable: str


@dataclass(frozen=True)
class Exercise:
    """What `main(x, y)` is to compute: left combined with right."""

    left: Operand
    combination: str
    right: Operand


Inputs = tuple[int, int]


def is_held_out(task: Exercise) -> bool:
    """Whether a task belongs to the test split, whichever of its operands comes first.

    A stable hash decides, so that the two splits share no task, on any machine and for any seeds.
    """
    operands = sorted((operand.operations, operand.variable) for operand in (task.left, task.right))
    return zlib.crc32(repr((operands, task.combination)).encode()) % _TEST_SHARE == 0


def new_task(seed: int, num_operations: int = 2, split: Split = "train") -> Exercise:
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
        task = Exercise(
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


def expected(task: Exercise, inputs: Inputs) -> int:
    """What `main` must return."""
    return COMBINATIONS[task.combination](*_operand_values(task, inputs))


def _operand_values(task: Exercise, inputs: Inputs) -> tuple[int, int]:
    scope = dict(zip(VARIABLES, inputs, strict=True))
    left, right = (operand_value(operand, scope[operand.variable]) for operand in (task.left, task.right))
    return left, right


def new_inputs(rng: random.Random, task: Exercise, num_tests: int) -> tuple[Inputs, ...]:
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
    """Outcome of a pair of functions on the tests."""

    helper_parses: bool
    main_parses: bool
    uses_aux: bool
    pass_rate: float
    """Share of the tests passed."""
    divided_rate: float
    """Share of the tests passed with divided work; `pass_rate` if both programmers are not needed."""


def result(
    task: Exercise, inputs: Sequence[Inputs], aux: Function | None, main: Function | None, *, needs_both: bool = True
) -> Result:
    """The pair on the tests.

    A function of another name than `aux` or `main` counts as not parsed. `main` uses `aux` if it calls it, if its own
    values follow those of `aux`, and if `aux` computes something: neither a constant nor its argument.

    Args:
        task: the function that main computes.
        inputs: arguments of main, per test.
        aux: the helper's function. None: it does not parse.
        main: the main programmer's function. None: it does not parse.
        needs_both: whether a test with undivided work does not count (`_is_divided`).
    """
    helper, programmer = _named(aux, "aux"), _named(main, "main")
    if programmer is None:
        return Result(helper is not None, False, False, 0.0, 0.0)
    function = _evaluated(helper)
    values = [_main_value(programmer, function, pair) for pair in inputs]
    is_passed = [got == expected(task, pair) for got, pair in zip(values, inputs, strict=True)]
    uses_aux = (
        helper is not None
        and calls(programmer, "aux")
        and _helps(helper)
        and any(
            _main_value(programmer, _unary(_STAND_INS[0]), pair) != got
            for got, pair in zip(values, inputs, strict=True)
        )
    )
    is_counted = [
        passed and (not needs_both or _is_divided(task, function, programmer, pair))
        for passed, pair in zip(is_passed, inputs, strict=True)
    ]
    return Result(helper is not None, True, uses_aux, fmean(is_passed), fmean(is_counted))


def terms(result: Result, *, needs_both: bool = True) -> dict[str, float]:
    """The parts of the reward; their sum is the team's reward, 0 to 1."""
    if result.uses_aux:
        tests = WEIGHTS["tests"] * result.divided_rate
    else:
        tests = (TESTS_WEIGHT_ALONE if needs_both else TESTS_WEIGHT_ALONE_V0) * result.pass_rate
    return {
        "helper_parses": WEIGHTS["helper_parses"] * result.helper_parses,
        "main_parses": WEIGHTS["main_parses"] * result.main_parses,
        "uses_aux": WEIGHTS["uses_aux"] * result.uses_aux,
        "tests": tests,
    }


def _named(function: Function | None, name: str) -> Function | None:
    return function if function is not None and function.name == name else None


Evaluation = Callable[[Sequence[int]], int]
"""Arguments -> value; raises `EvaluationError` if there is none."""


def _evaluated(aux: Function | None) -> Evaluation | None:
    return None if aux is None else lambda arguments: value(aux, arguments, {})


def _main_value(main: Function, aux: Evaluation | None, inputs: Inputs) -> int | None:
    """The value of `main`; None if it has no value."""
    try:
        return value(main, inputs, {} if aux is None else {"aux": aux})
    except EvaluationError:
        return None


def _is_divided(task: Exercise, aux: Evaluation | None, main: Function, inputs: Inputs) -> bool:
    """Whether both programmers do their part on a test.

    `aux` has the value of an operand, and `main` leaves that operand to `aux`: with any function in place of `aux`,
    `main` combines that function's value with the other operand. The second rule refuses a main that undoes a fixed
    function and computes both operands, and a helper that computes the whole task. One `aux` may be both operands, if
    they have the same operations.
    """
    if aux is None:
        return False
    scope = dict(zip(VARIABLES, inputs, strict=True))
    sides = [(operand, scope[operand.variable]) for operand in (task.left, task.right)]
    ways = [(True, False), (False, True)] + [(True, True)] * (task.left.operations == task.right.operations)

    def is_computed(way: tuple[bool, bool]) -> bool:
        own = [side for side, is_by_aux in zip(sides, way, strict=True) if is_by_aux]
        return all(_value_or_none(aux, number) == operand_value(operand, number) for operand, number in own)

    def is_left_to(function: Callable[[int], int], way: tuple[bool, bool]) -> bool:
        values = (
            function(number) if is_by_aux else operand_value(operand, number)
            for (operand, number), is_by_aux in zip(sides, way, strict=True)
        )
        return _main_value(main, _unary(function), inputs) == COMBINATIONS[task.combination](*values)

    return any(is_computed(way) and all(is_left_to(function, way) for function in _STAND_INS) for way in ways)


def _value_or_none(function: Evaluation, number: int) -> int | None:
    try:
        return function([number])
    except EvaluationError:
        return None


def _unary(function: Callable[[int], int]) -> Evaluation:
    def evaluation(arguments: Sequence[int]) -> int:
        if len(arguments) != 1:
            raise EvaluationError(f"aux takes 1 argument, got {len(arguments)}")
        return function(arguments[0])

    return evaluation


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
