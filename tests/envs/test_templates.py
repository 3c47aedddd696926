"""Templates in place of an environment's own prompts."""

import pytest

from collm.envs import Message
from collm.envs.templates import templates

AGENTS = ("builder_0", "builder_1")


def made(given):
    return templates(given, AGENTS, {"target": True, "turns": False})


def opening(given, agent="builder_0"):
    return made(given).opening(agent, {"target": "{a} tower", "turns": 3}, "OWN")


def user(text):
    return [Message("user", text)]


def test_without_templates_the_own_prompt_is_read():
    assert opening(None) == user("OWN")


def test_a_template_is_filled_and_neither_other_braces_nor_what_fills_it_are_read_as_places():
    given = {"prompt": 'Baue {target} in {turns} Zügen, {"x": [{}]}.'}
    assert opening(given) == user('Baue {a} tower in 3 Zügen, {"x": [{}]}.')


def test_an_agents_own_template_counts_before_the_common_one():
    given = {"prompt": "all {target}", "builder_1": "one {target}"}
    assert opening(given) == user("all {a} tower") and opening(given, "builder_1") == user("one {a} tower")


def test_an_agent_without_a_template_reads_the_own_prompt():
    assert opening({"builder_1": "one {target}"}) == user("OWN")


def test_a_system_prompt_stands_before_the_own_one_as_it_is():
    assert opening({"system": "Be {brief}."}) == [Message("system", "Be {brief}."), *user("OWN")]


def test_the_own_prompt_can_be_wrapped():
    assert opening({"prompt": "Please.\n{default}"}) == user("Please.\nOWN")


def test_a_folder_holds_a_file_per_name(tmp_path):
    (tmp_path / "prompt.txt").write_text("Baue {target}", encoding="utf-8")
    (tmp_path / "system.txt").write_text("Kurz.", encoding="utf-8")
    (tmp_path / "notes.md").write_text("{", encoding="utf-8")
    assert opening(tmp_path) == [Message("system", "Kurz."), *user("Baue {a} tower")]
    assert opening(str(tmp_path)) == opening(tmp_path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"writer_0": "{target}"}, "for some of .'builder_0', 'builder_1', 'prompt', 'system'., got .'writer_0'."),
        ({"prompt": "Build."}, "does not tell the task; give it {target} or {default}"),
        ({"prompt": "{turns} turns"}, "does not tell the task"),
        ({"prompt": "{target} {goal}"}, "a place {goal}; filled are only {target}, {turns}, {default}"),
        ({"prompt": 3}, "must be a text, got 3"),
        ({}, "got none"),
    ],
)
def test_what_could_not_be_filled_is_refused_before_the_first_episode(given, message):
    with pytest.raises(ValueError, match=message):
        made(given)


def test_a_folder_that_is_not_there_is_refused():
    with pytest.raises(FileNotFoundError, match="no folder"):
        made("/no/such/folder")


FIELDS = {"task": True, "words": True, "name": False}
WRITERS = ("writer_0", "writer_1")


def test_a_template_is_filled_and_an_agent_without_one_reads_the_environments_own():
    found = templates({"writer_0": "{name}, tell {task}. {name}!", "system": "Be {brief}."}, WRITERS, FIELDS)
    fields = {"task": "{name} and {words}", "words": "", "name": "Ada"}
    system = Message("system", "Be {brief}.")
    assert found.opening("writer_0", fields, "own") == [system, Message("user", "Ada, tell {name} and {words}. Ada!")]
    assert found.opening("writer_1", fields, "own {task}") == [system, Message("user", "own {task}")]
    assert templates(None, WRITERS, FIELDS).opening("writer_0", fields, "own") == [Message("user", "own")]


def test_a_folder_is_a_mapping(tmp_path):
    (tmp_path / "writer_1.txt").write_text("Ü {words}", encoding="utf-8")
    (tmp_path / "system.txt").write_text("S")
    (tmp_path / "README.md").write_text("not a prompt")
    for given in (tmp_path, str(tmp_path)):
        assert templates(given, WRITERS, FIELDS) == templates({"writer_1": "Ü {words}", "system": "S"}, WRITERS, FIELDS)


def test_braces_that_are_no_place_stay():
    text = 'Answer as {"a": 1}, {} or {0}: {task}'
    (message,) = templates({"writer_0": text}, WRITERS, FIELDS).opening("writer_0", {"task": "t"}, "")
    assert message.content == 'Answer as {"a": 1}, {} or {0}: t'


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "got none"),
        ({"editor_0": "{task}"}, r"some of \['writer_0', 'writer_1', 'prompt', 'system'\], got \['editor_0'\]"),
        ({"writer_0": "{task} {post}"}, r"has a place \{post\}; filled are only \{task\}, \{words\}, \{name\}"),
        ({"writer_0": "{name}"}, r"does not tell the task; give it \{task\} or \{words\}"),
    ],
)
def test_a_prompt_that_cannot_be_read_is_refused(given, complaint):
    with pytest.raises(ValueError, match=complaint):
        templates(given, WRITERS, FIELDS)


def test_a_folder_of_that_path_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder of prompts at .*none"):
        templates(tmp_path / "none", WRITERS, FIELDS)
