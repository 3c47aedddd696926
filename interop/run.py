"""Train on our environments with other libraries, each in an environment of its own, and print what came of it.

    python interop/run.py                  # all of them
    python interop/run.py torchrl rllib    # some

Their requirements contradict each other's, hence one virtual environment a library, under `.interop/`. What a library
needs stands in `interop/<library>.txt`, every package with its version, and is installed without looking for more: a
library that asks for another torch would replace it. torch comes first, from wherever pip is set up to find it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".interop"
TORCH = "torch==2.13.0"
TIMEOUT_S = 1800
_RESULT = re.compile(r"^(?P<what>.+): (?P<before>-?[\d.]+) -> (?P<after>-?[\d.]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Trial:
    """One library and the example that trains with it."""

    library: str
    script: str


TRIALS = (
    Trial("torchrl", "torchrl_reinforce.py"),
    Trial("sb3", "sb3_ppo.py"),
    Trial("rllib", "rllib_ppo.py"),
    Trial("trl", "trl_grpo.py"),
)


@dataclass(frozen=True)
class Result:
    """What came of a trial."""

    trial: Trial
    text: str  # the example's own last line, or what went wrong
    seconds: float
    has_risen: bool


def environment(name: str, requirements: Path, *others: str) -> Path:
    """The Python of a virtual environment, made if need be.

    Args:
        name: of its folder.
        requirements: a file; nothing is installed but what it names.
        others: what is installed beside it.
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
    if torch:  # with what it depends on, which differs by machine
        subprocess.run([*install, "-c", requirements, *torch], check=True)
    rest = [other for other in others if other not in torch]
    subprocess.run([*install, "--no-deps", *rest, "-r", requirements, "-e", ROOT], check=True)
    stamp.write_text(wanted)
    return python


def run(trial: Trial) -> Result:
    """Install a library and run its example."""
    try:
        python = environment(trial.library, ROOT / "interop" / f"{trial.library}.txt", TORCH)
    except subprocess.CalledProcessError as error:
        return Result(trial, f"does not install: {error}", 0.0, has_risen=False)
    log = ENVIRONMENTS / f"{trial.library}.log"
    settings = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    start = time.perf_counter()
    with log.open("w") as out:
        try:
            code = subprocess.run(
                [python, ROOT / "examples" / trial.script],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=os.environ | settings,
                timeout=TIMEOUT_S,
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
    seconds = time.perf_counter() - start
    found = list(_RESULT.finditer(log.read_text(errors="replace")))
    if not found:
        return Result(trial, f"exit status {code} without a result; see {log.relative_to(ROOT)}", seconds, False)
    return Result(trial, found[-1][0], seconds, code == 0 and float(found[-1]["after"]) > float(found[-1]["before"]))


def table(results: list[Result]) -> str:
    """A row a library."""
    rows = [("library", "", "mean return before -> after", "seconds")]
    rows += [
        (each.trial.library, "ok" if each.has_risen else "NO", each.text, f"{each.seconds:.0f}") for each in results
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def main() -> int:
    """The exit status: 1 if the return did not rise with one of the libraries."""
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
            print(table(results[-1:]).splitlines()[1], flush=True)
    print(f"\n{table(results)}")
    return int(any(not each.has_risen for each in results))


if __name__ == "__main__":
    raise SystemExit(main())
