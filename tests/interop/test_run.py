"""The runner of other libraries' trainings reports their returns, and fails if a return did not rise."""

from __future__ import annotations

import importlib.util
import sys

import pytest

ROSE = "print('loading'); print('x PPO on a/B-v0: 0.250 -> 0.500')"
ASKS = """
import json, sys, urllib.request
body = json.dumps({'model': sys.argv[2], 'messages': []}).encode()
answer = json.load(urllib.request.urlopen(f'{sys.argv[1]}/chat/completions', body))
print(answer['model'], 'on', answer['choices'][0]['message']['content'].replace(' ', '_') + ': 1.0')
"""


@pytest.fixture
def interop(root, tmp_path, monkeypatch):
    """The runner with a folder of made-up examples; it uses this Python."""
    spec = importlib.util.spec_from_file_location("interop_run", root / "tests" / "interop" / "run.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "interop_run", module)  # dataclasses look up their module
    spec.loader.exec_module(module)
    (tmp_path / "examples").mkdir()
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(module, "environment", lambda *wanted: sys.executable)
    return module


@pytest.mark.parametrize(
    ("code", "options", "has_risen", "text"),
    [
        (ROSE, {}, True, "x PPO on a/B-v0: 0.250 -> 0.500"),
        ("print('x PPO on a/B-v0: -0.100 -> -0.200')", {}, False, "x PPO on a/B-v0: -0.100 -> -0.200"),
        (f"{ROSE}; raise SystemExit(3)", {}, False, "x PPO on a/B-v0: 0.250 -> 0.500"),
        (
            "print('x on a: 0.2 -> 0.5'); print('x on b: 0.5 -> 0.5')",
            {},
            False,
            "x on a: 0.2 -> 0.5\nx on b: 0.5 -> 0.5",
        ),
        ("raise SystemExit(3)", {}, False, "exit status 3 without a result; see x.log"),
        (ROSE, {"tests": "test_it.py"}, False, "test_it.py fails; see x.log"),
        ("print('x on a/B-v0: 0.250')", {"trains": False}, True, "x on a/B-v0: 0.250"),
        ("print('x: 0.250')", {"trains": False}, False, "exit status 0 without a result; see x.log"),
        (ASKS, {"trains": False, "asks": True}, True, "constant on desk_wood: 1.0"),
    ],
)
def test_an_example_counts_if_its_return_rose_and_it_ended_well(interop, tmp_path, code, options, has_risen, text):
    (tmp_path / "examples" / "x.py").write_text(code)
    (tmp_path / "test_it.py").write_text("def test_it():\n    assert False\n")
    found = interop.run(interop.Trial("x", "x.py", **options))
    assert (found.has_risen, found.text) == (has_risen, text)
    assert len(interop.table([found]).splitlines()) == 1 + len(text.splitlines())


@pytest.mark.parametrize("passes", [True, False])
def test_a_library_without_an_example_counts_by_its_tests(interop, tmp_path, passes):
    (tmp_path / "tested.py").write_text(f"def test_it():\n    assert {passes}\n")
    assert interop.run(interop.Trial("x", tests="tested.py")).has_risen is passes


@pytest.mark.parametrize(("block", "passes"), [("assert open('x', 'w').write('y')", True), ("assert False", False)])
def test_a_library_counts_only_if_the_blocks_of_its_page_run(interop, tmp_path, block, passes):
    (tmp_path / "examples" / "x.py").write_text(ROSE)
    (tmp_path / "docs" / "use_with").mkdir(parents=True)
    page = f"```python interop\nprint('first')\n```\nwords\n```python interop\n{block}\n```\n```python\nnot run\n```\n"
    (tmp_path / "docs" / "use_with" / "x.md").write_text(page)
    result = interop.run(interop.Trial("x", "x.py", page="x.md"))
    assert result.has_risen is passes and result.text.startswith("x PPO" if passes else "block 2 of its page fails")
    assert not (tmp_path / "x").exists()  # each block runs in a temporary folder


def test_every_trial_has_something_to_run_and_pinned_requirements(interop, root):
    for trial in interop.TRIALS:
        assert trial.script or (root / trial.tests).is_file()
        file = root / "tests" / "interop" / trial.requirements.name
        lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
        assert lines and all("==" in line for line in lines), file
