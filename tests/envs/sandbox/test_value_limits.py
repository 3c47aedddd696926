"""The trusted end of the wire at its limits: what is just small enough is read, what is one larger is refused."""

from __future__ import annotations

import json
from collections import deque
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from collm.envs.sandbox import values
from collm.envs.sandbox.runtime.codec import MAX_DEPTH
from collm.envs.sandbox.values import MalformedValue, TooLarge, is_equal, num_parts, parse, read, read_text


def message(text: str) -> bytes:
    return f'["v",{text}]'.encode()


@pytest.mark.parametrize(
    ("just_right", "value", "too_much"),
    [
        ("1" * 17, int("1" * 17), "1" * 18),
        ("-" + "1" * 16, -int("1" * 16), "-" + "1" * 17),
        ("0." + "5" * 30, float("0." + "5" * 30), "0." + "5" * 31),
    ],
)
def test_decimals_are_short(just_right: str, value: Any, too_much: str) -> None:
    assert parse(message(just_right)) == ["v", value]
    with pytest.raises(MalformedValue):
        parse(message(too_much))


def test_a_message_has_a_limit_of_arrays_and_one_more_is_too_large_and_not_tampered_with() -> None:
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


@pytest.mark.parametrize(
    "wire",
    [["i", "xyz"], ["i", ""], ["i", "1", "2"], ["i"], ["f", "xyz"], ["f", 1], ["b", "0"], ["b", "xyz"], ["u", "ff"]],
)
def test_a_bad_payload_is_named_by_its_tag_and_never_quoted(wire: list[Any]) -> None:
    """It is as long as hostile code wants it, and full of what a terminal would obey."""
    with pytest.raises(MalformedValue) as found:
        read(wire)
    assert str(found.value) == f"bad payload of {wire[0]!r}"


def test_integers_in_hexadecimal_have_3500_digits_at_most() -> None:
    assert read(["i", "f" * 3500]) == 16**3500 - 1
    with pytest.raises(MalformedValue, match="print"):
        read(["i", "f" * 3501])
    values.check(["i", "f" * 3501])  # it is a value all the same


def test_a_table_has_64_keys_of_one_hash_at_most() -> None:
    prime = (1 << 61) - 1
    colliding = [["i", f"{number * prime:x}"] for number in range(1, 66)]
    others = list(range(1, 200))
    assert len(read(["s", *colliding[:64], *others])) == 64 + 199
    with pytest.raises(MalformedValue, match="more than 64 keys of one hash"):
        read(["s", *colliding, *others])
    with pytest.raises(MalformedValue, match="more than 64 keys of one hash"):
        read(["d", *(part for key in colliding for part in (key, 0))])


def nested(depth: int, tag: str = "l") -> list[Any]:
    wire: list[Any] = [tag]
    for _ in range(depth):
        wire = [tag, wire]
    return wire


def test_depth_and_size_have_exact_limits() -> None:
    read(nested(MAX_DEPTH))
    with pytest.raises(MalformedValue, match="deep"):
        read(nested(MAX_DEPTH + 1))
    answer: list[Any] = []
    for _ in range(MAX_DEPTH + 1):
        answer = [answer]
    assert is_equal(nested(MAX_DEPTH), answer[0])
    with pytest.raises(MalformedValue, match="deep"):
        is_equal(nested(MAX_DEPTH + 1), answer)
    # every array counts, and so does every item: 3 + 2 + 4
    wire = ["l", ["t", 1], ["d", 1, ["r", 0, 0, 1], 2][:3]]
    assert read(wire, max_nodes=8) == [(1,), {1: range(0)}]
    with pytest.raises(MalformedValue, match="large"):
        read(wire, max_nodes=7)
    deep_pair = ["d", 0, nested(MAX_DEPTH - 1)]
    read(deep_pair)
    for too_deep in (
        ["d", 0, nested(MAX_DEPTH)],
        ["d", nested(MAX_DEPTH, "t"), 0],
        ["e", "deque", None, nested(MAX_DEPTH)],
    ):
        with pytest.raises(MalformedValue, match="deep"):
            read(too_deep)
    read(["e", "deque", None, nested(MAX_DEPTH - 1)])


def test_a_range_counts_as_many_parts_as_it_has_numbers() -> None:
    assert read(["l", ["r", 0, 10, 2]], max_nodes=7) == [range(0, 10, 2)]
    with pytest.raises(MalformedValue, match="large"):
        read(["l", ["r", 0, 10, 2]], max_nodes=6)
    assert len(read(["r", 0, 999_999, 1])) == 999_999
    assert len(read(["r", 999_999, 0, -1])) == 999_999
    with pytest.raises(MalformedValue, match="large"):
        read(["r", 0, 2_000_000, 1])
    values.check(["r", 0, 2_000_000, 1])


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (["e", "Decimal", "1" * 4300], Decimal("1" * 4300)),
        (["e", "Decimal", "1E+6144"], Decimal("1E+6144")),
        (["e", "Decimal", "1E-6144"], Decimal("1E-6144")),
        (["e", "Decimal", "-12.5"], Decimal("-12.5")),
        (["e", "Fraction", 3, 6], Fraction(1, 2)),
        (["e", "timedelta", 1, 2, 3], timedelta(1, 2, 3)),
        (["e", "deque", 2, 5, 6], deque([5, 6], 2)),
        (["e", "deque", 0], deque(maxlen=0)),
        (["e", "datetime", "2020-01-02T03:04:05.000006+07:00"],
         datetime(2020, 1, 2, 3, 4, 5, 6, timezone(timedelta(hours=7)))),
    ],
)  # fmt: skip
def test_extended_forms_that_are_just_right(form: Any, value: Any) -> None:
    found = read(form)
    assert found == value and type(found) is type(value)
    assert is_equal(form, value) and not is_equal(form, [value])


