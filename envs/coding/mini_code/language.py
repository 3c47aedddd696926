"""Parser and interpreter of MiniCode's language: one-line functions of integers in a subset of Python."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..syntax import parsed

MAX_TOKENS = 64
MAX_MAGNITUDE = 10**12

_TOKEN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,15}|[0-9]{1,3}|//|[-+*%(),:]")
_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


@dataclass(frozen=True)
class Function:
    name: str
    parameters: tuple[str, ...]
    body: ast.expr  # has only nodes that the language allows


def parsed_function(text: str) -> Function | None:
    """Parse a text as one function of MiniCode's language. Return None for other texts, or for more than 64 tokens."""
    tokens = _tokens(text)
    if tokens is None:
        return None
    match parsed(" ".join(tokens)):
        case [
            ast.FunctionDef(
                name=name,
                args=ast.arguments(posonlyargs=[], args=arguments, vararg=None, kwonlyargs=[], kwarg=None, defaults=[]),
                body=[ast.Return(value=ast.expr() as body)],
            )
        ]:
            parameters = tuple(argument.arg for argument in arguments)
            is_repeated = len(set(parameters)) < len(parameters)
            if not is_repeated and name not in parameters and _is_in_language(body, parameters):
                return Function(name, parameters, body)
    return None


def _tokens(text: str) -> list[str] | None:
    tokens: list[str] = []
    position = 0
    for match in re.finditer(r"\S+", text):
        position = match.start()
        while position < match.end():
            token = _TOKEN.match(text, position, match.end())
            if token is None or len(tokens) == MAX_TOKENS:
                return None
            tokens.append(token.group())
            position = token.end()
    return tokens


def _is_in_language(node: ast.expr, parameters: Sequence[str]) -> bool:
    match node:
        case ast.Constant(value=int()):
            return not isinstance(node.value, bool)
        case ast.Name(id=name):
            return name in parameters
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _is_in_language(operand, parameters)
        case ast.BinOp(left=left, op=op, right=right):
            return type(op) in _OPERATIONS and _is_in_language(left, parameters) and _is_in_language(right, parameters)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return name not in parameters and all(_is_in_language(argument, parameters) for argument in arguments)
    return False


def calls(function: Function, name: str) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
        for node in ast.walk(function.body)
    )


def value(function: Function, arguments: Sequence[int], known: Mapping[str, Callable[[Sequence[int]], int]]) -> int:
    """Evaluate a function, which may call the functions in `known`. Raise ArithmeticError if the evaluation fails."""
    if len(arguments) != len(function.parameters):
        raise ArithmeticError(f"{function.name} takes {len(function.parameters)} arguments, got {len(arguments)}")
    scope = dict(zip(function.parameters, arguments, strict=True))
    return _value(function.body, scope, known)


def _value(node: ast.expr, scope: Mapping[str, int], known: Mapping[str, Callable[[Sequence[int]], int]]) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return scope[name]
        case ast.UnaryOp(operand=operand):
            return -_value(operand, scope, known)
        case ast.BinOp(left=left, op=op, right=right):
            result = _OPERATIONS[type(op)](_value(left, scope, known), _value(right, scope, known))
            if abs(result) > MAX_MAGNITUDE:
                raise ArithmeticError(f"the value {result:.0e} is beyond the limit {MAX_MAGNITUDE:.0e}")
            return result
        case ast.Call(func=ast.Name(id=name), args=arguments):
            if name not in known:
                raise ArithmeticError(f"the function {name!r} must be one of {list(known)}")
            return known[name]([_value(argument, scope, known) for argument in arguments])
    raise ArithmeticError(f"MiniCode's language has no syntax node {type(node).__name__}")
