"""Download the wheels that collm needs on a machine without network that has torch, transformers and peft.

    python tools/gpu_bundle/gather.py            # into .gpu-bundle/, for Python 3.12 on Linux, x86-64
    python tools/gpu_bundle/install.py        # on the other machine, without network, into a new environment

wheels.txt lists the packages with the versions of the tests. Large packages without use in the GPU measurements are
omitted: scipy (reports), and datasets with pyarrow and pandas (tasks from data files).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = ROOT / ".gpu-bundle"
WHEELS = Path(__file__).with_name("wheels.txt")
MAX_BYTES = 40 * 2**20
PYTHON = "3.12"
PLATFORMS = (*(f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 24, 17)), "manylinux2014_x86_64")


def main() -> int:
    """Return the exit status: 1 if the wheels exceed `MAX_BYTES`."""
    shutil.rmtree(BUNDLE, ignore_errors=True)
    BUNDLE.mkdir()
    wanted = ["--no-deps", "--only-binary=:all:", "--implementation", "cp", "--python-version", PYTHON]
    for platform in PLATFORMS:
        wanted += ["--platform", platform]
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", *wanted, "-d", BUNDLE, "-r", WHEELS], check=True)
    files = sorted(BUNDLE.glob("*.whl"))
    total = sum(file.stat().st_size for file in files)
    print(f"{len(files)} wheels for Python {PYTHON}, {total / 2**20:.1f} MiB in {BUNDLE.relative_to(ROOT)}")
    if total > MAX_BYTES:
        print(f"the limit is {MAX_BYTES / 2**20:.0f} MiB")
    return int(total > MAX_BYTES)


if __name__ == "__main__":
    raise SystemExit(main())
