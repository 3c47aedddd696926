"""Commands on pages: the parser accepts all; those of the README, the tutorials and some other pages run."""

import re
import shlex
import shutil
import subprocess
from contextlib import nullcontext, redirect_stdout
from glob import glob
from io import StringIO
from itertools import product
from pathlib import Path

import pytest
import tyro
import yaml
from chat_server import ChatServer
from fences import fenced
from transformers import AutoTokenizer

from collm.agents.language.reward_model import RewardModel
from collm.agents.tiny import TINY_DIRECTORY
from collm.benchmarks.cli import main

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TUTORIALS = [ROOT / "README.md", ROOT / "docs" / "index.md"]
TUTORIALS += [page for folder in ("learn", "extend") for page in sorted((ROOT / "docs" / folder).glob("*.md"))]
# Further pages whose commands need no other packages than the tests.
OF_OTHERS = [ROOT / "docs" / "use_with" / name for name in ("chat_servers.md", "pettingzoo.md")]
SERVER = "http://localhost:8000"
MEANT = {"RUN": "runs/first", "DIR": "runs/first", "TEAM": "tiny", "ID": "collm/MiniBuild-v0", "OTHER": "elsewhere"}
MEANT |= {"ALGORITHM": "maac"}
"""Values of placeholders; FOLDER is a run on some pages and a model on others."""
SMALLER = {  # start of a command -> options with which the command takes seconds instead of minutes
    "collm benchmark credit": "--algorithms maac --games TinyHanabi --seeds 0 --num-updates 2",
    "collm benchmark replication": "--envs both --algorithms MAAC --environment-steps 384 --config eval_num_samples=2",
    "collm benchmark smoke": "--seeds 0 --workers 1",
    "collm benchmark suite": "--seeds 0 --environment-steps 200 --workers 1 --config MAAC.critic_warmup=1",
    "collm check collm/MiniBuild-v0 --red-team": "--updates 1",  # after 100 it fails, as the page says
    "collm check collm/MiniWriting-v2 --red-team": "--updates 1",
    "collm demo": "--updates 3",
    "collm envs --scores": "--episodes 1",
    "collm evaluate --model": "--episodes 2 --max-new-tokens 8",
    "collm evaluate runs": "--episodes 2",
    "collm evaluate --suite core --model": "--env collm/MiniBuild-v0",
    "collm train magrpo": "--num-updates 3 --rollout-buffer-size 8 --eval-num-samples 2",
    "collm train marloo": "--num-updates 3 --rollout-buffer-size 8 --eval-num-samples 2",
    "collm train ": "--num-updates 3 --critic-warmup 1 --rollout-buffer-size 8 --eval-num-samples 2",
}


def commands(page: Path) -> list[str]:
    """Return the calls of collm and make on a page, once each, in order, without bare names and calls with "..."."""
    text = page.read_text().replace("\\\n", " ")  # a backslash continues a call on the next line
    lines = [line for block in re.findall(r"(?ms)^```(?:sh|console)\n(.*?)^```$", text) for line in block.splitlines()]
    prose = re.sub(r"(?ms)^```.*?^```$", "", text).replace("\n", " ")
    inline = re.findall(r"`(collm [^`\s]+ [^`]+|make [^`]+)`", prose)
    shown = dict.fromkeys(re.sub(r"\s+#.*|^torchrun .*? -m ", "", line) for line in (*lines, *inline))
    return [line for line in shown if re.match(r"(collm|make) ", line) and not re.search("…|[.]{3}", line)]


def filled(command: str) -> str:
    folder = "models/tiny" if "--model FOLDER" in command else "runs/first"
    return re.sub(r"\b[A-Z]{2,}\b", lambda found: {**MEANT, "FOLDER": folder}.get(found[0], found[0]), command)


class Understood(Exception):
    """Raised after the parser has accepted a call."""


CALLS = sorted({filled(command) for page in PAGES for command in commands(page) if command.startswith("collm ")})
OPTIONS = re.findall(r"`(--[^`]+)`", (ROOT / "README.md").read_text().replace("\n", " "))
"""Options of `collm train` that the README shows without the command."""


@pytest.fixture
def taken(monkeypatch, tmp_path):
    """Function that returns True if the parser accepts a call, or if the call succeeds without parsing."""
    parse = tyro.cli
    settings = tmp_path / "run.toml"  # another call on the page writes this file
    settings.write_text('env = "collm/MiniBuild-v0"')

    def only_parse(*args, **options):
        parse(*args, **options)
        raise Understood

    def ask(call):
        try:
            return _status(call.replace("--config run.toml", f"--config {settings}")) == 0
        except Understood:
            return True

    monkeypatch.setattr(tyro, "cli", only_parse)
    return ask


