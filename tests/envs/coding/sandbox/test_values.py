"""The trusted end of the wire: what it reads, what it refuses, and what it calls equal."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collm.envs.coding.sandbox import values
from collm.envs.coding.sandbox.arguments import plain
from collm.envs.coding.sandbox.runtime import codec
from collm.envs.coding.sandbox.values import MalformedValue, is_equal, parse, read

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
SCALARS |= st.complex_numbers(allow_nan=False)
KEYS = st.recursive(SCALARS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=5)
DATA = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.sets(KEYS, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=12,
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["l", "t", "s", "d", "i", "f", "c", "b", "u", "r", "h", "", "x"]),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=20,
)


def wire(value: Any) -> Any:
    """A value as it arrives."""
    return parse(f'["v",{codec.encode(value)}]'.encode())[1]


def test_the_wire_form_by_hand() -> None:
    assert wire([1, (2.5, None), {"a": {True}}]) == ["l", 1, ["t", 2.5, None], ["d", "a", ["s", True]]]
    assert wire(1 << 60) == ["i", "1000000000000000"]
    assert wire('a"é') == ["u", "6122c3a9"]


@settings(max_examples=40, deadline=None)
@given(DATA)
def test_data_comes_back_as_it_went(value: Any) -> None:
    assert read(wire(value)) == value
    assert is_equal(wire(value), value)
    assert codec.decode(wire(value)) == value
    assert plain(value) == value


@settings(max_examples=60, deadline=None)
@given(DATA, DATA)
def test_equality_on_the_wire_is_that_of_python(left: Any, right: Any) -> None:
    assert is_equal(wire(left), right) == (left == right)


@settings(max_examples=100, deadline=None)
@given(JSON)
def test_hostile_json_is_read_or_refused(message: Any) -> None:
    body = json.dumps(["v", message]).encode()
    try:
        value = parse(body)[1]
    except MalformedValue:
        return
    for act in (read, values.read_text, lambda wire: is_equal(wire, {1: [2]}), lambda wire: is_equal(wire, [{3}])):
        try:
            act(value)
        except MalformedValue:
            continue


@given(st.binary(max_size=60))
def test_hostile_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        parse(body)
    except MalformedValue:
        return


@pytest.mark.parametrize(
    "form",
    [
        ["l", ["h", 3]],
        ["x", 1],
        [],
        [1, 2],
        ["i", "zz"],
        ["i", 5],
        ["f", "1.0"],
        ["b", "0"],
        ["c", 1, 2],
        ["r", 1, 2, 0],
        ["d", 1],
        ["s", ["l"]],
        ["d", ["l"], 1],
        ["c", ["c", 1.0, 1.0], 1.0],
    ],
)
def test_a_malformed_form_is_refused(form: Any) -> None:
    with pytest.raises(MalformedValue):
        read(form)


def test_a_value_is_refused_for_depth_and_size() -> None:
    deep: list[Any] = ["l"]
    for _ in range(100):
        deep = ["l", deep]
    with pytest.raises(MalformedValue, match="deep"):
        read(deep)
    with pytest.raises(MalformedValue, match="large"):
        read(["l", *[["l"]] * 100], max_nodes=50)


def test_colliding_keys_are_refused_before_they_cost_anything() -> None:
    colliding = [["i", f"{number * ((1 << 61) - 1):x}"] for number in range(1, 30_000)]
    started = time.process_time()
    with pytest.raises(MalformedValue, match="hash"):
        read(["s", *colliding])
    assert not is_equal(["s", *colliding], {1, 2})
    assert time.process_time() - started < 1


def test_an_integer_too_long_to_print_can_be_compared_but_not_had() -> None:
    assert is_equal(wire(10**5000), 10**5000)
    with pytest.raises(MalformedValue, match="print"):
        read(wire([10**5000]))
    assert read(wire(10**4000)) == 10**4000


def test_a_set_with_an_element_twice_is_not_one_with_two() -> None:
    assert not is_equal(["s", 1, 1], {1, 2})
    assert not is_equal(["d", 1, 5, 1, 5], {1: 5, 2: 5})


@pytest.mark.parametrize("difference, expected", [(0.0, True), (1e-7, True), (1e-3, False)])
def test_floats_within_the_tolerance_are_equal(difference: float, expected: bool) -> None:
    assert is_equal(wire([1.5 + difference]), [1.5], tolerance=1e-6) is expected
    assert is_equal(wire({"a": (3000.0 * (1 + difference),)}), {"a": (3000.0,)}, tolerance=1e-6) is expected


def test_nan_equals_nothing_and_a_list_is_no_tuple() -> None:
    assert not is_equal(wire(float("nan")), float("nan"))
    assert not is_equal(wire([1]), (1,))
    assert not is_equal(wire("1"), 1)
    assert not is_equal(wire(None), 0)
    assert is_equal(wire(True), 1)


def test_instances_of_subclasses_travel_as_their_builtin() -> None:
    from collections import Counter, OrderedDict, namedtuple
    from enum import Enum, IntEnum

    class Colour(str, Enum):
        RED = "red"

    class Number(IntEnum):
        ONE = 1

    pair = namedtuple("pair", "a b")
    for value, expected in (
        (Colour.RED, "red"),
        (Number.ONE, 1),
        (pair(1, 2), (1, 2)),
        (Counter("aa"), {"a": 2}),
        (OrderedDict(b=1), {"b": 1}),
    ):
        assert read(wire(value)) == expected == plain(value)
        assert type(plain(value)) is type(expected)


@pytest.mark.parametrize("value", [object(), print, [object()], {1: {2: iter([])}}, ValueError("x")])
def test_what_is_not_plain_data_does_not_travel(value: Any) -> None:
    with pytest.raises(TypeError):
        codec.encode(value)
    with pytest.raises(TypeError, match="cannot be an argument"):
        plain(value)
