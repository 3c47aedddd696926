"""Types and ranges of settings, which are checked when a settings dataclass is built.

    @dataclass(frozen=True, kw_only=True)
    class Settings(Checked):
        num_updates: Count = 100
        clip_range: Positive | None = None

A subclass that changes a default may repeat the plain type (`num_updates: int = 5`); the range is inherited.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from ._errors import UserError

T = TypeVar("T")


@dataclass(frozen=True)
class InRange:
    """Range of a number, as metadata of its type (`Annotated`). No range includes infinity or NaN."""

    least: float | None = None  # inclusive
    most: float | None = None  # inclusive
    above: float | None = None  # exclusive
    below: float | None = None  # exclusive

    def holds(self, value: float) -> bool:
        return (
            math.isfinite(value)
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        if self.least is not None and self.most is not None:
            return f"from {self.least} to {self.most}"
        limits = {"of at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        return " and ".join(f"{words} {limit}" for words, limit in limits.items() if limit is not None)


class Also:
    """Aliases of a setting, such as its name in another library, as metadata of its type (`Annotated`)."""

    def __init__(self, *names: str):
        self.names = names


class Parts(Also):
    """Names of the items of a tuple setting, as metadata of its type. Users may set a single item by its name."""


@dataclass(frozen=True)
class Needs:
    """Condition under which an option of a command has an effect, as metadata of its type.

    A lambda as `holds` may read only its argument, because `get_type_hints` evaluates it without the module's names.
    """

    text: str  # end of the sentence "--option needs …"
    holds: Callable[[Any], bool]  # of the command's arguments


ADVANCED = "advanced"
Advanced: TypeAlias = Annotated[T, ADVANCED]  # Type of a setting that only --help-all shows


Count = Annotated[int, InRange(1)]
CountOrZero = Annotated[int, InRange(0)]
Finite = Annotated[float, InRange()]
Positive = Annotated[float, InRange(above=0)]
MAX_INTEGER = 2**53  # a larger integer is not exact in JSON readers, logs and plots
MAX_COEFFICIENT = 1000  # a larger bonus would dominate any return
Coefficient = Annotated[float, InRange(-MAX_COEFFICIENT, MAX_COEFFICIENT)]
NotNegative = Annotated[float, InRange(0)]
Share = Annotated[float, InRange(0, 1)]
Decay = Annotated[float, InRange(0, below=1)]
MAX_LEARNING_RATE = 1e30  # a larger step of AdamW would leave the range of float32
LearningRate = Annotated[float, InRange(0, MAX_LEARNING_RATE)]
Seed = Annotated[int, InRange(0, 2**32 - 1)]


@dataclass(frozen=True)
class Checked:
    """Base class of settings dataclasses. Raises `UserError` if a value does not have its declared type and range."""

    def __post_init__(self) -> None:
        kind: Any = type(self)  # mypy does not accept dataclasses as hashable
        for name, hint in allowed(kind).items():
            check_value(name, getattr(self, name), hint)


@cache
def allowed(settings: type) -> Mapping[str, Any]:
    """Return a dict setting -> type with range. A subclass that repeats only the plain type inherits the range."""
    found: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    for base in reversed(settings.__mro__):
        names = inspect.get_annotations(base)
        if names and "__dataclass_fields__" in vars(base):
            hints, bare = get_type_hints(base, include_extras=True), get_type_hints(base)
            for name in names:
                if name not in found or plain[name] != bare[name]:
                    found[name], plain[name] = hints[name], bare[name]
    return found


def refuse_password(address: str) -> None:
    """Raise `UserError` if an address contains a user or password, because addresses are saved and printed."""
    if found := re.search(r"(\w+)://.*@", address, re.DOTALL):
        raise UserError(
            f"an address must not contain a user or a password, as {found[1]}://user:password@host, because addresses "
            "are saved; leave them out. Put a chat server's key into an environment variable: ?key=VARIABLE"
        )


def check_value(name: str, value: Any, hint: Any) -> None:
    """Raise `UserError` if a value does not have a type and range."""
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise UserError(f"{name} must be at most {MAX_INTEGER}, got a number of {value.bit_length()} bits")
    if not _is_allowed(value, hint):
        raise UserError(f"{name} must be {words(hint)}, got {value!r:.200}")
    for option in _options(hint):
        if isinstance(value, Mapping) and _kind(option) is Mapping:
            for key, item in value.items():
                check_value(f"{name}[{key!r}]", item, get_args(option)[1])
        elif isinstance(value, (tuple, list)) and _kind(option) is Sequence:
            hints = get_args(option)
            is_fixed = get_origin(option) is tuple and Ellipsis not in hints
            if is_fixed and len(value) != len(hints):
                raise UserError(f"{name} must be {len(hints)} values, got {value!r:.200}")
            for number, item in enumerate(value):
                check_value(f"{name}[{number}]", item, hints[number] if is_fixed else hints[0])


def _is_allowed(value: Any, hint: Any) -> bool:
    ranges = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, InRange)]
    hint = bare(hint)
    if get_origin(hint) in (Union, UnionType):
        return any(_is_allowed(value, option) for option in get_args(hint))
    if get_origin(hint) is Literal:
        return any(type(value) is type(choice) and value == choice for choice in get_args(hint))
    kind = _kind(hint)
    if kind in (int, float):
        wanted = Integral if kind is int else Real
        is_number = isinstance(value, wanted) and not isinstance(value, bool)
        return is_number and math.isfinite(value) and all(each.holds(value) for each in ranges)
    if kind is Sequence:
        return isinstance(value, (tuple, list))
    return kind is None or isinstance(value, kind)


def words(hint: Any) -> str:
    """Describe a type and its range: "a whole number of at least 1, or None"."""
    ranges = [str(each) for each in getattr(hint, "__metadata__", ()) if isinstance(each, InRange)]
    hint = bare(hint)
    if get_origin(hint) in (Union, UnionType):
        return ", or ".join(words(option) for option in get_args(hint))
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(repr, get_args(hint)))}"
    names = {int: "a whole number", float: "a finite number", str: "text", bool: "True or False", NoneType: "None"}
    names |= {Mapping: "a table of names and values", Sequence: "a list"}
    kind = _kind(hint)
    name = names.get(kind) or f"a {getattr(kind, '__name__', 'value')}"
    return " ".join([name, *filter(None, ranges)])


def _options(hint: Any) -> tuple[Any, ...]:
    hint = bare(hint)
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def bare(hint: Any) -> Any:
    """Return a type without its metadata."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _kind(hint: Any) -> Any:
    """Return the class of a type's values; None if any value is allowed (for type variables and `Any`)."""
    kind = get_origin(hint) or hint
    if kind is Any or not isinstance(kind, type):
        return None
    if issubclass(kind, Mapping):
        return Mapping
    return Sequence if issubclass(kind, Sequence) and kind is not str else kind
