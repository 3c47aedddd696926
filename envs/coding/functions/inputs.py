"""Arguments drawn at random from a description of them, for tests that are made anew in each episode.

A description is JSON, one part for each argument:

    {"int": [lowest, highest]}                            {"bool": true}
    {"float": [lowest, highest, digits]}                  {"choice": [value, ...]}
    {"text": "alphabet", "length": [least, most]}         {"fixed": [part, ...]}
    {"list": part, "length": [least, most]}
    {"dict": [part of a key, part of a value], "length": [least, most]}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

Arguments = tuple[Any, ...]
_MAX_DRAWS = 50  # for each test: a narrow description has fewer different arguments than are asked for


def drawn_arguments(parts: Sequence[Mapping[str, Any]], rng: Random, count: int) -> tuple[Arguments, ...]:
    """Arguments of `count` calls, different ones as far as the description allows.

    Raises:
        ValueError: if a part is of no known kind.
    """
    calls: dict[str, Arguments] = {}
    for _ in range(_MAX_DRAWS * count):
        arguments = tuple(drawn(part, rng) for part in parts)
        calls.setdefault(repr(arguments), arguments)
        if len(calls) == count:
            break
    return tuple(calls.values())


def drawn(part: Mapping[str, Any], rng: Random) -> Any:
    """One value."""
    match part:
        case {"int": [low, high]}:
            return rng.randint(low, high)
        case {"float": [low, high, digits]}:
            return round(rng.uniform(low, high), digits)
        case {"bool": _}:
            return rng.random() < 0.5
        case {"choice": [*values]}:
            return rng.choice(values)
        case {"text": str(alphabet), "length": [least, most]}:
            return "".join(rng.choice(alphabet) for _ in range(rng.randint(least, most)))
        case {"list": inner, "length": [least, most]}:
            return [drawn(inner, rng) for _ in range(rng.randint(least, most))]
        case {"fixed": [*inner]}:
            return [drawn(each, rng) for each in inner]
        case {"dict": [key, value], "length": [least, most]}:
            return {drawn(key, rng): drawn(value, rng) for _ in range(rng.randint(least, most))}
    raise ValueError(f"an argument must be described in one of the forms of collm.envs.coding.functions.inputs: {part}")
