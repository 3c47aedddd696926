"""Templates in place of an environment's own prompts."""

import pytest

from collm.envs.core import Message
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
