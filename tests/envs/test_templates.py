"""Prompt templates of the user."""

import pytest

from collm.envs import Message
from collm.envs.templates import templates

AGENTS = ("builder_0", "builder_1")


def made(given):
    return templates(given, AGENTS, {"target": True, "turns": False, "words": True})


def opening(given, agent="builder_0"):
    return made(given).opening(agent, {"target": "{a} tower", "turns": 3}, "OWN {target}")


def test_the_agents_template_comes_before_the_common_one_and_the_environments_prompt():
    for given, expected in [
        (None, "OWN {target}"),
        (
            {"prompt": 'Baue {target} in {turns} Zügen, {"x": [{}]}, {0}.'},
            'Baue {a} tower in 3 Zügen, {"x": [{}]}, {0}.',
        ),
        ({"prompt": "all {target}", "builder_1": "one {target}"}, "all {a} tower"),
        ({"prompt": "all {target}", "builder_0": "one {target}"}, "one {a} tower"),
        ({"builder_1": "one {target}"}, "OWN {target}"),
        ({"prompt": "Please.\n{default}"}, "Please.\nOWN {target}"),
    ]:
        assert opening(given) == [Message("user", expected)]
        system = {"system": "Be {brief}.", **(given or {})}  # comes first and has no placeholders
        assert opening(system) == [Message("system", "Be {brief}."), Message("user", expected)]


def test_a_folder_holds_a_file_per_name(tmp_path):
    (tmp_path / "prompt.txt").write_text("Ü {target}", encoding="utf-8")
    (tmp_path / "system.txt").write_text("Be {brief}.", encoding="utf-8")
    (tmp_path / "notes.md").write_text("{", encoding="utf-8")
    for given in (tmp_path, str(tmp_path)):
        assert made(given) == made({"prompt": "Ü {target}", "system": "Be {brief}."})
    with pytest.raises(FileNotFoundError, match="none"):
        made(tmp_path / "none")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"writer_0": "{target}"}, "for some of .'builder_0', 'builder_1', 'prompt', 'system'., got .'writer_0'."),
        ({"prompt": "Build."}, "'prompt'.*{target} or {words} or {default}"),
        ({"prompt": "{turns} turns"}, "'prompt'.*{target} or {words} or {default}"),
        ({"prompt": "{target} {goal}"}, "{goal}.*{target}, {turns}, {words}, {default}"),
        ({"prompt": 3}, "must be a text, got 3"),
        ({}, "got none"),
    ],
)
def test_wrong_templates_are_refused_before_the_first_episode(given, message):
    with pytest.raises(ValueError, match=message):
        made(given)
