"""Templates in place of an environment's own prompts."""

import pytest

from collm.envs.core import Message
from collm.envs.prompts import Prompts, fields_of

AGENTS = ("builder_0", "builder_1")
FIELDS = ("target", "turns")


def prompts(given):
    return Prompts(given, AGENTS, fields=FIELDS, needed=("target",))


def filled(given, agent="builder_0"):
    return prompts(given).filled(agent, "OWN", {"target": "{a} tower", "turns": 3})


def test_without_templates_the_own_prompt_is_read():
    assert filled(None) == "OWN"


def test_a_template_is_filled_and_what_fills_it_is_not_read_as_one():
    assert filled({"prompt": "Baue {target} in {turns} Zügen, {{x}}."}) == "Baue {a} tower in 3 Zügen, {x}."


def test_an_agents_own_template_counts_before_the_common_one():
    given = {"prompt": "all {target}", "builder_1": "one {target}"}
    assert (filled(given), filled(given, "builder_1")) == ("all {a} tower", "one {a} tower")


def test_a_system_prompt_alone_stands_before_the_own_one():
    assert filled({"system": "In {turns} turns."}) == [Message("system", "In 3 turns."), Message("user", "OWN")]


def test_the_own_prompt_can_be_wrapped():
    assert filled({"prompt": "Please.\n{default}"}) == "Please.\nOWN"


def test_a_folder_holds_a_file_per_name(tmp_path):
    (tmp_path / "prompt.txt").write_text("Baue {target}", encoding="utf-8")
    (tmp_path / "system.txt").write_text("Kurz.", encoding="utf-8")
    (tmp_path / "notes.md").write_text("{", encoding="utf-8")
    assert filled(tmp_path) == [Message("system", "Kurz."), Message("user", "Baue {a} tower")]
    assert filled(str(tmp_path)) == filled(tmp_path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"writer_0": "{target}"}, "'writer_0'; the names are system, prompt, builder_0, builder_1"),
        ({"builder_0": "{target}"}, "none for builder_1"),
        ({"prompt": "Build."}, r"lacks {target}"),
        ({"prompt": "{target} {goal}"}, "field 'goal'; the fields are default, target, turns"),
        ({"prompt": "{target.__class__}"}, "plain name"),
        ({"prompt": "{target[0]}"}, "plain name"),
        ({"prompt": "{}"}, "plain name"),
        ({"prompt": "{target"}, "is no template"),
        ({"prompt": 3}, "must map names to texts"),
        ({}, "prompts is empty"),
    ],
)
def test_what_could_not_be_filled_is_refused_before_the_first_episode(given, message):
    with pytest.raises(ValueError, match=message):
        prompts(given)


def test_a_folder_that_is_not_there_is_refused():
    with pytest.raises(FileNotFoundError, match="no folder"):
        prompts("/no/such/folder")


def test_fields_of_a_template_are_its_names_in_order():
    assert fields_of("{b} {a} {{c}} {b}") == ("b", "a")
