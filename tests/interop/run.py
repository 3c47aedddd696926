"""Train other libraries on collm's environments, and collm on other libraries' environments; print the returns.

    python tests/interop/run.py                  # all libraries
    python tests/interop/run.py torchrl rllib    # some

The libraries' requirements contradict each other, so each library has a virtual environment under `.interop/`.
`<library>.txt` lists all its packages with their versions; they are installed without dependencies, because some
libraries require another torch. For each library, its tests run first, then the blocks of its page in `docs/use_with/`
that are fenced as "python interop", then its example.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from chat_server import ChatServer
from fences import fenced

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / ".interop"
TORCH = "torch==2.13.0"
TIMEOUT_S = 1800
_RESULT = re.compile(r"^(?P<what>.+): (?P<before>-?[\d.]+) -> (?P<after>-?[\d.]+)$", re.MULTILINE)
_RETURN = re.compile(r"^.+ on \S+: -?[\d.]+$", re.MULTILINE)


@dataclass(frozen=True)
class Trial:
    """One library with its example, its tests, or both."""

    library: str
    script: str = ""
    tests: str = ""
    needs_torch: bool = True
    trains: bool = True  # False: the example prints one return per environment, which need not rise
    asks: bool = False  # True: the example's arguments are the URL and the model of a chat server
    page: str = ""  # page in docs/use_with/

    @property
    def requirements(self) -> Path:
        return ROOT / "tests" / "interop" / f"{self.library}.txt"

    def blocks(self) -> list[str]:
        """Programs of the page, each of which must run alone."""
        return fenced((ROOT / "docs" / "use_with" / self.page).read_text(), "python interop") if self.page else []


TRIALS = (
    Trial("torchrl", "torchrl_reinforce.py", "tests/agents/interop/test_torchrl.py", page="torchrl.md"),
    Trial("sb3", "sb3_ppo.py", page="stable_baselines3.md"),
    Trial("rllib", "rllib_ppo.py", page="rllib.md"),
    Trial("trl", "trl_grpo.py", "tests/agents/interop/test_trl.py", page="trl.md"),
    Trial("trl", "trl_self_play.py"),
    Trial("tianshou", "tianshou_dqn.py", page="tianshou.md"),
    Trial("benchmarl", "benchmarl_ippo.py"),
    Trial("agilerl", "agilerl_ippo.py", page="agilerl.md"),
    Trial("gymnasium", "gymnasium_ippo.py"),
    Trial("pettingzoo", "pettingzoo_ippo.py"),
    Trial("classics", tests="tests/envs/registration/test_classics.py"),
    Trial("textarena", "textarena_ippo.py", "tests/envs/views/test_textarena.py", page="textarena.md"),
    Trial("open_spiel", tests="tests/envs/views/test_open_spiel.py"),
    Trial("chat_servers", tests="tests/agents/language/test_chat_served.py"),
    Trial(
        "verifiers",
        "verifiers_eval.py",
        "tests/agents/interop/test_verifiers.py",
        needs_torch=False,
        trains=False,
        asks=True,
        page="verifiers.md",
    ),
    Trial(
        "inspect_ai",
        "inspect_ai_eval.py",
        "tests/agents/interop/test_inspect_ai.py",
        needs_torch=False,
        trains=False,
        asks=True,
        page="inspect_ai.md",
    ),
    Trial("openenv", "openenv_episode.py", "tests/agents/interop/test_openenv.py", needs_torch=False, trains=False),
    Trial(
        "skyrl",
        "skyrl_episode.py",
        "tests/agents/interop/test_skyrl.py",
        needs_torch=False,
        trains=False,
        page="skyrl.md",
    ),
    Trial("verl", tests="tests/agents/interop/test_verl.py", page="verl.md"),
)


@dataclass(frozen=True)
class Result:
    """Result of a trial."""

    trial: Trial
    text: str  # returns that the example printed, or the failure
    seconds: float  # of the example, or else of the tests and the page
    has_risen: bool  # without a training: True if all ended well


def environment(name: str, requirements: Path, *others: str) -> Path:
    """Return the Python of a virtual environment, which is created if it does not exist.

    Args:
        name: name of its folder.
        requirements: file with all packages to install.
        others: further packages.
    """
    folder = ENVIRONMENTS / name
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    wanted = "\n".join([*others, requirements.read_text()])
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [python, "-m", "pip", "install", "-q", "--no-compile", "--disable-pip-version-check"]
    torch = [other for other in others if other.startswith("torch==")]
    if torch:  # with its dependencies, which differ by machine
        subprocess.run([*install, "-c", requirements, *torch], check=True)
    rest = [other for other in others if other not in torch]
    subprocess.run([*install, "--no-deps", *rest, "-r", requirements, "-e", ROOT], check=True)
    stamp.write_text(wanted)
    return python


def run(trial: Trial) -> Result:
    """Install a library, and run its tests, its page and its example."""
    try:
        python = environment(trial.library, trial.requirements, *([TORCH] if trial.needs_torch else []))
    except subprocess.CalledProcessError as error:
        return Result(trial, f"does not install: {error}", 0.0, has_risen=False)
    log = ENVIRONMENTS / f"{trial.library}.log"
    seconds = 0.0
    if trial.tests:
        code, seconds, _ = logged([python, "-m", "pytest", "-q", trial.tests], log)
        if code:
            return Result(trial, f"{trial.tests} fails; see {log.relative_to(ROOT)}", seconds, has_risen=False)
    for number, block in enumerate(trial.blocks(), start=1):
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "block.py"
            script.write_text(block)
            code, more, _ = logged([python, script], log, folder)
        seconds += more
        if code:
            text = f"block {number} of its page fails; see {log.relative_to(ROOT)}"
            return Result(trial, text, seconds, has_risen=False)
    if not trial.script:
        return Result(trial, "its tests pass", seconds, has_risen=True)
    with contextlib.ExitStack() as stack:
        asked = [stack.enter_context(ChatServer(lambda body: "desk wood")).url, "constant"] if trial.asks else []
        code, seconds, text = logged([python, ROOT / "examples" / trial.script, *asked], log)
    found = list((_RESULT if trial.trains else _RETURN).finditer(text))
    if not found:
        return Result(trial, f"exit status {code} without a result; see {log.relative_to(ROOT)}", seconds, False)
    has_risen = code == 0 and (not trial.trains or all(float(each["after"]) > float(each["before"]) for each in found))
    return Result(trial, "\n".join(each[0] for each in found), seconds, has_risen)


def logged(command: list[str | Path], log: Path, folder: str | Path | None = None) -> tuple[int, float, str]:
    """Run a command in a folder, the repository by default; returns its exit status, its seconds and its output."""
    settings = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    start = time.perf_counter()
    with log.open("w") as out:
        try:
            code = subprocess.run(
                command,
                cwd=folder or ROOT,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=os.environ | settings,
                timeout=TIMEOUT_S,
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
    return code, time.perf_counter() - start, log.read_text(errors="replace")


def table(results: list[Result]) -> str:
    """Table with a row per return."""
    rows = [("library", "", "mean return before -> after", "seconds")]
    for each in results:
        first, *others = each.text.splitlines()
        rows.append((each.trial.library, "ok" if each.has_risen else "NO", first, f"{each.seconds:.0f}"))
        rows += [("", "", other, "") for other in others]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def main() -> int:
    """Return the exit status: 1 if a return did not rise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [trial.library for trial in TRIALS]
    parser.add_argument("libraries", nargs="*", metavar="library", help=f"of {', '.join(known)}; none: all")
    asked = parser.parse_args().libraries
    if unknown := [name for name in asked if name not in known]:
        parser.error(f"there is no {', '.join(unknown)}; choose of {', '.join(known)}")
    results = []
    for trial in TRIALS:
        if not asked or trial.library in asked:
            results.append(run(trial))
            print(*table(results[-1:]).splitlines()[1:], sep="\n", flush=True)
    print(f"\n{table(results)}")
    return int(any(not each.has_risen for each in results))


if __name__ == "__main__":
    raise SystemExit(main())
