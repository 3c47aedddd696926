import importlib
import subprocess
import sys
from importlib.metadata import version

import pytest

import collm
from collm.benchmarks.cli import COMMANDS

FRONT = ("Team", "__version__", "check_env", "evaluate", "load_team", "make", "register", "register_algorithm", "train")


def imported_by(code: str) -> set[str]:
    heavy = ("torch", "transformers", "tyro", "gymnasium", "datasets", "peft", "scipy", "matplotlib")
    script = f"import sys\n{code}\nprint('imported:', *[name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize("package", ["collm", "collm.agents", "collm.algorithms", "collm.envs"])
def test_every_exported_name_exists_and_an_unknown_one_is_an_attribute_error(package):
    module = importlib.import_module(package)
    assert set(FRONT) <= {*collm.__all__} & {*dir(collm)} and collm.__version__ == version("collm")
    assert len(module.__all__) >= len(FRONT) - 1
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = module.nothing_of_the_kind


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import collm, collm.agents, collm.algorithms", set()),
        ("from collm.agents import ModelConfig, NetworkConfig, register_policy", {"gymnasium"}),
        ("from collm.algorithms import MAACConfig, algorithm_specs, register_algorithm; algorithm_specs()", set()),
        ("import collm; collm.make('collm/MiniBuild-v0')", {"gymnasium"}),
        ("from collm.benchmarks.cli import main; main(['train'])", set()),
        ("from collm.benchmarks.cli import main; main(['train', 'mack'])", set()),
        ("from collm.benchmarks.cli import main; main(['train', 'iac', '--env', 'a/B-v0'])", {"tyro", "gymnasium"}),
    ],
)
def test_nothing_heavy_is_imported_before_it_is_used(code, expected):
    assert imported_by(code) <= expected


HELPED = [[name] for name in COMMANDS if name != "train"]
HELPED += [["train", "maac"], ["benchmark", "credit"]]
WRONG = [[name, "nowhere"] for name in ("resume", "evaluate", "chat", "replay", "report", "benchmark")]
WRONG += [["crossplay", "nowhere", "nobody"], ["export", "nowhere", "models"], ["push", "nowhere", "a/b"]]
WRONG += [["train", "maac", "--env", "collm/MiniBuild-v0", "--env-kwargs", "max_turn=4"]]


def test_help_and_errors_of_arguments_need_no_torch():
    calls = [f"assert main({words!r}) == 2" for words in WRONG]
    calls += [f"try: main({[*words, '--help']!r})\nexcept SystemExit: pass" for words in HELPED]
    found = imported_by("\n".join(["from collm.benchmarks.cli import main", *calls]))
    assert not found & {"torch", "transformers", "peft", "scipy", "matplotlib", "datasets"}
    code = "from collm.benchmarks.cli import main\ntry: main(['train', 'maac', '--help'])\nexcept SystemExit: pass"
    assert "gymnasium" not in imported_by(code)


SCRIPT = """
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typing_extensions import assert_type

import collm
from collm.agents import ModelConfig, Policy
from collm.algorithms import MAACConfig, Run
from collm.envs import TextParallelEnv

env = collm.make("collm/MiniBuild-v0")
observations, infos = env.reset(seed=0)
replies: dict[str, str] = {agent: env.reference_reply(agent) for agent in env.agents}
first: str = observations["builder_0"].messages[0].content
assert_type(env, TextParallelEnv)
assert_type(collm.make("collm/MiniBuild-v0", partners={"builder_1": "reference"}).possible_agents, Any)
assert_type(collm.make("gymnasium/CartPole-v1").possible_agents, Any)
rules: list[str] = collm.check_env("collm/MiniBuild-v0")
config = MAACConfig(num_updates=3)
model = ModelConfig(max_new_tokens=8)
run: Run = collm.train("maac", env=env, num_updates=3)
team: collm.Team = collm.load_team("runs/somewhere")
policies: Mapping[str, Policy] = team
actions: dict[str, Any] = team.act(observations, infos, greedy=True)
interval: float = team.evaluate(num_episodes=4).team_return.low
folder: Path = team.save("models")
value: float = run.evaluate().team_return.value
collm.nothing_of_the_kind
"""


@pytest.mark.slow
@pytest.mark.parametrize("build", ["build_wheel", "build_editable"])
def test_a_type_checker_sees_the_package_from_outside_of_the_tree(root, tmp_path, build):
    """Install a wheel made by the build backend into a virtual environment. mypy runs outside of this environment."""
    pytest.importorskip("setuptools")
    bare, source, wheels = tmp_path / "bare", tmp_path / "source", tmp_path / "wheels"
    python = str(bare / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    subprocess.run(["git", "clone", "--quiet", "--shared", str(root), str(source)], check=True)
    wheels.mkdir()
    code = f"import setuptools.build_meta as backend; backend.{build}({str(wheels)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True)
    install = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*install, *map(str, wheels.glob("*.whl"))], check=True)
    script = tmp_path / "outside" / "script.py"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    mypy = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--ignore-missing-imports"]
    done = subprocess.run(
        [*mypy, "--python-executable", python, script], cwd=script.parent, capture_output=True, text=True
    )
    errors = [line for line in done.stdout.splitlines() if "script.py" in line and "error" in line]
    assert len(errors) == 1 and "nothing_of_the_kind" in errors[0], done.stdout