def test_calls_and_options_that_pages_show_are_ones_that_the_command_takes(taken, capsys):
    assert [call for call in CALLS if not taken(call)] == [], capsys.readouterr().err
    wrong = ["collm train maac --env collm/MiniBuild-v0 --num-updats 3", "collm reports runs/first"]
    assert [call for call in wrong if taken(call)] == []
    calls = [f"collm train maac --env collm/MiniWriting-v2 {options}" for options in OPTIONS]
    assert [call for call in calls if not taken(call)] == [], capsys.readouterr().err
    assert any(options.startswith("--model ") for options in OPTIONS)


def test_the_program_of_a_sweep_is_one_that_the_command_takes(taken, capsys):
    sweeps = [yaml.safe_load(text) for page in PAGES for text in fenced(page.read_text(), "yaml sweep")]
    assert sweeps
    for sweep in sweeps:
        trials = product(*(named["values"] for named in sweep["parameters"].values()))
        given = [
            [f"--{name}={each}" for name, each in zip(sweep["parameters"], trial, strict=True)] for trial in trials
        ]
        for options in given:
            words = sweep["command"][:-1] + options
            assert sweep["command"][-1] == "${args}" and taken(shlex.join(words)), capsys.readouterr().err


def test_every_target_of_make_that_a_page_shows_is_there():
    targets = {
        word for page in PAGES for line in commands(page) if line.startswith("make ") for word in line.split()[1:2]
    }
    assert {"demo", "test", "docs"} <= targets
    done = subprocess.run(["make", "-n", *sorted(targets)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "collm demo" in done.stdout


def test_every_python_block_of_a_tutorial_is_marked_to_run():
    """tests/test_docs.py runs marked blocks."""
    assert [page for page in TUTORIALS if re.search(r"(?m)^```python$", page.read_text())] == []


@pytest.fixture(scope="module")
def first_run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("first") / "run"
    small = shlex.split(SMALLER["collm train "])
    assert main(["train", "maac", "--env", "collm/MiniWriting-v2", "--out", str(folder), *small]) == 0
    return folder


SHOWN = {page: [each for each in commands(page) if each.startswith("collm ")] for page in (*TUTORIALS, *OF_OTHERS)}
WITH_COMMANDS = [page for page, shown in SHOWN.items() if shown]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_run_one_after_the_other(page, first_run, tmp_path, monkeypatch, capfd):
    shown = [filled(command) for command in SHOWN[page]]
    monkeypatch.chdir(tmp_path)
    shutil.copytree(TINY_DIRECTORY, tmp_path / "models" / "tiny")
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")  # in a clone
    if not any("--out runs/first" in command for command in shown):
        shutil.copytree(first_run, tmp_path / "runs" / "first")
    if any("--reward-model judge" in command for command in shown):  # built by the page's Python code
        tokenizer = AutoTokenizer.from_pretrained(TINY_DIRECTORY)
        RewardModel.small(tokenizer, hidden_dim=32, num_layers=1).save(tmp_path / "judge")
    if any("my_module:" in command for command in shown):
        (tmp_path / "my_module.py").write_text(fenced(page.read_text(), "python run")[0])
        monkeypatch.syspath_prepend(tmp_path)
    for suite in fenced(page.read_text(), "toml suite"):
        (tmp_path / "suite.toml").write_text(suite)
    with ChatServer(lambda body: "wall wood") as server:
        for command in shown:
            smaller = next((SMALLER[start] for start in sorted(SMALLER, reverse=True) if command.startswith(start)), "")
            is_smaller = not any(option in command for option in ("--help", " > "))
            call = f"{command} {smaller if is_smaller else ''}"
            assert _status(call.replace(SERVER, server.url.removesuffix("/v1"))) == 0, (call, capfd.readouterr().err)


def _status(call: str) -> int:
    """Run a call as a shell does: with patterns of files, and "> FILE" at its end."""
    call, _, file = call.strip().partition(" > ")
    words = [path for word in shlex.split(call)[1:] for path in (sorted(glob(word)) or [word])]
    output = StringIO()
    try:
        with redirect_stdout(output) if file else nullcontext():
            status = main(words)
    except SystemExit as end:
        return int(end.code or 0)
    if file:
        Path(file).write_text(output.getvalue())
    return status
