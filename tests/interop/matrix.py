"""Run tests with the oldest and the newest supported versions of dependencies.

    python tests/interop/matrix.py                 # each supported pair of Gymnasium and PettingZoo, without torch
    python tests/interop/matrix.py tests/envs/views -x
    python tests/interop/matrix.py --oldest        # the oldest torch and transformers; Python 3.12

The pairs run all tests of envs/ except the sandbox's, which use neither. The oldest torch and transformers run the
quick tests of agents/ and algorithms/; pip downloads a build of torch, which may have gigabytes. Other arguments are
passed to pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from run import ROOT, environment

GYMNASIUM = ("1.2.2", "1.4.0")
PETTINGZOO = ("1.26.1", "1.27.0")
TESTS = ("tests/envs", "--ignore=tests/envs/sandbox", "-m", "not slow and not gpu")
OLDEST_TORCH = "torch==2.11.0"
OLDEST_TESTS = ("tests/agents", "tests/algorithms", "-m", "not slow and not gpu")
REQUIREMENTS = ROOT / "tests" / "interop"


def main(arguments: list[str]) -> int:
    """Return the exit status: 1 if a test failed."""
    if arguments[:1] == ["--oldest"]:
        python = environment("matrix-oldest", REQUIREMENTS / "oldest.txt", OLDEST_TORCH)
        return int(not _passes(python, arguments[1:] or list(OLDEST_TESTS), OLDEST_TORCH))
    failed = []
    for gymnasium in GYMNASIUM:
        for pettingzoo in PETTINGZOO:
            pair = (f"gymnasium=={gymnasium}", f"pettingzoo=={pettingzoo}")
            python = environment(f"matrix-{gymnasium}-{pettingzoo}", REQUIREMENTS / "matrix.txt", *pair)
            if not _passes(python, arguments or list(TESTS), *pair):
                failed.append(" ".join(pair))
    print(f"failed with {', '.join(failed)}" if failed else "all pairs pass")
    return int(bool(failed))


def _passes(python: Path, tests: list[str], *versions: str) -> bool:
    print(*versions, flush=True)
    settings = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"}
    return subprocess.run([python, "-m", "pytest", "-q", *tests], cwd=ROOT, env=os.environ | settings).returncode == 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
