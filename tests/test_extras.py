import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import collm
from collm import _extras
from collm._extras import explained, install_command, require

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("src", "envs", "agents", "algorithms", "benchmarks")

BARE = """
import sys
from importlib.abc import MetaPathFinder

class Bare(MetaPathFinder):
    '''An installation without extras.'''

    ABSENT = {absent!r}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.ABSENT:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        return None

sys.meta_path.insert(0, Bare())
{program}
"""
HEAVY = (*("torch", "transformers", "tokenizers", "peft", "safetensors", "accelerate", "scipy", "matplotlib"), "PIL")
OPTIONAL = (*HEAVY, "datasets", "pyarrow", "pandas", "wandb", "tensorboard", "tomli")


def bare(program: str, absent=OPTIONAL) -> subprocess.CompletedProcess[str]:
    code = BARE.format(absent=set(absent), program=program)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_all_environments_play_without_any_extra():
    ids = [each.id for each in collm.envs.specs() if each.id.startswith("collm/")]
    done = bare(f"""
import collm
for name in {ids!r}:
    env = collm.make(name)
    env.reset(seed=0)
    while env.agents:
        env.step({{agent: env.reference_reply(agent) for agent in env.agents}})
    env.close()
print("played")
""")
    assert done.stdout == "played\n" and len(ids) >= 13, done.stderr


@pytest.mark.parametrize("program", ["import collm; collm.train", "from collm.agents import load_policies"])
def test_training_without_its_packages_names_the_extra(program):
    last = bare(program, HEAVY).stderr.strip().splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: ") and last.endswith(install_command("train"))


@pytest.mark.parametrize(
    ("command", "absent", "extra"),
    [
        (["train", "maac", "--env", "collm/MiniBuild-v0"], HEAVY, "train"),
        (["demo"], HEAVY, "train"),
        (["report", "runs"], OPTIONAL, "train"),
        (["play", "collm/MiniBuild-v0", "--policy", "model"], OPTIONAL, "train"),
        (["check", "collm/MiniBuild-v0", "--red-team"], OPTIONAL, "train"),
        (["doctor", "train", "maac", "--env", "collm/MiniBuild-v0"], OPTIONAL, "train"),
    ],
)
def test_a_command_says_in_one_line_which_extra_it_needs(command, absent, extra):
    done = bare(f"from collm.benchmarks.cli import main; sys.exit(main({command!r}))", absent)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ") and line.endswith(install_command(extra))


COMMANDS = [
    (["envs"], "collm/MiniBuild-v0"),
    (["play", "collm/MiniBuild-v0"], "return: builder_0 1.000"),
    (["check", "collm/MiniBuild-v0", "--exploits", "--episodes", "1"], "keyword salad"),
    (["doctor"], "torch is not installed"),
]


@pytest.mark.parametrize(("command", "answer"), COMMANDS, ids=[command[0] for command, _ in COMMANDS])
def test_commands_that_train_nothing_need_no_extra(command, answer):
    absent = "for name in Bare.ABSENT: sys.modules[name] = None" if command == ["doctor"] else ""
    program = f"sys.meta_path.pop(0)\n{absent}\n" if absent else ""
    done = bare(f"{program}from collm.benchmarks.cli import main; sys.exit(main({command!r}))", {*OPTIONAL, "tomli_w"})
    assert done.returncode == 0 and answer in " ".join(done.stdout.replace("│", " ").split()), done.stderr


def test_hints_name_the_clone_the_extra_or_an_incomplete_installation(monkeypatch, tmp_path):
    require("json", "numpy")
    for name in ("antigravity_2", "mpe2", "collm.agnets"):  # unknown; of an extra for developers; a misspelled module
        assert explained(ModuleNotFoundError(f"No module named {name!r}", name=name)) is None
    error = explained(ModuleNotFoundError("No module named 'wandb.sdk'", name="wandb.sdk"))
    assert error is not None and error.name == "wandb.sdk"
    assert install_command("wandb") in str(error)
    *_, folder = install_command("train").split()
    assert folder.strip("'") == f"{ROOT}[train]" and (ROOT / "pyproject.toml").is_file()
    monkeypatch.setattr(_extras, "_ROOT", tmp_path)
    error = explained(ModuleNotFoundError("No module named 'collm.agents'", name="collm.agents"))
    assert error is not None and error.name == "collm.agents"
    assert "incomplete" in str(error) and "collm.agents" in str(error) and str(error).endswith(install_command())


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        (None, "git+https://example.org/collm"),
        ({"url": "file:///home/a%20b/collm.zip", "archive_info": {}}, "file:///home/a%20b/collm.zip"),
        ({"url": "file:///home/collm", "dir_info": {}}, "file:///home/collm"),
        ({"url": "https://a.org/collm", "vcs_info": {"vcs": "git", "commit_id": "1"}}, "git+https://a.org/collm@1"),
    ],
)
def test_outside_of_a_clone_the_recorded_source_is_installed(monkeypatch, tmp_path, origin, source):
    metadata = tmp_path / "collm-0.1.0.dist-info"
    metadata.mkdir()
    repository = "Project-URL: Repository, https://example.org/collm\n"
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: collm\nVersion: 0.1.0\n{repository}")
    if origin is not None:
        (metadata / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(_extras, "_ROOT", tmp_path)
    assert install_command("train") == f'pip install "collm[train] @ {source}"'
    assert install_command() == f'pip install "collm @ {source}"'


def test_no_hint_installs_by_the_name_alone():
    """collm is not on PyPI, so anyone could register this name there."""
    hint = re.compile(r"""pip install ["']?collm\b(?!(\[\w+\]|\{chosen\})? @)""")
    sources = [path for layer in LAYERS for path in (ROOT / layer).rglob("*.py")]
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    found = [str(path) for path in [*sources, *pages] if path.name != "CHANGELOG.md" and hint.search(path.read_text())]
    assert found == []
