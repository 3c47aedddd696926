"""Generated pages are up to date: `python docs/pages.py` writes them."""

import re

import pytest

from collm.envs import EnvSpec, specs
from collm.envs.sandbox import SandboxError
from docs.pages import FOLDER, NAMESPACE, arguments, described, history, index, page, short_name

OWN = [spec for spec in specs() if spec.id.startswith(NAMESPACE)]


@pytest.mark.parametrize(
    "spec", [pytest.param(spec, id=spec.id, marks=[pytest.mark.slow] if "ClassEval" in spec.id else []) for spec in OWN]
)
def test_the_page_of_an_environment_is_true(spec):
    written = (FOLDER / f"{short_name(spec)}.md").read_text()
    without = re.sub(r"(?s)## Degenerate players\n.*?(?=## )", "", written)
    assert without != written and without == expected(spec, has_exploits=False)


@pytest.mark.slow
@pytest.mark.parametrize("spec", OWN, ids=lambda spec: spec.id)
def test_the_degenerate_players_of_a_page_are_true(spec):
    assert (FOLDER / f"{short_name(spec)}.md").read_text() == expected(spec, has_exploits=True)


def expected(spec, has_exploits):
    try:
        return page(spec, has_exploits)
    except SandboxError as error:
        pytest.skip(f"its programs cannot be run here: {error}")


def test_the_list_of_environments_is_true_and_every_argument_is_explained():
    assert (FOLDER / "README.md").read_text() == index(OWN)
    rows = [(spec.id, *row.split(" | ")) for spec in OWN for row in arguments(spec).splitlines()[2:] if "|" in row]
    assert [row[:2] for row in rows if len(row[3].strip(" |")) < 5 or row[3].startswith("see ")] == []
    docstring = "A game.\n\nArgs:\n    size: of it,\n        1 | 2.\n    **kwargs: others\n\nRaises:\n    Error: if"
    assert described(docstring) == {"size": "of it, 1 \\| 2."}
    with pytest.raises(ValueError, match=r"collm/MiniBuild-v1 .*HISTORY"):
        history(EnvSpec("collm/MiniBuild-v1", "a:b"))
