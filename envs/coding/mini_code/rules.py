"""Rules of MiniCode: tasks, tests, and rewards."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any, Literal

from .language import Function, calls, value

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
TESTS_WEIGHT_ALONE = 0.1  # weight of the tests if main does not use aux
TESTS_WEIGHT_ALONE_V0 = 0.2  # weight of the tests if main does not use aux, with needs_both=False

_RANGE = 2 * MAX_INPUT + 1
_TEST_SHARE = 5  # one task in five is in the test split
_PROBES = (-3, 2, 5)  # numbers on which no operation is constant or the identity
Evaluation = Callable[[Sequence[int]], int]  # maps arguments to a value, or raises ArithmeticError


def _unary(function: Callable[[int], int]) -> Evaluation:
    def evaluation(arguments: Sequence[int]) -> int:
        if len(arguments) != 1:
            raise ArithmeticError(f"aux takes 1 argument, got {len(arguments)}")
        return function(arguments[0])

    return evaluation


_STAND_INS = (  # functions that replace `aux`; they return values that no operand has
    _unary(lambda number: 307 + (31 * number * number + 17 * number) % 101),
    _unary(lambda number: -509 - (43 * number * number + 29 * number) % 97),
)


@dataclass(frozen=True)
class Operand:
    """Operand such as "double of square of x": the operations, the outermost first, and the variable."""

    operations: tuple[str, ...]
    variable: str


@dataclass(frozen=True)
class Exercise:
    """Task of `main(x, y)`, such as "double of x plus square of y": two operands and their combination."""

    left: Operand
    combination: str
    right: Operand


Inputs = tuple[int, int]


def is_held_out(task: Exercise) -> bool:
    """Return True if a task is in the test split, by a hash that does not depend on the order of the operands."""
    operands = sorted((operand.operations, operand.variable) for operand in (task.left, task.right))
    return zlib.crc32(repr((operands, task.combination)).encode()) % _TEST_SHARE == 0


def new_task(seed: int, num_operations: int = 2, split: Split = "train") -> Exercise:
    """Generate a task from a seed.

    Args:
        seed: any integer.
        num_operations: number of operations in the two operands together, 2 to 4.
        split: "train" or "test", which share no task.

    Raises:
        ValueError: if `split` or `num_operations` has another value.
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
        is_worth_a_function = all(_computes(partial(operand_value, operand)) for operand in (task.left, task.right))
        if is_worth_a_function and is_held_out(task) == (split == "test"):
            return task


def operand_value(operand: Operand, number: int) -> int:
    for name in reversed(operand.operations):
        number = OPERATIONS[name](number)
    return number


def expected(task: Exercise, inputs: Inputs) -> int:
    return COMBINATIONS[task.combination](*_operand_values(task, inputs))


def _operand_values(task: Exercise, inputs: Inputs) -> tuple[int, int]:
    scope = dict(zip(VARIABLES, inputs, strict=True))
    left, right = (operand_value(operand, scope[operand.variable]) for operand in (task.left, task.right))
    return left, right


def new_inputs(rng: random.Random, task: Exercise, num_tests: int) -> tuple[Inputs, ...]:
    """Sample different pairs (x, y) of arguments of `main`, from -9 to 9."""
    while True:  # until neither operand is 0 in all tests: in a product, the other operand would have no effect
        inputs = tuple(
            (number // _RANGE - MAX_INPUT, number % _RANGE - MAX_INPUT)
            for number in rng.sample(range(_RANGE**2), num_tests)
        )
        values = ([_operand_values(task, pair)[side] for pair in inputs] for side in (0, 1))
        if all(any(numbers) for numbers in values):
            return inputs


@dataclass(frozen=True)
class Result:
    """Test results of the helper's and the main programmer's functions."""

    helper_parses: bool
    main_parses: bool
    uses_aux: bool
    pass_rate: float  # fraction of the tests that passed
    divided_rate: float  # fraction of tests that passed with work of both. needs_both=False: equal to `pass_rate`.


def result(
    task: Exercise, inputs: Sequence[Inputs], aux: Function | None, main: Function | None, *, needs_both: bool = True
) -> Result:
    """Run the tests on the functions of the helper and the main programmer.

    `main` uses `aux` if it calls `aux`, its values depend on `aux`, and `aux` is neither constant nor the identity.
    `aux` or `main` is None if the code does not parse. Functions with other names are treated like None. With
    `needs_both`, only tests in which both programmers compute a part of the result are scored.
    """
    helper = aux if aux is not None and aux.name == "aux" else None
    if main is None or main.name != "main":
        return Result(helper is not None, False, False, 0.0, 0.0)
    evaluation = None if helper is None else partial(value, helper, known={})
    values = [_main_value(main, evaluation, pair) for pair in inputs]
    is_passed = [got == expected(task, pair) for got, pair in zip(values, inputs, strict=True)]
    uses_aux = (
        helper is not None
        and calls(main, "aux")
        and _helps(helper)
        and any(_main_value(main, _STAND_INS[0], pair) != got for got, pair in zip(values, inputs, strict=True))
    )
    is_counted = [
        passed and (not needs_both or _is_divided(task, evaluation, main, pair))
        for passed, pair in zip(is_passed, inputs, strict=True)
    ]
    return Result(helper is not None, True, uses_aux, fmean(is_passed), fmean(is_counted))


def terms(result: Result, *, needs_both: bool = True) -> dict[str, float]:
    """Compute the terms of the reward, whose sum is 0 to 1."""
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


def _value_or_none(evaluation: Callable[..., int], *arguments: Any) -> int | None:
    try:
        return evaluation(*arguments)
    except ArithmeticError:
        return None


def _main_value(main: Function, aux: Evaluation | None, inputs: Inputs) -> int | None:
    return _value_or_none(value, main, inputs, {} if aux is None else {"aux": aux})


def _is_divided(task: Exercise, aux: Evaluation | None, main: Function, inputs: Inputs) -> bool:
    """Return True if both programmers compute a part of the result in a test.

    `aux` must return the value of an operand. `main` must combine the value of `aux` with the other operand, even if
    another function replaces `aux`. The second rule excludes a `main` that computes both operands, and an `aux` that
    computes the whole task. If the operands have equal operations, `aux` may compute both.
    """
    if aux is None:
        return False
    scope = dict(zip(VARIABLES, inputs, strict=True))
    sides = [(operand, scope[operand.variable]) for operand in (task.left, task.right)]
    ways = [(True, False), (False, True)] + [(True, True)] * (task.left.operations == task.right.operations)

    def is_computed(way: tuple[bool, bool]) -> bool:
        own = [side for side, is_by_aux in zip(sides, way, strict=True) if is_by_aux]
        return all(_value_or_none(aux, [number]) == operand_value(operand, number) for operand, number in own)

    def is_left_to(function: Evaluation, way: tuple[bool, bool]) -> bool:
        values = (
            function([number]) if is_by_aux else operand_value(operand, number)
            for (operand, number), is_by_aux in zip(sides, way, strict=True)
        )
        return _main_value(main, function, inputs) == COMBINATIONS[task.combination](*values)

    return any(is_computed(way) and all(is_left_to(function, way) for function in _STAND_INS) for way in ways)


def _helps(aux: Function) -> bool:
    if len(aux.parameters) != 1:
        return len(aux.parameters) > 1
    try:
        return _computes(lambda number: value(aux, (number,), {}))
    except ArithmeticError:
        return False


def _computes(function: Callable[[int], int]) -> bool:
    """Return True if the function is neither constant nor the identity."""
    values = tuple(function(probe) for probe in _PROBES)
    return len(set(values)) > 1 and values != _PROBES
