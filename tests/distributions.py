"""Installation of small Python distributions with an entry point."""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def _can_build() -> bool:
    """Return True if setuptools can build wheels without the package wheel."""
    try:
        return int(version("setuptools").partition(".")[0]) >= 77
    except PackageNotFoundError:
        return False


def install(tmp_path: Path, module: str, code: str, group: str = "collm.envs") -> Path:
    """Install a distribution with an entry point into an empty folder, offline."""
    name, target = module.replace("_", "-"), tmp_path / "site"
    if not _can_build():  # write the files of an installation
        described = target / f"{module}-0.1.dist-info"
        described.mkdir(parents=True)
        (target / f"{module}.py").write_text(code)
        (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
        (described / "entry_points.txt").write_text(f"[{group}]\n{module} = {module}\n")
        return target
    source = tmp_path / f"source_{module}"
    source.mkdir()
    (source / f"{module}.py").write_text(code)
    settings = ['build-system = {requires = ["setuptools"], build-backend = "setuptools.build_meta"}']
    settings += [f'project = {{name = "{name}", version = "0.1", entry-points."{group}".{module} = "{module}"}}']
    settings += [f'tool.setuptools.py-modules = ["{module}"]']
    (source / "pyproject.toml").write_text("\n".join(settings))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-build-isolation", "--no-deps", "--no-index", "--target", str(target), str(source)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return target
