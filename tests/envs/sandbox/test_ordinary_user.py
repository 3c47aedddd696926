"""The attacks as an unprivileged user, if the tests run as root."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from collm.envs import sandbox

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the tests already run as an ordinary user")

USER = 1000
QUICK_FILES = ("test_verdict_attacks", "test_leak_attacks", "test_host_attacks")
RUNNER = """
import json, os, secrets, sys, tempfile
sys.path.insert(0, sys.argv[1])
from sandbox import Case, Limits, Sandbox
attacks = json.load(sys.stdin)
assert os.geteuid() == 1000
folder = tempfile.mkdtemp()
canary = os.path.join(folder, "canary")
secret = secrets.token_hex(16)
with open(canary, "w") as file: file.write(secret)
os.chmod(canary, 0o666)
header = f"CANARY = {canary!r}; NONCE = {secret[:8]!r}; PORT = 1; ABSTRACT = 'x'\\n"
failed = []
for tier in sys.argv[2].split(","):
    with Sandbox(1, isolation=tier) as sandbox:
        workers = sandbox.process_ids
        for name, code in attacks.items():
            answers = [secrets.token_hex(16) for _ in range(3)]
            cases = [Case((number,), answer) for number, answer in enumerate(answers)]
            verdict = sandbox.check(header + code, "f", cases, limits=Limits(cpu_s=0.3, wall_s=20, memory_mb=96))
            failure = verdict.report.failure
            honest = sandbox.check("def f(x): return x", "f", [Case((1,), 1)]).all_passed
            intact = open(canary).read() == secret and os.listdir(folder) == ["canary"]
            leaked = any(answer in repr(verdict) for answer in (secret, *answers) if answer not in str(cases))
            opened = failure is not None and failure.kind == "AssertionError"
            if any(verdict.passed) or not honest or not intact or leaked or opened or sandbox.process_ids != workers:
                failed.append([tier, name, str(failure)])
print(json.dumps(failed))
"""


def attacks_of(name: str) -> dict[str, str]:
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"attacks_of_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.QUICK if name == "test_resource_attacks" else module.ATTACKS


@pytest.fixture(scope="module")
def package() -> Iterator[Path]:
    source = Path(sandbox.__file__).parent
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        shutil.copytree(source, Path(folder, "sandbox"), ignore=shutil.ignore_patterns("__pycache__"))
        yield Path(folder)


@pytest.fixture(scope="module")
def interpreter() -> str:
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    for candidate in (os.path.realpath(sys.executable), "/usr/bin/python3", "/usr/local/bin/python3"):
        probe = [*as_user(), candidate, "-c", "import sys; print(sys.version_info >= (3, 10))"]
        try:
            if subprocess.run(probe, capture_output=True, text=True, cwd="/").stdout == "True\n":
                return candidate
        except OSError:
            continue
    pytest.skip("no Python from 3.10 on that an ordinary user can access")


def as_user() -> list[str]:
    return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs"]


@pytest.mark.parametrize("tier", ["A", "B", "C"])
@pytest.mark.parametrize("file", [*QUICK_FILES, pytest.param("test_resource_attacks", marks=pytest.mark.slow)])
def test_no_attack_succeeds_for_an_ordinary_user(package: Path, interpreter: str, file: str, tier: str) -> None:
    attacks = attacks_of(file)
    attacks.pop("resolve and fetch", None)  # needs a listener
    if tier == "C" and file == "test_resource_attacks":
        pytest.skip("the same process limits as in the other tiers")
    command = [*as_user(), interpreter, "-I", "-c", RUNNER, str(package), tier]
    ran = subprocess.run(command, input=json.dumps(attacks), capture_output=True, text=True, timeout=200, cwd="/")
    if "SandboxUnavailable" in ran.stderr:
        pytest.skip(ran.stderr.splitlines()[-1])
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == []
