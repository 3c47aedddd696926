"""Values outside of the jail: exact limits of what is decoded and refused, and the rule of equality."""

import json
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collm.envs.sandbox import values
from collm.envs.sandbox.exchange.calls import plain
from collm.envs.sandbox.runtime import codec
from collm.envs.sandbox.runtime.codec import MAX_DEPTH
from collm.envs.sandbox.values import MalformedValue, TooLarge, is_equal, num_parts, parse, read, read_text

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


def wire(value: Any) -> Any:
    return parse(f'["v",{codec.encode(value)}]'.encode())[1]


@settings(max_examples=60, deadline=None)
@given(DATA, DATA)
def test_data_comes_back_as_it_went_and_its_equality_is_that_of_python(value: Any, other: Any) -> None:
    assert read(wire(value)) == value
    assert is_equal(wire(value), value)
    assert codec.decode(wire(value)) == value
    assert plain(value) == value
    assert is_equal(wire(value), other) == (value == other)


def message(text: str) -> bytes:
    return f'["v",{text}]'.encode()


def test_decimals_are_short_and_a_message_has_a_limit_of_arrays() -> None:
    for just_right, value, too_much in [
        ("1" * 17, int("1" * 17), "1" * 18),
        ("-" + "1" * 16, -int("1" * 16), "-" + "1" * 17),
        ("0." + "5" * 30, float("0." + "5" * 30), "0." + "5" * 31),
    ]:
        assert parse(message(just_right)) == ["v", value]
        with pytest.raises(MalformedValue):
            parse(message(too_much))
    body = message("[],[[]]")
    assert num_parts(body) == 4
    assert parse(body, max_parts=4) == ["v", [], [[]]]
    with pytest.raises(TooLarge, match="more than 3 parts"):
        parse(body, max_parts=3)
    assert len(parse(message(",".join(["[]"] * 99_999)))) == 100_000
    with pytest.raises(TooLarge, match="100000"):
        parse(message(",".join(["[]"] * 100_000)))


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"[1]", b'"v"', b'{"v": 1}', b'["v"] ', b'["v"][]', b'["v", {}]', b'["v", NaN]', b'["v", Infinity]',
     '["v", "é"]'.encode(), b'["v"', b'[["v"]]', b"[" * 5_000],
)  # fmt: skip
def test_what_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedValue):
        parse(body, max_parts=10_000)
    assert parse(b'["v"]') == ["v"]


BAD_PAYLOADS = [
    ["i", "xyz"], ["i", ""], ["i", "1", "2"], ["i"], ["i", 5], ["f", "xyz"], ["f", 1], ["f", "1.0"], ["f", "infinity"],
    ["b", "0"], ["b", "xyz"], ["b", "6g"], ["u", "ff"], ["u", "61", "61"], ["u"], ["u", 61],
]  # fmt: skip
MALFORMED = [
    *BAD_PAYLOADS,
    [], [1, 2], [None], [["l"]], ["x", 1], ["l", ["h", 3]], ["d", 1], ["d", 1, 2, 3], ["d", ["l"], 1], ["s", ["l"]],
    ["s", ["d"]], ["c", 1, 2], ["c", 1.0], ["c", 1.0, 1], ["c", 1.0, 1.0, 1.0], ["c", ["c", 1.0, 1.0], 1.0],
    ["r", 1, 2], ["r", 1, 2, 0], ["r", 1, 2, 1.0], ["r", 1, 2, 3, 4],
    ["e"], ["e", 5], ["e", ["l"]], ["e", "Path", "/"], ["e", "int", 5], ["e", "int", "int"], ["e", "eval"],
    ["e", "Decimal", 1], ["e", "Decimal", "1_0"], ["e", "Decimal", "1", "1"], ["e", "Decimal", "1" * 4301],
    ["e", "Decimal", "1" * 9000], ["e", "Decimal", "1E+6145"], ["e", "Decimal", "1E-6145"],
    ["e", "Decimal", "1E+99999"],
    ["e", "Fraction", 1], ["e", "Fraction", 1, 0], ["e", "Fraction", 1.5, 2], ["e", "Fraction", 1, 2, 3],
    ["e", "timedelta", 1, 2], ["e", "timedelta", 1, 2.0, 3], ["e", "timedelta", 1, 2, 3, 4],
    ["e", "timedelta", ["i", "f" * 90], 0, 0], ["e", "datetime", 5], ["e", "datetime", "2020"],
    ["e", "datetime", "2" * 99], ["e", "datetime", "2020-01-02", "2020-01-02"], ["e", "date", "2020-01-02" + "0" * 40],
    ["e", "time"], ["e", "deque"], ["e", "deque", -1], ["e", "deque", "x"], ["e", "deque", True, 1],
    ["e", "deque", 1, 2, 3], ["e", "deque", None, ["h", 3]], ["e", "Counter", "a"], ["e", "Counter", ["l"], 1],
]  # fmt: skip


