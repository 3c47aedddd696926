"""Maps in the fog, and replies that are JSON."""

import json
import time

from hypothesis import given
from hypothesis import strategies as st

from collm.envs.games.fog import action, cell, message, num_words, seen_from, straight_walk, walk

KEYS = frozenset({"comm", "path"})


def test_an_action_is_the_last_object_with_a_known_key():
    for reply, found in [
        ('{"comm": "hi"}', {"comm": "hi"}),
        ('I think {so}: ```json\n{"path": [[1, 2]]}\n``` {"comm": 1}', {"comm": 1}),
        ('{"comm": 1} {"other": 1}', {"comm": 1}),
        ('{"comm": {"path": 3}} as in {x: 1}', {"comm": {"path": 3}}),
        ("{'comm': '', 'path': [[1, 2]]}", {"comm": "", "path": [[1, 2]]}),
        ("{'comm': \"don't\", 'path': [(1, 2.0), (+3, 04),],}", {"comm": "don't", "path": [[1, 2.0], [3, 4]]}),
        ("{'comm': 'it\\'s \"so\"', 'path': None}", {"comm": 'it\'s "so"', "path": None}),
        ('{"comm": "a", "path": [[1, 2],],}', {"comm": "a", "path": [[1, 2]]}),
        ('{"comm": "as told", "path": [[x, z], [x, z]]} so: {"comm": "b", "path": [],}', {"comm": "b", "path": []}),
        *((text, {}) for text in ("", "{" * 5000, '["comm"]', "{'comm': __import__('os')}", "{'comm': 1 for x in y}")),
        *((text, {}) for text in ("{'comm': " * 3000, "{'comm': " + "[" * 9000 + "]" * 9000 + "}")),
        *((text, {}) for text in ('{"comm": ' + "[" * 4000, '{"comm": 1' + "0" * 5000 + "}")),
    ]:
        assert action(reply, KEYS) == found


def test_cells_walks_and_what_is_seen_by_hand():
    for path, walked in [
        ([[1, 1], [2, 2], [2, 3]], ((1, 1), (2, 2), (2, 3))),
        ([[1, 1], [1, 1], [0, 0]], ((1, 1), (1, 1), (0, 0))),
        ([[2, 2]], ((1, 1), (2, 2))),
        ([[2, 2], [3, 3], [4, 4], [5, 5]], ((1, 1), (2, 2), (3, 3), (4, 4))),
        ([[1, 1], [1.0, 2.0]], ((1, 1), (1, 2))),
        ([[1, 1], [2, 1], [3, 1], [4, 1], "far"], ((1, 1), (2, 1), (3, 1), (4, 1))),
        *((path, ((1, 1),)) for path in ([[3, 3]], [[1, 1], [3, 1]], [[1, 1], [1, 0], [1, -1]], "north", [])),
    ]:
        assert walk(path, (1, 1), width=6, depth=6, max_steps=3) == walked
    one_two = [[1, 2], [1, "2", 3], "(1, 2)", "1,2", [1.0, 2.0]]
    none = [[1], [1.5, 2], [float("inf"), 2], [float("nan"), 2], [True, 2], {"x": 1}, None]
    assert [cell(value) for value in one_two] == [(1, 2)] * 5 and [cell(value) for value in none] == [None] * 7
    assert cell({"x": 1, "z": -2}) == (1, -2) and cell(["3.0", 2]) == (3, 2)
    assert straight_walk((0, 0), (3, 1), None) == ((0, 0), (1, 1), (2, 1), (3, 1))
    assert straight_walk((0, 0), (3, 1), 2) == ((0, 0), (1, 1), (2, 1))
    assert walk([[x, 0] for x in range(6)], (0, 0), width=6, depth=1, max_steps=None)[-1] == (5, 0)
    assert seen_from([(0, 0)], 1, 5, 5) == {(0, 0), (1, 0), (0, 1), (1, 1)}
    assert len(seen_from([(2, 2), (3, 2)], 1, 9, 9)) == 12


def test_a_message_is_one_readable_line_and_the_work_on_a_hostile_reply_is_bounded():
    assert message("a\nb\ud800c") == "a b c"
    assert message("go\u2028Probed: 2 1 Y\x85\u2029\x0c\x1c.") == "go Probed: 2 1 Y    ."
    assert message("a\u202eb\u2066c\u200f") == "a b c"
    assert message("a" + chr(0x200C) + "b") == "a" + chr(0x200C) + "b"  # Persian cannot be written without it
    assert message({"x": 1}) == '{"x": 1}'
    assert message({}) == message([]) == message(None) == ""
    assert len(message("long " * 500)) <= 400
    assert num_words("go to (3, 4)!") == 8
    pieces = ['{"comm":', '{"comm":[', "{", "{'comm':", '{"comm":"', "{'comm': [(", "{\"comm\":{'path':"]
    for piece in pieces:
        start = time.process_time()
        action(piece * (100_000 // len(piece)), KEYS)
        assert time.process_time() - start < 1, piece
    assert action('{"comm": {' * 100 + '{"path": [[1, 2]]}', KEYS) == {"path": [[1, 2]]}


scraps = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["x", "z", "comm"]), inner),
    max_leaves=8,
)


@given(scraps)
def test_no_scrap_of_json_is_an_error(value):
    place = cell(value)
    assert place is None or len(place) == 2
    assert walk(value, (0, 0), 3, 3, 2)[0] == (0, 0)
    assert "\n" not in message(value)
    assert isinstance(action(json.dumps(value), KEYS), dict)
