"""Paths that sandboxed code can see: the standard library, shared libraries, and requested packages."""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ..settings import SandboxUnavailable

# Other packages are hidden, because site-packages may contain tests and expected answers.
_HIDDEN_FOLDERS = ("site-packages", "dist-packages", "test", "idlelib", "ensurepip")
_SYSTEM_LIBRARIES = ("/lib64", "/usr/lib64")
_TIME_ZONES = "/usr/share/zoneinfo"


@dataclass(frozen=True)
class Layout:
    """Paths that the sandboxed Python interpreter may read."""

    interpreter: str
    paths: tuple[str, ...]  # additions to `sys.path`, for packages
    visible: tuple[str, ...]  # files, folders and links in the jail's root directory
    hidden: tuple[str, ...]  # folders inside `visible` that appear empty
    trees: tuple[str, ...]  # folders that are readable, including their content
    files: tuple[str, ...]
    listable: tuple[str, ...]  # folders whose listing is readable, but not their content

    @property
    def is_open_to_others(self) -> bool:
        """True if every user of the machine can open the folder of the standard library."""
        folder = Path(self.listable[0])
        return all(step.stat().st_mode & 0o001 for step in (folder, *folder.parents))


def _existing(paths: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(path for path in paths if os.path.exists(path)))


def _library_folders() -> list[str]:
    triplet = sysconfig.get_config_var("MULTIARCH") or f"{os.uname().machine}-linux-gnu"
    return _existing([f"/lib/{triplet}", f"/usr/lib/{triplet}", *_SYSTEM_LIBRARIES])


def _package_paths(name: str) -> tuple[str, list[str]]:
    """Return the `sys.path` entry and the folders of an installed package."""
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise SandboxUnavailable(f"packages={name!r} must be an installed package; install it with pip")
    folder = os.path.realpath(next(iter(found.submodule_search_locations)))
    return os.path.dirname(folder), _existing([folder, f"{folder}.libs"])


def _interpreter() -> str:
    """Return the path of the Python interpreter outside of the virtual environment."""
    base = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    return str(base if base.exists() else Path(sys.executable).resolve())


@lru_cache(maxsize=16)
def layout(packages: tuple[str, ...] = ()) -> Layout:
    """Return the paths that sandboxed code may read if it may import these packages."""
    standard = os.path.realpath(sysconfig.get_path("stdlib"))
    hidden = [os.path.join(standard, name) for name in _HIDDEN_FOLDERS]
    # Links may lead out of the folder, such as Debian's sitecustomize.py.
    entries = [entry.path for entry in os.scandir(standard) if entry.path not in hidden and not entry.is_symlink()]
    libraries = _library_folders()
    own_libraries = [str(path) for path in sorted(Path(sys.base_prefix, "lib").glob("*.so*"))]
    found = [_package_paths(name) for name in packages]
    package_folders = [folder for _, folders in found for folder in folders]
    real_libraries = _existing([os.path.realpath(folder) for folder in libraries])
    extras = _existing([*own_libraries, "/etc/ld.so.cache"])
    trees = _existing([*filter(os.path.isdir, entries), *real_libraries, *package_folders, _TIME_ZONES])
    links = [path for path in ("/lib", "/lib64") if os.path.islink(path)]
    return Layout(
        interpreter=_interpreter(),
        paths=tuple(dict.fromkeys(path for path, _ in found)),
        visible=tuple([*links, standard, *real_libraries, *extras, *package_folders, *_existing([_TIME_ZONES])]),
        hidden=tuple(_existing(hidden)),
        trees=tuple(trees),
        files=tuple([*filter(os.path.isfile, entries), *filter(os.path.isfile, extras)]),
        listable=(standard,),
    )
