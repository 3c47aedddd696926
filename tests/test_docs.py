"""Examples in docstrings, and Python blocks of pages that are marked "python run", run."""

import doctest
import importlib
import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest
from chat_server import ChatServer
from fences import fenced

from collm.benchmarks.comparison.suite import jobs, read_suite
from collm.envs.registration.registry import spec

LAYERS = ("envs", "agents", "algorithms", "benchmarks")
ROOT = Path(__file__).resolve().parent.parent
MADE = {"reference/settings.md", "reference/command.md", "changelog.md"}  # by docs/site/hooks.py
MODULES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))
EXAMPLES = [path for path in MODULES if ">>> " in path.read_text()]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def scripts() -> list:
    """Return the Python blocks marked to run, joined per page. From the first block marked "slow", the test is slow.

    Readers of the tutorial have run the first block of README in the same folder.
    """
    found = []
    start = fenced((ROOT / "README.md").read_text(), "python run slow")[0]
    for page in PAGES:
        blocks = re.findall(r"(?ms)^```python run( slow)?\n(.*?)^```$", page.read_text())
        quick = list(itertools.takewhile(lambda block: not block[0], blocks))
        name = str(page.relative_to(ROOT))
        if quick:
            found.append(pytest.param("\n".join(code for _, code in quick), id=name))
        if quick != blocks:
            script = "\n".join([start] * (page.name == "first_team.md") + [code for _, code in blocks])
            found.append(pytest.param(script, id=f"{name}, whole", marks=[pytest.mark.slow]))
    return found


@pytest.mark.parametrize("path", EXAMPLES, ids=str)
def test_the_examples_of_a_docstring_are_true(path):
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    result = doctest.testmod(importlib.import_module(f"collm.{name}"))
    assert result.attempted and not result.failed


@pytest.mark.parametrize("code", scripts())
def test_the_blocks_of_a_page_run_one_after_the_other(code, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_no_two_pages_write_to_one_folder():
    written = [
        folder
        for page in PAGES
        for folder in set(re.findall(r"""(?:--out |out=["'])(runs/[\w/-]+)""", page.read_text()))
        if page.parent.name == "learn" or page.name == "README.md"
    ]
    assert sorted(set(written)) == sorted(written)


def test_calls_of_make_that_need_data_of_others_give_arguments_that_the_environments_take():
    page = (ROOT / "docs" / "environments" / "writing.md").read_text()
    found = []
    for block in fenced(page, "python"):
        code = block.replace("from collm.envs import make", "")
        exec(code, {"make": lambda id, **kwargs: (spec(id).check(**kwargs), found.append((id, kwargs)))})
    assert [id for id, _ in found] == ["collm/TLDR-v2", *["collm/TLDR-v2", "collm/ArxivExpansion-v2"] * 2]
    for _, kwargs in found:
        assert kwargs["columns"] and kwargs["data"].keys() == {"train", "test"}


@pytest.mark.slow
def test_the_block_about_chat_servers_runs_with_one(tmp_path):
    page = (ROOT / "docs" / "use_with" / "chat_servers.md").read_text()
    (code,) = fenced(page, "python")
    with ChatServer(lambda body: "gate stone") as server:
        code = code.replace("http://localhost:8000", server.url.removesuffix("/v1"))
        test_the_blocks_of_a_page_run_one_after_the_other(code, tmp_path)


def test_a_suite_of_the_documentation_is_one(tmp_path):
    suites = [(page, text) for page in PAGES for text in fenced(page.read_text(), "toml suite")]
    assert suites
    for page, text in suites:
        path = tmp_path / f"{page.stem}.toml"
        path.write_text(text)
        assert jobs(read_suite(path)), page


def test_the_links_of_a_page_lead_somewhere():
    made = {ROOT / "docs" / each for each in MADE}
    links = [
        (page, page.parent / link)
        for page in PAGES
        for link in re.findall(r"\]\((?!https?://|mailto:|#)([^)#\s]+)", page.read_text())
    ]
    assert [f"{page.name}: {link}" for page, link in links if not link.exists() and link not in made] == []
    assert len(links) > 100


def test_links_to_lines_of_code_lead_to_the_code_that_they_name():
    wrong = []
    for page in PAGES:
        for label, path, line in re.findall(r"\[`([^`]+)`\]\(([^)#]+)#L(\d+)\)", page.read_text()):
            lines = (page.parent / path).read_text().splitlines()
            if label not in lines[int(line) - 1]:
                now = [number for number, text in enumerate(lines, start=1) if label in text]
                wrong.append(f"{page.name}: {label} is not in line {line} of {path}, but in {now}")
    assert wrong == []


def test_every_page_has_its_place_in_the_site():
    shown = set(re.findall(r"(?m)^ .*?([\w/]+\.(?:md|ipynb))$", (ROOT / "mkdocs.yml").read_text()))
    found = [page for ending in ("md", "ipynb") for page in (ROOT / "docs").rglob(f"*.{ending}")]
    pages = {str(page.relative_to(ROOT / "docs")) for page in found}
    assert shown == pages | MADE