@pytest.mark.parametrize("form", MALFORMED, ids=lambda form: str(form)[:60])
def test_a_malformed_form_is_refused_and_never_quoted(form: Any) -> None:
    with pytest.raises(MalformedValue):
        values.check(form)
    with pytest.raises(MalformedValue) as found:
        read(form)
    if form in BAD_PAYLOADS:  # which may be long and contain terminal control sequences
        assert str(found.value) == f"bad payload of {form[0]!r}"


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (["f", "nan"], "nan"), (["f", "-inf"], "-inf"), (["i", "-ff"], "-255"), (["b", "00ff"], "b'\\x00\\xff'"),
        (["u", "c3a9"], "'é'"), (["c", ["f", "inf"], 2.0], "(inf+2j)"), (["r", 1, ["i", "9"], 3], "range(1, 9, 3)"),
        (["s", ["s", 1], ["t", ["s", 2]]], "{frozenset({1}), (frozenset({2}),)}"),
        (["d", ["s", 1], ["s", 2]], "{frozenset({1}): {2}}"), (["t", ["s"], ["l"]], "(set(), [])"),
    ],
)  # fmt: skip
def test_forms_by_hand(form: Any, value: str) -> None:
    assert repr(read(form)) in (value, "{(frozenset({2}),), frozenset({1})}")


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (["e", "Decimal", "1" * 4300], Decimal("1" * 4300)), (["e", "Decimal", "1E+6144"], Decimal("1E+6144")),
        (["e", "Decimal", "1E-6144"], Decimal("1E-6144")), (["e", "Fraction", 3, 6], Fraction(1, 2)),
        (["e", "deque", 2, 5, 6], deque([5, 6], 2)), (["e", "deque", 0], deque(maxlen=0)),
        (["e", "datetime", "2020-01-02T03:04:05.000006+07:00"],
         datetime(2020, 1, 2, 3, 4, 5, 6, timezone(timedelta(hours=7)))),
    ],
    ids=lambda each: str(each)[:40],
)  # fmt: skip
def test_extended_forms_that_are_just_right(form: Any, value: Any) -> None:
    found = read(form)
    assert found == value and type(found) is type(value)
    assert is_equal(form, value) and not is_equal(form, [value])


def test_the_wire_form_by_hand_and_instances_of_subclasses_travel_as_their_builtin() -> None:
    assert read(["i", "f" * 3500]) == 16**3500 - 1
    with pytest.raises(MalformedValue, match="print"):
        read(["i", "f" * 3501])
    values.check(["i", "f" * 3501])
    assert is_equal(wire(10**5000), 10**5000)
    assert wire([1, (2.5, None), {"a": {True}}]) == ["l", 1, ["t", 2.5, None], ["d", "a", ["s", True]]]
    assert wire(1 << 60) == ["i", "1000000000000000"]
    assert wire('a"é') == ["u", "6122c3a9"]

    class Colour(str, Enum):
        RED = "red"

    class Number(IntEnum):
        ONE = 1

    pair = namedtuple("pair", "a b")
    builtins = [(Colour.RED, "red"), (Number.ONE, 1), (pair(1, 2), (1, 2)), (defaultdict(int, a=2), {"a": 2})]
    for value, expected in builtins:
        assert read(wire(value)) == expected == plain(value)
        assert type(plain(value)) is type(expected)


def nested(depth: int, tag: str = "l") -> list[Any]:
    form: list[Any] = [tag]
    for _ in range(depth):
        form = [tag, form]
    return form


def test_depth_size_and_colliding_keys_have_exact_limits() -> None:
    answer: list[Any] = []
    for _ in range(MAX_DEPTH + 1):
        answer = [answer]
    assert is_equal(nested(MAX_DEPTH), answer[0])
    with pytest.raises(MalformedValue, match="deep"):
        is_equal(nested(MAX_DEPTH + 1), answer)
    for form in (nested(MAX_DEPTH), ["d", 0, nested(MAX_DEPTH - 1)], ["e", "deque", None, nested(MAX_DEPTH - 1)]):
        read(form)
    too_deep = nested(MAX_DEPTH)
    for form in (["l", too_deep], ["d", 0, too_deep], ["d", nested(MAX_DEPTH, "t"), 0], ["e", "deque", None, too_deep]):
        with pytest.raises(MalformedValue, match="deep"):
            read(form)
    # Arrays and their items count: 3 + 2 + 4.
    form = ["l", ["t", 1], ["d", 1, ["r", 0, 0, 1], 2][:3]]
    assert read(form, max_nodes=8) == [(1,), {1: range(0)}]
    with pytest.raises(MalformedValue, match="large"):
        read(form, max_nodes=7)
    assert read(["l", ["r", 0, 10, 2]], max_nodes=7) == [range(0, 10, 2)]
    with pytest.raises(MalformedValue, match="large"):
        read(["l", ["r", 0, 10, 2]], max_nodes=6)
    assert len(read(["r", 0, 999_999, 1])) == 999_999
    assert len(read(["r", 999_999, 0, -1])) == 999_999
    for end in (2_000_000, ["i", f"{10**18:x}"]):
        with pytest.raises(MalformedValue, match="large"):
            read(["r", 0, end, 1])
    values.check(["r", 0, 2_000_000, 1])
    colliding = [["i", f"{number * ((1 << 61) - 1):x}"] for number in range(1, 30_000)]
    others = list(range(1, 200))
    assert len(read(["s", *colliding[:64], *others])) == 64 + 199
    started = process_time()
    for form in (["s", *colliding[:65], *others], ["d", *(part for key in colliding[:65] for part in (key, 0))]):
        with pytest.raises(MalformedValue, match="more than 64 keys of one hash"):
            read(form)
    with pytest.raises(MalformedValue, match="hash"):
        read(["s", *colliding])
    assert not is_equal(["s", *colliding], {1, 2})
    assert process_time() - started < 1