@pytest.mark.parametrize(
    "form",
    [
        ["e", "Decimal", "1" * 4301],
        ["e", "Decimal", "1E+6145"],
        ["e", "Decimal", "1E-6145"],
        ["e", "Decimal", "1", "1"],
        ["e", "Fraction", 1],
        ["e", "Fraction", 1, 2, 3],
        ["e", "timedelta", 1, 2, 3, 4],
        ["e", "timedelta", 1, 2.0, 3],
        ["e", "deque", 1, 2, 3],
        ["e", "deque", True, 1],
        ["e", "datetime", 5],
        ["e", "datetime", "2020-01-02", "2020-01-02"],
        ["e", "date", "2020-01-02" + "0" * 40],
        ["e", "int", "int"],
        ["c", 1.0],
        ["c", 1.0, 1.0, 1.0],
        ["c", 1.0, 1],
        ["r", 1, 2],
        ["r", 1, 2, 3, 4],
        ["r", 1, 2, 1.0],
        ["u", "61", "61"],
        ["u"],
        ["u", "ff"],
        ["u", 61],
        ["b", "6g"],
        ["i", "1", "1"],
        ["i", ""],
        ["f", "infinity"],
        ["d", 1, 2, 3],
        ["s", ["d"]],
        ["d", ["l", 1], 2],
        [None],
        [["l"]],
    ],
)
def test_forms_that_are_not_quite_right_are_refused(form: Any) -> None:
    for act in (read, values.check):
        with pytest.raises(MalformedValue):
            act(form)


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (["f", "nan"], "nan"),
        (["f", "-inf"], "-inf"),
        (["i", "-ff"], "-255"),
        (["b", "00ff"], "b'\\x00\\xff'"),
        (["u", "c3a9"], "'é'"),
        (["c", ["f", "inf"], 2.0], "(inf+2j)"),
        (["r", 1, ["i", "9"], 3], "range(1, 9, 3)"),
        (["s", ["s", 1], ["t", ["s", 2]]], "{frozenset({1}), (frozenset({2}),)}"),
        (["d", ["s", 1], ["s", 2]], "{frozenset({1}): {2}}"),
        (["t", ["s"], ["l"]], "(set(), [])"),
    ],
)
def test_forms_by_hand(form: Any, value: str) -> None:
    assert repr(read(form)) in (value, "{(frozenset({2}),), frozenset({1})}")


def test_a_text_for_people_has_question_marks_for_what_nothing_can_encode() -> None:
    assert read_text(["u", "61eda080"]) == "a?"
    assert read_text("plain") == "plain"
    for form in (5, None, ["b", "61"], ["i", "1"], ["l", "a"]):
        with pytest.raises(MalformedValue):
            read_text(form)
    values.check(["u", "61eda080"])


def test_comparing_refuses_what_is_no_value_and_finds_keys_by_what_they_are() -> None:
    for form in (["d", 1], ["d", 1, 2, 3], ["x"], [], ["s", ["h", 1]], ["e", "nothing"]):
        with pytest.raises(MalformedValue):
            is_equal(form, {1: 2} if form[:1] == ["d"] else {1})
    assert is_equal(["d", 1, ["l", 2], ["t", 3], "x"], {(3,): "x", 1: [2]})
    assert not is_equal(["d", 1, ["l", 2], ["t", 3], "x"], {(3,): [2], 1: "x"})
    assert not is_equal(["d", 1, 2], {1: 2, 3: 4}) and not is_equal(["d", 1, 2, 3, 4], {1: 2})
    assert not is_equal(["s", ["l"]], {1}) and not is_equal(["s", ["d"]], frozenset({1}))
    assert is_equal(["s", ["s", 1]], frozenset({frozenset({1})}))
    assert not is_equal(["l", 1, 2], [1]) and not is_equal(["l"], [1]) and not is_equal(["t", 1], [1])


def test_near_is_relative_above_1_and_absolute_below() -> None:
    for expected, away, is_near in (
        (0.5, 0.25, True), (0.5, 0.2501, False), (-0.5, -0.25, True),
        (8.0, 2.0, True), (8.0, 2.001, False), (-8.0, 2.0, True), (1.0, 0.25, True),
    ):  # fmt: skip
        assert is_equal(json.loads(json.dumps(expected + away)), expected, tolerance=0.25) is is_near
    huge = 1 << (1 << 16)
    assert is_equal(["i", f"{huge // 2:x}"], Decimal(huge // 2)) and not is_equal(["i", f"{huge:x}"], Decimal(huge))
