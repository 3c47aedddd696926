"""The runner of other libraries' trainings reports what it saw, and fails where a return did not rise."""

from __future__ import annotations

import importlib.util
import sys

import pytest


@pytest.fixture
def interop(root, tmp_path, monkeypatch):
    """The runner, with examples that are made up, in this very Python."""
    spec = importlib.util.spec_from_file_location("interop_run", root / "tests" / "interop" / "run.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "interop_run", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    (tmp_path / "examples").mkdir()
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(module, "environment", lambda *wanted: sys.executable)
    return module


@pytest.mark.parametrize(
    ("code", "has_risen"),
    [
        ("print('loading'); print('x PPO on a/B-v0: 0.250 -> 0.500')", True),
        ("print('x PPO on a/B-v0: -0.100 -> -0.200')", False),
        ("print('x PPO on a/B-v0: 0.250 -> 0.500'); raise SystemExit(3)", False),
        ("print('x on a/B-v0: 0.250 -> 0.500'); print('x on a/C-v0: 0.500 -> 0.500')", False),
        ("raise RuntimeError('no')", False),
    ],
)
def test_a_training_counts_if_its_return_rose_and_it_ended_well(interop, tmp_path, code, has_risen):
    (tmp_path / "examples" / "x.py").write_text(code)
    assert interop.run(interop.Trial("x", "x.py")).has_risen is has_risen


def test_a_training_without_a_result_names_its_log(interop, tmp_path):
    (tmp_path / "examples" / "x.py").write_text("raise SystemExit(3)")
    assert interop.run(interop.Trial("x", "x.py")).text == "exit status 3 without a result; see x.log"


def test_a_training_with_several_results_is_a_row_each(interop, tmp_path):
    (tmp_path / "examples" / "x.py").write_text("print('x on a: 0.250 -> 0.500'); print('x on b: -2.00 -> -1.50')")
    rows = interop.table([interop.run(interop.Trial("x", "x.py"))]).splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["x", "x"] and "ok" in rows[0] and "b: -2.00 -> -1.50" in rows[1]


def test_a_training_counts_only_if_the_tests_with_its_library_pass(interop, tmp_path):
    (tmp_path / "examples" / "x.py").write_text("print('x PPO on a/B-v0: 0.250 -> 0.500')")
    (tmp_path / "fails.py").write_text("def test_nothing():\n    assert False\n")
    result = interop.run(interop.Trial("x", "x.py", "fails.py"))
    assert (result.text, result.has_risen) == ("fails.py fails; see x.log", False)


@pytest.mark.parametrize(("test", "passes"), [("assert True", True), ("assert False", False)])
def test_a_library_without_a_training_counts_by_its_tests(interop, tmp_path, test, passes):
    (tmp_path / "tested.py").write_text(f"def test_it():\n    {test}\n")
    assert interop.run(interop.Trial("x", tests="tested.py")).has_risen is passes


def test_every_trial_runs_something_and_its_requirements_are_there(interop, root):
    for trial in interop.TRIALS:
        assert trial.script or (root / trial.tests).is_file()
        assert (root / "tests" / "interop" / trial.requirements.name).is_file()


def test_every_requirement_names_one_version(root):
    for file in (root / "tests" / "interop").glob("*.txt"):
        lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
        assert lines and all("==" in line for line in lines), file


@pytest.mark.parametrize(("code", "is_well"), [("print('x on a/B-v0: 0.250')", True), ("print('x: 0.250')", False)])
def test_an_example_that_only_plays_counts_by_its_return(interop, tmp_path, code, is_well):
    (tmp_path / "examples" / "x.py").write_text(code)
    assert interop.run(interop.Trial("x", "x.py", trains=False)).has_risen is is_well


def test_an_example_that_asks_is_given_a_chat_server_that_answers(interop, tmp_path):
    (tmp_path / "examples" / "x.py").write_text(
        "import json, sys, urllib.request\n"
        "body = json.dumps({'model': sys.argv[2], 'messages': []}).encode()\n"
        "said = json.load(urllib.request.urlopen(f'{sys.argv[1]}/chat/completions', body))\n"
        "print(said['model'], 'on', said['choices'][0]['message']['content'].replace(' ', '_') + ': 1.0')\n"
    )
    result = interop.run(interop.Trial("x", "x.py", trains=False, asks=True))
    assert (result.text, result.has_risen) == ("constant on desk_wood: 1.0", True)


@pytest.mark.parametrize(("block", "passes"), [("assert open('x', 'w').write('y')", True), ("assert False", False)])
def test_a_library_counts_only_if_the_blocks_of_its_page_run(interop, tmp_path, block, passes):
    (tmp_path / "examples" / "x.py").write_text("print('x PPO on a/B-v0: 0.250 -> 0.500')")
    (tmp_path / "docs" / "use_with").mkdir(parents=True)
    page = f"```python interop\nprint('first')\n```\nwords\n```python interop\n{block}\n```\n```python\nnot run\n```\n"
    (tmp_path / "docs" / "use_with" / "x.md").write_text(page)
    result = interop.run(interop.Trial("x", "x.py", page="x.md"))
    assert result.has_risen is passes and result.text.startswith("x PPO" if passes else "block 2 of its page fails")
    assert not (tmp_path / "x").exists()  # what a block writes lies in a folder of its own
