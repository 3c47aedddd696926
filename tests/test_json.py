import json
import os
from pathlib import Path

import pytest

from collm._errors import UserError
from collm._json import MAX_DEPTH, parse_json, read_json

FILE = Path("some.json")


def nested(depth: int) -> str:
    return '{"a": ' * depth + "1" + "}" * depth


def test_an_object_is_read():
    assert parse_json('{"a": [1, {"b": "]]]"}]}', FILE) == {"a": [1, {"b": "]]]"}]}
    assert parse_json(nested(MAX_DEPTH), FILE)["a"]
    row = {"a": [[1], [2]] * 1_000, "b": "[" * 1_000}
    assert parse_json(json.dumps(row), FILE) == row


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 900, 5_000, 200_000])
def test_deeper_nesting_is_refused_with_its_file_and_line(tmp_path, depth):
    with pytest.raises(UserError, match=rf"some\.json, line 7: .* {MAX_DEPTH} deep"):
        parse_json(nested(depth), FILE, 7)
    (tmp_path / "x.json").write_text(f'{{"a": {"[" * depth}{"]" * depth}}}')
    with pytest.raises(UserError, match=r"x\.json"):
        read_json(tmp_path / "x.json")


def test_a_pipe_or_a_device_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("pipe", "device"):
        with pytest.raises(UserError, match=name):
            read_json(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "missing")
