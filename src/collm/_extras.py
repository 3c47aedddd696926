"""Install commands for optional packages."""

from __future__ import annotations

import json
import re
import shlex
from importlib.metadata import PackageNotFoundError, distribution, requires
from importlib.util import find_spec
from pathlib import Path

_REQUIREMENT = re.compile(r"""(?P<distribution>[\w.-]+).*\bextra == ["'](?P<extra>[\w-]+)["']""")
# Import name -> different name for pip.
_DISTRIBUTIONS = {"PIL": "pillow", "inspect_ai": "inspect-ai", "pyspiel": "open-spiel", "rouge_score": "rouge-score"}
FOR_TRAINING = ("torch", "transformers", "peft")
_FOR_DEVELOPERS = {"dev", "docs", "mutants"}
_LAYERS = {"collm.envs", "collm.agents", "collm.algorithms", "collm.benchmarks"}
_ROOT = Path(__file__).resolve().parents[2]  # Root of the repository, if the package is imported from a clone


def explained(error: ModuleNotFoundError) -> ModuleNotFoundError | None:
    """Return the error with an install command. None: neither collm nor its extras contain the missing package."""
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
    """Return the pip command that installs collm with an optional extra.

    The command contains a path or a URL, because collm is not on PyPI, where anyone could register the name.
    """
    chosen = f"[{extra}]" if extra else ""
    if (_ROOT / "pyproject.toml").is_file():
        return f"pip install -e {shlex.quote(f'{_ROOT}{chosen}')}"
    return f'pip install "collm{chosen} @ {_source()}"'


def require(*packages: str) -> None:
    """Raise `ModuleNotFoundError` with the install command if a package is missing. No package is imported."""
    for package in packages:
        if find_spec(package) is None:
            error = ModuleNotFoundError(f"No module named {package!r}", name=package)
            raise explained(error) or error


def _source() -> str:
    """Return the URL from which pip installed collm (PEP 610), or else the repository URL in the metadata."""
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
    try:
        declared = requires("collm") or []
    except PackageNotFoundError:  # collm is imported from a clone without installation
        return {}
    found: dict[str, str] = {}
    for requirement in declared:
        match = _REQUIREMENT.match(requirement)
        if match and match["extra"] not in _FOR_DEVELOPERS and match["distribution"] != "collm":  # no nested extras
            found.setdefault(match["distribution"], match["extra"])
    return found
