"""Fuzz tests of messages from the solver, for each place that reads untrusted bytes."""

from __future__ import annotations

import datetime
import json
import random
from collections import Counter, deque
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collm.envs.sandbox import Limits, values
from collm.envs.sandbox.exchange import calls, relay
from collm.envs.sandbox.runtime import codec, protocol, solution
from collm.envs.sandbox.runtime.stand_in import Exchange, Function, Instance, Match, Method, Stream
from collm.envs.sandbox.values import MalformedValue
from collm.envs.sandbox.workers.run import Closed, Ending, Flooded

FRAMES_PER_EXAMPLE = 25
KINDS = "v x c over back load ready end do return raise gone plan result done".split()
TAGS = "l t s d u i f c b r e h k y m g id".split()
NAMES = "Decimal Fraction datetime date time timedelta deque Counter OrderedDict int type".split()
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "x", "6", "61", "eda080", "nan", "inf", "ff" * 30, "1E+9", "2024-01-01", *NAMES, *TAGS])
    | st.text(max_size=4)
    | st.sampled_from([{}, {"": 1}, {"l": ["l"]}])
)
WIRES = st.recursive(
    SCALARS,
    lambda inner: st.builds(
        lambda tag, parts: [tag, *parts],
        st.sampled_from(TAGS) | st.sampled_from(["l", "t", "d", "e"]) | SCALARS,
        st.lists(inner, max_size=4),
    ),
    max_leaves=8,
)
HANDLES = st.builds(lambda tag, number: [tag, number], st.sampled_from(["h", "k", "y", "g"]), st.integers(-1, 4))
MESSAGES = st.builds(
    lambda kind, parts: [kind, *parts],
    st.sampled_from(KINDS[:5]) | st.sampled_from(KINDS) | SCALARS,
    st.lists(WIRES | HANDLES, max_size=4) | st.lists(WIRES | HANDLES, min_size=1, max_size=1),
)
DATA = st.recursive(
    st.none()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from([True, 10**30, Decimal("1.5"), Fraction(1, 3), datetime.date(2024, 1, 1), range(3), b"x", int]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.lists(inner, max_size=3).map(deque)
        | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=5,
).map(lambda value: json.loads(codec.encode(value)))
SPANS = st.just(["t", ["t", 0, 1]])
TEXTS = st.text(max_size=3).map(lambda text: json.loads(codec.encode(text)))
BASES = st.lists(st.sampled_from(["KeyError", "StopIteration", "x"]), max_size=3)
FAILURES = st.tuples(TEXTS, TEXTS, st.none(), BASES)
WELL_FORMED = st.one_of(
    st.tuples(st.just("v"), DATA),
    st.tuples(st.just("v"), DATA | HANDLES),
    st.tuples(st.just("v"), DATA, st.integers(0, 1), DATA),
    st.tuples(st.just("v"), st.tuples(st.just("m"), st.lists(DATA, max_size=2).map(lambda w: ["t", *w]), SPANS, DATA)),
    st.tuples(st.just("c"), st.integers(0, 3), DATA),
    st.tuples(st.just("x"), FAILURES),
    st.tuples(st.just("over"), DATA),
    st.tuples(st.just("back"), st.integers(0, 3), st.lists(DATA, max_size=2).map(lambda w: ["l", *w]), st.just(["d"])),
    st.tuples(st.just("end"), st.text(max_size=3), st.text(max_size=3)),
)
BODIES = (WELL_FORMED | WELL_FORMED | MESSAGES).map(lambda message: json.dumps(message).encode())
BODIES |= MESSAGES.map(str).map(str.encode) | st.binary(max_size=30)
VALUES = st.tuples(st.just("v"), DATA).map(lambda message: json.dumps(message).encode())
ANSWERS = st.lists(VALUES | BODIES, min_size=FRAMES_PER_EXAMPLE, max_size=FRAMES_PER_EXAMPLE)
CONVERSATIONS = st.lists(BODIES, min_size=FRAMES_PER_EXAMPLE, max_size=FRAMES_PER_EXAMPLE)
OPERATIONS = "call make getattr getitem next len list str repr eq isinstance update".split()
PLAIN = (bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict, range, type, type(None))
PLAIN += (Decimal, Fraction, datetime.date, datetime.time, datetime.timedelta, deque)
LIMITS = Limits(cpu_s=1, wall_s=30, output_kb=64, max_deaths=3)


fuzzed = pytest.mark.parametrize("num_frames", [300, pytest.param(40_000, marks=pytest.mark.slow)])


def examples(num_frames: int) -> settings:
    return settings(
        max_examples=num_frames // FRAMES_PER_EXAMPLE,
        deadline=None,
        database=None,
        derandomize=num_frames < 10_000,  # the quick tests must not differ from run to run
        suppress_health_check=list(HealthCheck),
    )


class Scripted:
    def __init__(self, bodies: list[bytes], cause: int = protocol.BY_ITSELF) -> None:
        self.bodies = list(bodies)
        self.has_sent_too_much = False
        self.last_length = 0
        self.ending = Ending(cause, 0, 0.01)
        self.num_starts = 0

    @property
    def plan(self) -> Any:
        return type("Plan", (), {"isolation": "A"})

    def start(self, limits: Limits) -> Scripted:
        self.num_starts += 1
        if self.num_starts > 1 or not self.bodies:
            self.bodies.insert(0, b'["ready"]')
        return self

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def close(self) -> None:
        return None

    def send(self, message: Any) -> None:
        return None

    def collect(self, max_messages: int) -> tuple[Ending, list[bytes], bool]:
        return self.ending, self.bodies[:max_messages], len(self.bodies) > max_messages

    def receive(self) -> list[Any]:
        if not self.bodies:
            raise Closed
        body = self.bodies.pop(0)
        if len(body) > LIMITS.output_kb << 10:
            raise Flooded
        self.last_length = len(body)
        return values.parse(body)

    def finish(self, *, patience_s: float | None = None) -> Ending:
        return self.ending


@fuzzed
def test_answers_of_calls_are_a_report_whatever_is_said(num_frames: int) -> None:
    @examples(num_frames)
    @given(ANSWERS, st.integers(0, 6), st.sampled_from([protocol.BY_ITSELF, protocol.WALL_LIMIT]))
    def law(bodies: list[bytes], num_calls: int, cause: int) -> None:
        for count in (num_calls, len(bodies)):
            answers = calls.answer(Scripted(bodies[:count], cause), LIMITS, {}, num_calls)
            report = answers.report()
            seen["value"] += sum(outcome.has_returned for outcome in report.outcomes)
            assert len(answers.results) == len(report.outcomes) == num_calls
            assert report.status != "ok" or bodies[count - 1 : count] == [b'["end","",""]'] or not report.failure
            json.dumps([repr(report.values), str(report.failure), report.stdout, report.stderr]).encode()
            assert all(is_plain(value) for value in report.values)

    seen: Counter[str] = Counter()
    law()
    assert seen["value"] > num_frames / 1000, "hardly any got through"


def is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(is_plain(part) for item in value.items() for part in item)
    if isinstance(value, list | tuple | set | frozenset | deque):
        return all(map(is_plain, value))
    return type(value) in PLAIN or isinstance(value, datetime.datetime)


def lived(bodies: list[bytes]) -> tuple[Scripted, relay._Solver]:
    run = Scripted([b'["ready"]', *bodies])
    return run, relay._Solver(run, LIMITS, "", 1)  # type: ignore[arg-type]


@fuzzed
def test_the_relay_lets_through_only_replies_that_fit_the_question(num_frames: int) -> None:
    @examples(num_frames)
    @given(CONVERSATIONS, st.lists(st.sampled_from(OPERATIONS), min_size=FRAMES_PER_EXAMPLE), st.randoms())
    def law(bodies: list[bytes], operations: list[str], rng: random.Random) -> None:
        run, solver = lived(bodies)
        is_asked_back = False
        for operation in operations[:FRAMES_PER_EXAMPLE]:
            question = ["do", operation, ["l", ["g", "f"], ["l", 1], 5], ["d"]]
            reply = solver.perform(["return", 5] if is_asked_back and rng.random() < 0.5 else question)
            is_asked_back = reply[0] == "back"
            assert reply[0] in ("v", "x", "c", "over", "back", "gone")
            seen[reply[0]] += 1
            if reply[0] != "gone":
                read_by_the_tests(reply)
            else:  # a new solver sends the rest, so that a malformed message does not hide later ones
                run, solver = lived(run.bodies)
        solver.stop()

    seen: Counter[str] = Counter()
    law()
    assert all(seen[kind] > num_frames / 500 for kind in ("v", "x", "back", "gone")), "hardly any got through"


class Telling(Exchange):
    def __init__(self, reply: list[Any]) -> None:
        super().__init__(-1)
        self.reply = reply

    def _ask(self, message: str) -> list[Any]:
        if self.reply[0] == "x":
            raise solution.rebuilt(self.reply[1])
        return self.reply


def read_by_the_tests(reply: list[Any]) -> None:
    """Tests receive plain data, or stand-ins with a minimal interface."""
    if reply[0] == "back":
        return
    exchange = Telling(reply)
    asking = (Function, lambda it: it(1)), (Instance, lambda it: it.name), (Instance, lambda it: it[3]), (Stream, next)
    for stand_in, ask in asking:
        argument = [3]
        try:
            got = ask(stand_in(exchange, ["h", 1]))
        except Exception as error:
            assert type(error) is not StopIteration or reply[0] == "over"
            continue
        assert is_plain(got) or type(got) in (Method, Stream, Match), (reply, got)
        assert argument == [3]


@fuzzed
def test_hostile_bytes_are_read_or_refused_and_nothing_else(num_frames: int) -> None:
    @examples(num_frames)
    @given(CONVERSATIONS)
    def law(bodies: list[bytes]) -> None:
        for body in bodies:
            try:
                message = values.parse(body)
            except MalformedValue:
                continue
            for part in message[1:]:
                for expected in (1, 1.5, "x", [1], {1: [2]}, {3}, None, Decimal(1), deque([1]), int):
                    refused_or(lambda wire, expected=expected: values.is_equal(wire, expected, 1e-6), part)
                refused_or(values.check, part)
                refused_or(values.read_text, part)
                refused_or(calls.read_failure, part)
                if refused_or(values.read, part):
                    assert is_plain(values.read(part))

    law()


def refused_or(act: Any, wire: Any) -> bool:
    try:
        act(wire)
    except MalformedValue:
        return False
    return True
