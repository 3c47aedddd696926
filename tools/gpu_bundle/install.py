"""Install collm and the wheels of .gpu-bundle without network, in an environment that sees the packages of this Python.

    python3 tools/gpu_bundle/install.py FOLDER   # a virtual environment; FOLDER/bin/python research/gpu/run.py --out …

torch, transformers and peft come from the Python that runs this script, which may be a virtual environment. Wheels of
the bundle take precedence over its packages.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = ROOT / ".gpu-bundle"
BROUGHT = ("torch", "transformers", "peft")
OFFLINE = ("--no-index", "--find-links", str(BUNDLE), "--no-deps", "--no-compile", "-q")
CHECK = """
import importlib.metadata as metadata
from packaging.requirements import Requirement
for line in metadata.requires("collm"):
    wanted = Requirement(line)
    is_asked = wanted.marker is None or any(wanted.marker.evaluate({"extra": each}) for each in EXTRAS)
    if wanted.name == "collm" or not is_asked: continue
    try: found = metadata.version(wanted.name)
    except metadata.PackageNotFoundError: found = "left out"
    else: found += "" if wanted.specifier.contains(found, prereleases=True) else ", which is another version"
    print(f"{wanted.name}{wanted.specifier}: {found}")
""".replace("EXTRAS", repr(("train", "data", "pictures")))
"""Program that prints the installed version of each package that training needs. "train" includes the other extras."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder.absolute()
    missing = [name for name in BROUGHT if not _is_there(name)]
    if missing:
        parser.error(f"{sys.executable} has no {', '.join(missing)}; run this script with the Python that has torch")
    wheels = sorted(BUNDLE.glob("*.whl"))
    if not wheels:
        parser.error(f"{BUNDLE} contains no wheels; run `make gpu-bundle` on a machine with network and copy it here")
    venv.create(folder, clear=True, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    found = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    places = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    Path(found, "zz_brought.pth").write_text("".join(f"{place}\n" for place in places))
    # The pip of this Python installs, because the new environment has no pip.
    install = [sys.executable, "-m", "pip", "--python", python, "install", *OFFLINE]
    subprocess.run([*install, "--ignore-installed", *wheels], check=True)
    subprocess.run([*install, "--no-build-isolation", "-e", ROOT], check=True)
    subprocess.run([python, "-c", CHECK], check=True)
    return 0


def _is_there(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    raise SystemExit(main())
