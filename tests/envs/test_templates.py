"""Prompts of a user's own are checked before the first episode."""

import pytest

from collm.envs import Message
from collm.envs.templates import templates

FIELDS = {"task": True, "words": True, "name": False}
AGENTS = ("writer_0", "writer_1")


def test_a_template_is_filled_and_an_agent_without_one_reads_the_environments_own():
    found = templates({"writer_0": "{name}, tell {task}. {name}!", "system": "Be {brief}."}, AGENTS, FIELDS)
    fields = {"task": "{name} and {words}", "words": "", "name": "Ada"}
    system = Message("system", "Be {brief}.")
    assert found.opening("writer_0", fields, "own") == [system, Message("user", "Ada, tell {name} and {words}. Ada!")]
    assert found.opening("writer_1", fields, "own {task}") == [system, Message("user", "own {task}")]
    assert templates(None, AGENTS, FIELDS).opening("writer_0", fields, "own") == [Message("user", "own")]


def test_a_folder_holds_a_file_for_each_name(tmp_path):
    (tmp_path / "writer_1.txt").write_text("Ü {words}", encoding="utf-8")
    (tmp_path / "system.txt").write_text("S")
    (tmp_path / "README.md").write_text("not a prompt")
    for given in (tmp_path, str(tmp_path)):
        assert templates(given, AGENTS, FIELDS) == templates({"writer_1": "Ü {words}", "system": "S"}, AGENTS, FIELDS)


def test_braces_that_are_no_place_stay():
    text = 'Answer as {"a": 1}, {} or {0}: {task}'
    (message,) = templates({"writer_0": text}, AGENTS, FIELDS).opening("writer_0", {"task": "t"}, "")
    assert message.content == 'Answer as {"a": 1}, {} or {0}: t'


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "got none"),
        ({"editor_0": "{task}"}, r"some of \['writer_0', 'writer_1', 'system'\], got \['editor_0'\]"),
        ({"writer_0": "{task} {post}"}, r"has a place \{post\}; filled are only \{task\}, \{words\}, \{name\}"),
        ({"writer_0": "{name}"}, r"does not tell the task; give it \{task\} or \{words\}"),
    ],
)
def test_a_prompt_that_cannot_be_read_is_refused(given, complaint):
    with pytest.raises(ValueError, match=complaint):
        templates(given, AGENTS, FIELDS)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder of prompts at .*none"):
        templates(tmp_path / "none", AGENTS, FIELDS)
