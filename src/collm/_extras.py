"""Optional packages: the commands that install them."""

from __future__ import annotations

import json
import re
import shlex
from importlib.metadata import PackageNotFoundError, distribution, requires
from importlib.util import find_spec
from pathlib import Path

_REQUIREMENT = re.compile(r"""(?P<distribution>[\w.-]+).*\bextra == ["'](?P<extra>[\w-]+)["']""")
_DISTRIBUTIONS = {"PIL": "pillow", "rouge_score": "rouge-score"}
"""Names of distributions that differ from the package's name."""
_FOR_DEVELOPERS = {"dev", "docs", "mutants"}
_LAYERS = {"collm.envs", "collm.agents", "collm.algorithms", "collm.benchmarks"}
_ROOT = Path(__file__).resolve().parents[2]
"""The repository, if the package is imported from a clone."""


def explained(error: ModuleNotFoundError) -> ModuleNotFoundError | None:
    """Add the command that installs a package of an extra, or a part of collm, to an error; None for other packages."""
    if error.name in _LAYERS:
        line = f"the installation of collm is incomplete: {error.name} is missing; reinstall it: {install_command()}"
        return ModuleNotFoundError(line, name=error.name, path=error.path)
    package = (error.name or "").partition(".")[0]
    extra = _extras().get(_DISTRIBUTIONS.get(package, package))
    if extra is None:
        return None
    line = f"{package} is not installed; install it: {install_command(extra)}"
    return ModuleNotFoundError(line, name=error.name, path=error.path)


def install_command(extra: str = "") -> str:
    """Command that installs collm with an extra: from its clone, or from the source of the present installation.

    It never uses the name alone, because collm is not on the package index and anyone could register the name.
    """
    chosen = f"[{extra}]" if extra else ""
    if (_ROOT / "pyproject.toml").is_file():
        return f"pip install -e {shlex.quote(f'{_ROOT}{chosen}')}"
    return f'pip install "collm{chosen} @ {_source()}"'


def require(*packages: str) -> None:
    """Check that packages are installed, without importing them.

    Raises:
        ModuleNotFoundError: if a package is missing, with the command that installs it.
    """
    for package in packages:
        if find_spec(package) is None:
            error = ModuleNotFoundError(f"No module named {package!r}", name=package)
            raise explained(error) or error


def _source() -> str:
    """URL from which collm was installed, as pip recorded it (PEP 610), or else the repository of the metadata."""
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
    """First extra that contains a distribution, by distribution, from the installed metadata."""
    try:
        declared = requires("collm") or []
    except PackageNotFoundError:  # a clone on the path that is not installed
        return {}
    found: dict[str, str] = {}
    for requirement in declared:
        match = _REQUIREMENT.match(requirement)
        if match and match["extra"] not in _FOR_DEVELOPERS and match["distribution"] != "collm":  # extras name extras
            found.setdefault(match["distribution"], match["extra"])
    return found
