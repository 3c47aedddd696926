import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Literal, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collm._errors import UserError
from collm._ranges import Checked, Count, Finite, InRange, Positive, Share, allowed
from collm.agents.config import ModelConfig
from collm.agents.numeric.config import NetworkConfig
from collm.algorithms import algorithm_specs


@dataclass(frozen=True, kw_only=True)
class Sizes(Checked):
    count: Count = 1
    share: Share = 0.5
    limit: Positive | None = None
    rates: Mapping[str, Positive] = field(default_factory=dict)
    widths: tuple[Count, ...] = ()
    mode: Literal["a", "b"] = "a"
    is_on: bool = False
    half_open: Annotated[float, InRange(0, below=1)] = 0.0
    shift: Finite = 0.0


@dataclass(frozen=True, kw_only=True)
class OtherDefaults(Sizes):
    count: int = 5
    limit: float | None = 2.0


@dataclass(frozen=True, kw_only=True)
class OtherType(Sizes):
    mode: str = "c"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"count": 0}, "count must be a whole number of at least 1, got 0"),
        ({"count": "3"}, "count must be a whole number of at least 1, got '3'"),
        ({"count": 1.0}, "got 1.0"),
        ({"count": True}, "got True"),
        ({"count": 10**400}, "count must be at most 9007199254740992"),
        ({"share": 10**400}, "share must be at most 9007199254740992"),
        ({"share": 1.5}, "share must be a finite number from 0 to 1, got 1.5"),
        ({"share": math.nan}, "got nan"),
        ({"limit": 0}, "limit must be a finite number above 0, or None, got 0"),
        ({"limit": math.inf}, "got inf"),
        ({"rates": {"x": -1.0}}, "rates['x'] must be a finite number above 0, got -1.0"),
        ({"rates": [1.0]}, "rates must be a table of names and values, got [1.0]"),
        ({"widths": (3, 0)}, "widths[1] must be a whole number of at least 1, got 0"),
        ({"widths": 3}, "widths must be a list, got 3"),
        ({"mode": "c"}, "mode must be one of 'a', 'b', got 'c'"),
        ({"is_on": 1}, "is_on must be True or False, got 1"),
        ({"shift": -math.inf}, "shift must be a finite number, got -inf"),
        ({"half_open": 1.0}, "half_open must be a finite number of at least 0 and below 1, got 1.0"),
    ],
)
def test_a_value_outside_its_range_or_type_is_refused_with_both(given, message):
    with pytest.raises(UserError) as error:
        Sizes(**given)
    assert message in str(error.value)


@given(st.floats() | st.integers())
def test_a_share_is_held_exactly_where_it_lies_in_its_interval(value):
    if 0 <= value <= 1:
        assert Sizes(share=value).share == value
    else:
        with pytest.raises(UserError, match="share"):
            Sizes(share=value)


def test_another_default_keeps_the_range_and_another_type_does_not():
    with pytest.raises(UserError, match="count must be a whole number of at least 1"):
        OtherDefaults(count=0)
    with pytest.raises(UserError, match="count"):
        replace(Sizes(), count=-1)
    assert OtherDefaults(limit=None).limit is None
    assert OtherType().mode == "c"


@pytest.mark.parametrize(
    "kind", [ModelConfig, NetworkConfig, *(spec.config for spec in algorithm_specs())], ids=lambda kind: kind.__name__
)
def test_every_number_among_the_settings_has_a_range(kind):
    bare = get_type_hints(kind)
    free = {"template_kwargs", "collector_options"}  # any value that a chat template or Ray reads
    without = [
        each.name
        for each in fields(kind)
        if re.search(r"\b(int|float)\b", str(bare[each.name])) and "InRange" not in str(allowed(kind)[each.name])
    ]
    assert set(without) - free == set()
