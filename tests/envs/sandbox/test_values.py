"""The trusted end of the wire: what it reads, what it refuses, and what it calls equal."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, deque
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collm.envs.sandbox import values
from collm.envs.sandbox.exchange.calls import plain
from collm.envs.sandbox.runtime import codec
from collm.envs.sandbox.values import MalformedValue, is_equal, parse, read

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
    started = process_time()
    with pytest.raises(MalformedValue, match="hash"):
        read(["s", *colliding])
    assert not is_equal(["s", *colliding], {1, 2})
    assert process_time() - started < 1


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


INF, NAN, HUGE = float("inf"), float("nan"), 10**12
NEAR = [  # expected, given, tolerance: whether they are equal; the table in the docs, row by row
    *[(HUGE, given, 1e-9, False) for given in (HUGE + 1, HUGE + 100, float(HUGE + 1), complex(HUGE + 1), -HUGE)],
    *[(HUGE, given, 1e-9, True) for given in (HUGE, float(HUGE), complex(HUGE), HUGE + 0.25)],
    *[(3, given, 1e-6, True) for given in (3, 3.0, 2.9999999999999996, 3 + 1e-9j)],
    *[(3, given, 1e-6, False) for given in (2, 4, 4.0, 3.1, 3 + 1e-3j, True, INF, NAN, "3", None)],
    *[(3, given, 2.0, False) for given in (2, 4, 4.0, 5 + 0j)],
    (3, 3.1, 2.0, True),
    (2**53 + 1, float(2**53), 1e-9, False),
    (10**400, 1.5, 1e-9, False),
    (10**400, 10**400 + 1, 1.0, False),
    (1.5, 10**400, 1e-9, False),
    *[(True, given, 1e-6, True) for given in (1, 1.0, 1.0 + 1e-9)],
    *[(True, given, 1e-6, False) for given in (0, 2, False)],
    *[(0, given, 1e-6, True) for given in (False, 0.0, -0.0, 1e-9)],
    *[(1e12, given, 1e-9, True) for given in (HUGE, HUGE + 100, 1e12 + 100)],
    *[(1e12, given, 1e-9, False) for given in (HUGE + 2000, INF, -INF, NAN)],
    *[(0.5, given, 1e-6, True) for given in (0.5, 0.5 + 1e-7, 0.5 + 1e-7j)],
    *[(0.5, given, 1e-6, False) for given in (0.6, 1, 0, NAN, INF, complex(0.5, NAN))],
    *[(1 + 2j, given, 1e-6, True) for given in (1 + 2j, 1 + 2.0000001j)],
    *[(1 + 2j, given, 1e-6, False) for given in (1, 1 + 3j, complex(1, INF), complex(NAN, 2))],
    *[(INF, given, tolerance, False) for given in (0, 0.0, -INF, NAN, 10**400) for tolerance in (0.0, 9.0)],
    *[(-INF, given, 1e-9, False) for given in (0.0, INF, NAN)],
    *[(expected, expected, tolerance, True) for expected in (INF, -INF, NAN) for tolerance in (0.0, 1e-9)],
    *[(NAN, given, 9.0, False) for given in (0, 0.0, 1, INF, -INF, None, "nan")],
    (complex(NAN, 1), complex(NAN, 1), 0.0, True),
    (complex(NAN, 1), complex(NAN, 2), 9.0, False),
    (complex(INF, 1), complex(INF, 1), 0.0, True),
    (complex(INF, 1), complex(INF, 2), 9.0, False),
]


@pytest.mark.parametrize("expected, given, tolerance, is_right", NEAR)
def test_the_rule_of_equality_of_numbers_by_hand(expected: Any, given: Any, tolerance: float, is_right: bool) -> None:
    for inside in (lambda x: x, lambda x: [x], lambda x: (1, x), lambda x: {"a": [x]}):
        assert is_equal(wire(inside(given)), inside(expected), tolerance) is is_right


OF_EACH_TYPE = [True, 2, 2.5, INF, NAN, 1 + 1j, "a", b"a", range(3), None, [1], (1,), {1}, {1: 1}, [], (), set(), {}]


@pytest.mark.parametrize("tolerance", [0.0, 1e-9, 1e9])
def test_no_value_equals_one_of_another_kind_whatever_the_tolerance(tolerance: float) -> None:
    def kind(value: Any) -> Any:
        return "number" if isinstance(value, bool | int | float | complex) else type(value)

    for expected in OF_EACH_TYPE:
        assert is_equal(wire(expected), expected, tolerance)
        for other in OF_EACH_TYPE:
            if kind(other) != kind(expected):
                assert not is_equal(wire(other), expected, tolerance)


@settings(max_examples=100, deadline=None)
@given(st.integers(), st.integers(), st.floats(0, 1e6))
def test_no_integer_is_another_one_whatever_the_tolerance(expected: int, other: int, tolerance: float) -> None:
    assert is_equal(wire(other), expected, tolerance) is (other == expected)
    if abs(other) < 10**300:
        assert is_equal(wire(float(other)), expected, tolerance) is (float(other) == expected)


def test_no_tolerance_reaches_into_sets_and_keys() -> None:
    assert not is_equal(wire({1.0 + 1e-12}), {1.0}, 1e-6)
    assert not is_equal(wire({1.0 + 1e-12: 1}), {1.0: 1}, 1e-6)


def test_a_list_is_no_tuple_and_a_text_no_number() -> None:
    assert not is_equal(wire([1]), (1,))
    assert not is_equal(wire("1"), 1)
    assert not is_equal(wire(None), 0)
    assert is_equal(wire(True), 1)


def test_instances_of_subclasses_travel_as_their_builtin() -> None:
    from collections import defaultdict, namedtuple
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
        (defaultdict(int, a=2), {"a": 2}),
    ):
        assert read(wire(value)) == expected == plain(value)
        assert type(plain(value)) is type(expected)


EXTENDED = [
    *[Decimal(text) for text in ("1.50", "-3", "1E+30", "0E-8", "Infinity")],
    *[Fraction(1, 3), Fraction(-(10**30), 7)],
    *[datetime(2024, 2, 29, 12, 30, 5, 7), datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=2)))],
    *[date(1999, 12, 31), time(23, 59), timedelta(days=-1, seconds=5, microseconds=3)],
    *[deque([1, (2, "x")]), deque([1, 2], maxlen=2), Counter("abca"), OrderedDict(b=1, a=[2]), int, dict, complex],
]


@pytest.mark.parametrize("value", EXTENDED, ids=repr)
def test_types_of_the_standard_library_travel_as_themselves(value: Any) -> None:
    for inside in (value, [value], {"key": (value,)}):
        back = read(wire(inside))
        assert back == inside == codec.decode(wire(inside))
        assert type(back) is type(inside)
        assert is_equal(wire(inside), inside)
    assert type(read(wire(value))) is type(codec.decode(wire(value))) is type(value)
    assert not is_equal(wire(value), 5)
    assert not is_equal(wire(5), value)
    assert sum(is_equal(wire(value), other) for other in EXTENDED) == 1
    if isinstance(value, deque):
        assert read(wire(value)).maxlen == codec.decode(wire(value)).maxlen == value.maxlen


def test_the_rule_of_equality_of_extended_types() -> None:
    assert is_equal(wire(Decimal("0.5")), 0.5) and is_equal(wire(0.5), Decimal("0.5"))
    assert is_equal(wire(Fraction(1, 2)), 0.5) and is_equal(wire(2), Fraction(2))
    assert not is_equal(wire(Decimal("0.1")), 0.1, 1e-6) and not is_equal(wire(0.1), Decimal("0.1"), 1e-6)
    assert is_equal(wire(Decimal("NaN")), Decimal("NaN")) and is_equal(wire(NAN), Decimal("NaN"))
    assert not is_equal(wire(10**30000), Decimal(5))
    assert is_equal(wire({"a": 1}), Counter("a")) and is_equal(wire(Counter("a")), {"a": 1})
    assert is_equal(wire(deque([1.0 + 1e-9])), deque([1.0]), 1e-6)
    assert not is_equal(wire([1]), deque([1])) and not is_equal(wire(deque([1])), [1])
    assert not is_equal(wire(datetime(2020, 1, 1)), date(2020, 1, 1)) and not is_equal(wire(bool), int)


@pytest.mark.parametrize(
    "form",
    [
        ["e"],
        ["e", 5],
        ["e", ["l"]],
        ["e", "Path", "/"],
        ["e", "int", 5],
        ["e", "eval"],
        ["e", "Decimal", "1E+99999"],
        ["e", "Decimal", "1" * 9000],
        ["e", "Decimal", "1_0"],
        ["e", "Decimal", 1],
        ["e", "Fraction", 1, 0],
        ["e", "Fraction", 1.5, 2],
        ["e", "datetime", "2020"],
        ["e", "datetime", "2" * 99],
        ["e", "time"],
        ["e", "timedelta", 1, 2],
        ["e", "timedelta", ["i", "f" * 90], 0, 0],
        ["e", "deque"],
        ["e", "deque", 1, 2, 3],
        ["e", "deque", -1],
        ["e", "deque", "x"],
        ["e", "Counter", "a"],
        ["e", "Counter", ["l"], 1],
        ["e", "deque", None, ["h", 3]],
    ],
)
def test_a_malformed_extended_form_is_refused(form: Any) -> None:
    with pytest.raises(MalformedValue):
        read(form)


def test_a_huge_range_or_a_text_that_nothing_could_encode_is_refused() -> None:
    assert read(wire(range(1000))) == range(1000)
    for form in (["r", 0, ["i", f"{10**18:x}"], 1], wire("\ud800"), ["l", wire("a\udfffb")], ["s", wire("\ud800")]):
        with pytest.raises(MalformedValue):
            read(form)
    assert is_equal(wire("\ud800"), "\ud800"), "it can be compared all the same"


@pytest.mark.parametrize("value", [object(), print, [object()], {1: {2: iter([])}}, ValueError("x")])
def test_what_is_not_plain_data_does_not_travel(value: Any) -> None:
    with pytest.raises(TypeError):
        codec.encode(value)
    with pytest.raises(TypeError, match="cannot be an argument"):
        plain(value)
