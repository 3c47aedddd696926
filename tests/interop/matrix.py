"""Test the environments with each supported pair of Gymnasium and PettingZoo, without torch.

    python tests/interop/matrix.py                 # all pairs; all tests of envs/ but the sandbox's, which uses neither
    python tests/interop/matrix.py tests/envs/views -x

Arguments go to pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys

from run import ROOT, environment

GYMNASIUM = ("1.2.2", "1.4.0")
PETTINGZOO = ("1.26.1", "1.27.0")
TESTS = ("tests/envs", "--ignore=tests/envs/sandbox", "-m", "not slow and not gpu")


def main(arguments: list[str]) -> int:
    """The exit status: 1 if a test failed with one of the pairs."""
    failed = []
    for gymnasium in GYMNASIUM:
        for pettingzoo in PETTINGZOO:
            pair = (f"gymnasium=={gymnasium}", f"pettingzoo=={pettingzoo}")
            python = environment(f"matrix-{gymnasium}-{pettingzoo}", ROOT / "tests" / "interop" / "matrix.txt", *pair)
            print(*pair, flush=True)
            command = [python, "-m", "pytest", "-q", *(arguments or TESTS)]
            if subprocess.run(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}).returncode:
                failed.append(" ".join(pair))
    print(f"failed with {', '.join(failed)}" if failed else "all pairs pass")
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