def test_texts_for_people_have_question_marks_and_comparing_refuses_what_is_no_value() -> None:
    assert read_text(["u", "61eda080"]) == "a?"
    assert read_text("plain") == "plain"
    for form in (5, None, ["b", "61"], ["i", "1"], ["l", "a"]):
        with pytest.raises(MalformedValue):
            read_text(form)
    for form in (["u", "eda080"], ["l", ["u", "61eda080"]], ["s", ["u", "eda080"]]):
        with pytest.raises(MalformedValue):
            read(form)
    assert is_equal(["u", "eda080"], "\ud800")
    values.check(["u", "61eda080"])
    for form in (["d", 1], ["d", 1, 2, 3], ["x"], [], ["s", ["h", 1]], ["e", "nothing"]):
        with pytest.raises(MalformedValue):
            is_equal(form, {1: 2} if form[:1] == ["d"] else {1})
    assert is_equal(["d", 1, ["l", 2], ["t", 3], "x"], {(3,): "x", 1: [2]})
    assert not is_equal(["d", 1, ["l", 2], ["t", 3], "x"], {(3,): [2], 1: "x"})
    assert not is_equal(["d", 1, 2], {1: 2, 3: 4}) and not is_equal(["d", 1, 2, 3, 4], {1: 2})
    assert not is_equal(["s", ["l"]], {1}) and not is_equal(["s", ["d"]], frozenset({1}))
    assert is_equal(["s", ["s", 1]], frozenset({frozenset({1})}))
    assert not is_equal(["l", 1, 2], [1]) and not is_equal(["l"], [1]) and not is_equal(["t", 1], [1])
    assert not is_equal(["s", 1, 1], {1, 2})
    assert not is_equal(["d", 1, 5, 1, 5], {1: 5, 2: 5})
    assert not is_equal(wire({1.0 + 1e-12}), {1.0}, 1e-6)
    assert not is_equal(wire({1.0 + 1e-12: 1}), {1.0: 1}, 1e-6)


def test_near_is_relative_above_1_and_absolute_below_and_extended_types_are_equal_by_rule() -> None:
    for expected, away, is_near in (
        (0.5, 0.25, True), (0.5, 0.2501, False), (-0.5, -0.25, True),
        (8.0, 2.0, True), (8.0, 2.001, False), (-8.0, 2.0, True), (1.0, 0.25, True),
    ):  # fmt: skip
        assert is_equal(json.loads(json.dumps(expected + away)), expected, tolerance=0.25) is is_near
    huge = 1 << (1 << 16)
    assert is_equal(["i", f"{huge // 2:x}"], Decimal(huge // 2)) and not is_equal(["i", f"{huge:x}"], Decimal(huge))
    assert is_equal(wire(Decimal("0.5")), 0.5) and is_equal(wire(0.5), Decimal("0.5"))
    assert is_equal(wire(Fraction(1, 2)), 0.5) and is_equal(wire(2), Fraction(2))
    assert not is_equal(wire(Decimal("0.1")), 0.1, 1e-6) and not is_equal(wire(0.1), Decimal("0.1"), 1e-6)
    assert is_equal(wire(Decimal("NaN")), Decimal("NaN")) and is_equal(wire(NAN), Decimal("NaN"))
    assert not is_equal(wire(10**30000), Decimal(5))
    assert is_equal(wire({"a": 1}), Counter("a")) and is_equal(wire(Counter("a")), {"a": 1})
    assert is_equal(wire(deque([1.0 + 1e-9])), deque([1.0]), 1e-6)
    assert not is_equal(wire([1]), deque([1])) and not is_equal(wire(deque([1])), [1])
    assert not is_equal(wire(datetime(2020, 1, 1)), date(2020, 1, 1)) and not is_equal(wire(bool), int)


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
    *[(complex(part, 1), complex(part, 1), 0.0, True) for part in (NAN, INF)],
    *[(complex(part, 1), complex(part, 2), 9.0, False) for part in (NAN, INF)],
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


@pytest.mark.parametrize("value", [object(), print, [object()], {1: {2: iter([])}}, ValueError("x")])
def test_what_is_not_plain_data_does_not_travel(value: Any) -> None:
    with pytest.raises(TypeError):
        codec.encode(value)
    with pytest.raises(TypeError, match="cannot be an argument"):
        plain(value)
