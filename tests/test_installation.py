import json
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

import pytest

if sys.version_info < (3, 11):
    tomllib = pytest.importorskip("tomli")
else:
    import tomllib

LAYERS = ("envs", "agents", "algorithms", "benchmarks")


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tracked_files(root: Path) -> set[str]:
    tracked = run("git", "ls-tree", "-r", "--name-only", "HEAD", "src/collm", *LAYERS, cwd=root).splitlines()
    files = {name.removeprefix("src/collm/") for name in tracked if not name.startswith("benchmarks/results/")}
    return files - set(LAYERS)  # without the links


def clone(root: Path, folder: Path, *options: str) -> Path:
    run("git", "clone", "--quiet", "--shared", *options, root, folder / "clone", cwd=folder)
    return folder / "clone"


def clone_without_links(root: Path, folder: Path) -> Path:
    """Clone of the repository as on Windows, with text files instead of symbolic links."""
    found = clone(root, folder, "-c", "core.symlinks=false")
    assert (found / "src" / "collm" / "envs").is_file()
    return found


def zip_archive(root: Path, folder: Path) -> Path:
    archive = folder / "collm-main.zip"
    run("git", "archive", "--format=zip", "--prefix=collm-main/", "-o", archive, "HEAD", cwd=root)
    return archive


def built(source: Path, hook: str) -> Path:
    folder = source.parent / "built"
    folder.mkdir()
    run(sys.executable, "-c", f"import setuptools.build_meta as b; b.{hook}({str(folder)!r})", cwd=source)
    (found,) = folder.iterdir()
    return found


FORMS: dict[str, Callable[[Path, Path], list[str | Path]]] = {
    "clone": lambda root, folder: [clone(root, folder)],
    "clone without links": lambda root, folder: [clone_without_links(root, folder)],
    "zip": lambda root, folder: [zip_archive(root, folder)],
    "git url": lambda root, folder: [f"collm @ git+{root.as_uri()}"],
    "sdist": lambda root, folder: [built(clone(root, folder), "build_sdist")],
    "sdist without links": lambda root, folder: [built(clone_without_links(root, folder), "build_sdist")],
    "wheel": lambda root, folder: [built(clone(root, folder), "build_wheel")],
    "editable": lambda root, folder: ["-e", clone(root, folder)],
    "editable without links": lambda root, folder: ["-e", clone_without_links(root, folder)],
}

USE = f"""
import importlib, json
from pathlib import Path
import collm
from collm._extras import install_command

collm.make("collm/MiniBuild-v0").reset(seed=0)
files = []
for layer in ("", *{LAYERS}):
    package = Path(importlib.import_module(f"collm.{{layer}}".rstrip(".")).__file__).parent
    names = [path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file()]
    files += [f"{{layer}}/{{name}}".lstrip("/") for name in names if layer or name.partition("/")[0] not in {LAYERS}]
print(json.dumps([collm.__file__, files, install_command("train")]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_an_installation_has_every_file_and_advises_a_command_that_works(root, tmp_path, form):
    """Install collm offline, in a virtual environment with the packages of this environment."""
    pytest.importorskip("setuptools", minversion="77")
    python = tmp_path / "environment" / "bin" / "python"
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "environment", cwd=tmp_path)
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip()
    Path(site, "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    pip = [sys.executable, "-m", "pip", "--python", python]
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--no-compile", "--ignore-installed"]
    run(*pip, "install", *offline, *FORMS[form](root, tmp_path), cwd=tmp_path)
    place, files, command = json.loads(run(python, "-I", "-B", "-c", USE, cwd=tmp_path))
    assert Path(place).is_relative_to(tmp_path)
    # Only an editable installation contains benchmarks/results, which is read in the repository.
    packaged = {name for name in files if "__pycache__" not in name and not name.startswith("benchmarks/results/")}
    assert packaged == tracked_files(root)
    run(*pip, *shlex.split(command.removeprefix("pip")), *offline, "--dry-run", cwd=tmp_path)


@pytest.mark.slow
def test_a_build_without_a_layer_fails(root, tmp_path):
    pytest.importorskip("setuptools", minversion="77")
    source = clone_without_links(root, tmp_path)
    shutil.rmtree(source / "agents")
    with pytest.raises(AssertionError, match="'agents' does not exist"):
        built(source, "build_wheel")


def folders(root: Path) -> list[Path]:
    return sorted(path.parent for layer in LAYERS for path in (root / layer).rglob("__init__.py"))


def test_every_folder_is_among_the_packages_of_a_build(root, monkeypatch):
    pytest.importorskip("setuptools")
    from distutils.core import run_setup  # that of setuptools

    monkeypatch.chdir(root)
    found = run_setup("setup.py", stop_after="init").packages
    names = [f"collm.{'.'.join(folder.relative_to(root).parts)}" for folder in folders(root)]
    assert sorted(found) == sorted(["collm", *names])


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_is_linked_typed_and_has_only_packages(root, layer):
    link = root / "src" / "collm" / layer
    assert link.is_symlink() and link.resolve() == root / layer
    assert (root / layer / "py.typed").exists()
    stray = {path.parent for path in (root / layer).rglob("*.py")} - set(folders(root))
    assert not stray, f"without an __init__.py these are missing from the wheel: {stray}"


def test_every_data_file_is_in_the_wheel(root):
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["*"]
    for folder in folders(root):
        inner = [path for path in folders(root) if folder in path.parents]
        for path in folder.rglob("*"):
            name = path.relative_to(folder)
            is_data = path.is_file() and path.suffix not in (".py", ".pyc") and not set(inner) & set(path.parents)
            if is_data and "results" not in name.parts:  # which are read in the repository only
                assert any(fnmatch(str(name), pattern) for pattern in patterns), path


def test_packages_lie_in_layers_only_and_no_module_has_two_names(root):
    assert not (root / "__init__.py").exists()
    assert not list((root / "tests").rglob("__init__.py"))
    code = f"import sys, collm.envs, collm.benchmarks; print([name for name in {LAYERS} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert found.strip() == "[]"
