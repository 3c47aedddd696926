"""Packages that are installed on request: which extra brings one, and the line that says so where it is missing."""

from __future__ import annotations

import json
import re
import shlex
from importlib.metadata import PackageNotFoundError, distribution, requires
from importlib.util import find_spec
from pathlib import Path

_REQUIREMENT = re.compile(r"""(?P<distribution>[\w.-]+).*\bextra == ["'](?P<extra>[\w-]+)["']""")
_DISTRIBUTIONS = {"PIL": "pillow", "rouge_score": "rouge-score"}
"""Distributions that are not named as what they install."""
_FOR_DEVELOPERS = {"dev", "docs", "mutants"}
_LAYERS = {"collm.envs", "collm.agents", "collm.algorithms", "collm.benchmarks"}
_ROOT = Path(__file__).resolve().parents[2]
"""The repository, if the package is imported from a clone."""


def explained(error: ModuleNotFoundError) -> ModuleNotFoundError | None:
    """The error for a package of an extra, or for a missing part of collm, with the command that installs it.

    None for any other module.
    """
    if error.name in _LAYERS:
        line = (
            f"the installation of collm is incomplete: {error.name} is missing; install it again: {install_command()}"
        )
        return ModuleNotFoundError(line, name=error.name, path=error.path)
    package = (error.name or "").partition(".")[0]
    extra = _extras().get(_DISTRIBUTIONS.get(package, package))
    if extra is None:
        return None
    line = f"{package} is not installed, which this needs: {install_command(extra)}"
    return ModuleNotFoundError(line, name=error.name, path=error.path)


def install_command(extra: str = "") -> str:
    """The command that installs collm with an extra: from its clone, else from where it was installed from.

    Never by the name alone: collm is not on the package index, where a package of that name could be anything.
    """
    chosen = f"[{extra}]" if extra else ""
    if (_ROOT / "pyproject.toml").is_file():
        return f"pip install -e {shlex.quote(f'{_ROOT}{chosen}')}"
    return f'pip install "collm{chosen} @ {_source()}"'


def require(*packages: str) -> None:
    """Find out that packages are there, in no time and before anything that needs them begins.

    Raises:
        ModuleNotFoundError: for the first that is not, with the command that installs it.
    """
    for package in packages:
        if find_spec(package) is None:
            error = ModuleNotFoundError(f"No module named {package!r}", name=package)
            raise explained(error) or error


def _source() -> str:
    """Address that collm was installed from, as pip recorded it (PEP 610); unrecorded: the declared repository."""
    installed = distribution("collm")
    recorded = installed.read_text("direct_url.json")
    if recorded is None:
        declared = installed.metadata.get_all("Project-URL", [])
        return f"git+{dict(url.split(', ', 1) for url in declared)['Repository']}"
    origin = json.loads(recorded)
    if "vcs_info" in origin:
        return f"{origin['vcs_info']['vcs']}+{origin['url']}@{origin['vcs_info']['commit_id']}"
    return str(origin["url"])


def _extras() -> dict[str, str]:
    """By distribution, the first of the extras that bring it, as the installed package declares them."""
    try:
        declared = requires("collm") or []
    except PackageNotFoundError:  # a checkout on the path, which was not installed
        return {}
    found: dict[str, str] = {}
    for requirement in declared:
        match = _REQUIREMENT.match(requirement)
        if match and match["extra"] not in _FOR_DEVELOPERS and match["distribution"] != "collm":  # extras name others
            found.setdefault(match["distribution"], match["extra"])
    return found
