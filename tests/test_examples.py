"""Examples contain commands to install and run them, have pages, and run in the environments of their libraries."""

import ast
import importlib.util
import re
import sys
import warnings
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# Examples that need no other library, with the pages that link to them; other tests run them.
ALONE = {"maac_single_file.py": "concepts.md", "advantage_alignment.py": "credit.md"}


def learned(test):
    """Mark a slow test that trains in environments of other libraries, which may warn."""
    return pytest.mark.slow(pytest.mark.filterwarnings("ignore")(test))


@pytest.fixture(scope="module")
def all_trials():
    """List of the scripts and tests that `make test-interop` runs."""
    spec = importlib.util.spec_from_file_location("interop_trials", ROOT / "tests" / "interop" / "run.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["interop_trials"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module.TRIALS
    del sys.modules["interop_trials"]


@pytest.fixture(scope="module")
def trials(all_trials):
    return {trial.script: trial for trial in all_trials if trial.script}


def test_an_example_says_how_it_is_installed_and_run():
    silent = []
    for path in EXAMPLES:
        docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
        commands = [line.strip() for line in docstring.splitlines() if line.startswith("    ")]
        has_install = any(command.startswith("pip install ") for command in commands)
        has_run = f"python examples/{path.name}" in {re.split(" http| --", command)[0] for command in commands}
        silent += [] if has_install and has_run else [path.name]
    assert silent == []


def test_every_example_has_its_trial_with_pinned_versions_and_its_tests(trials, all_trials):
    assert {path.name for path in EXAMPLES} == set(trials) | set(ALONE)
    needed = {file for trial in trials.values() for file in (trial.requirements, ROOT / trial.tests)}
    assert [file for file in sorted(needed) if not file.exists()] == []
    for trial in all_trials:
        pinned = {line.partition("==")[0].lower() for line in trial.requirements.read_text().splitlines()}
        assert not trial.tests or pinned >= {"pytest", "pluggy", "iniconfig", "pygments", "packaging"}


def test_pages_and_trials_of_libraries_belong_together(trials, all_trials):
    names = {"sb3": "stable_baselines3"}
    library_of = {name: names.get(each.library, each.library) for name, each in trials.items()}
    pages = {name: ROOT / "docs" / "use_with" / f"{library}.md" for name, library in library_of.items()}
    pages |= {name: ROOT / "docs" / "learn" / page for name, page in ALONE.items()}
    assert [name for name, page in pages.items() if f"(../../examples/{name})" not in page.read_text()] == []
    libraries = {names.get(trial.library, trial.library) for trial in all_trials}
    assert {path.stem for path in (ROOT / "docs" / "use_with").glob("*.md")} == libraries


def test_every_program_on_the_pages_of_libraries_is_run(all_trials):
    """Programs run in their library's environment, here if marked "python run", or in separate tests with a server."""
    run_there = {trial.page for trial in all_trials}
    for page in (ROOT / "docs" / "use_with").glob("*.md"):
        kinds = set(re.findall(r"(?m)^```python *(.*)$", page.read_text()))
        assert "interop" not in kinds or page.name in run_there
        assert "" not in kinds or page.name in {"chat_servers.md", "openenv.md"}


def test_code_with_ray_starts_its_own_cluster():
    """`ray.init` without an address joins any recorded cluster, even a dead one."""
    folders = (ROOT / "examples", ROOT / "docs")
    shown = [path for folder in folders for ending in ("md", "py") for path in folder.rglob(f"*.{ending}")]
    calls = {path: re.findall(r"ray\.init\((.*)", path.read_text()) for path in shown}
    assert sum(map(len, calls.values())) >= 2
    assert not [path for path, found in calls.items() if not all("address=" in call for call in found)]


@pytest.fixture(scope="module")
def example():
    @cache
    def load(name):
        spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@learned
def test_a_toy_text_game_of_gymnasium_is_learned(example):
    before, after = example("gymnasium_ippo").main(updates=50, seed=0)
    assert before < 0.1 and after > 0.4


@pytest.mark.parametrize(
    ("game", "needs", "gain"), [("tic-tac-toe", "pygame", 0.3), ("archers", "pygame", 0.4), ("spread", "mpe2", 4.0)]
)
@learned
def test_a_game_of_pettingzoo_is_learned(game, needs, gain, example):
    for name in ("pygame", needs):
        pytest.importorskip(name)
    before, after = example("pettingzoo_ippo").main(game, seed=0)
    assert after > before + gain


@learned
def test_a_language_model_learns_a_text_game_of_textarena(example):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("textarena")
    before, after = example("textarena_ippo").main(updates=40, seed=0)
    assert before < 0.75 and after > before + 0.1
