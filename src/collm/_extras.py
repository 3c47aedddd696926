"""Packages that are installed on request: which extra brings one, and the line that says so where it is missing."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec

_REQUIREMENT = re.compile(r"""(?P<distribution>[\w.-]+).*\bextra == ["'](?P<extra>[\w-]+)["']""")
_DISTRIBUTIONS = {"PIL": "pillow"}
"""Distributions that are not named as what they install."""
_FOR_DEVELOPERS = {"dev", "docs", "mutants"}


def explained(error: ModuleNotFoundError) -> ModuleNotFoundError | None:
    """The error for a package that one of our extras brings, with the command that installs it; None for any other."""
    package = (error.name or "").partition(".")[0]
    extra = _extras().get(_DISTRIBUTIONS.get(package, package))
    if extra is None:
        return None
    line = f"{package} is not installed, which this needs: pip install 'collm[{extra}]'"
    return ModuleNotFoundError(line, name=error.name, path=error.path)


def require(*packages: str) -> None:
    """Find out that packages are there, in no time and before anything that needs them begins.

    Raises:
        ModuleNotFoundError: for the first that is not, with the command that installs it.
    """
    for package in packages:
        if find_spec(package) is None:
            error = ModuleNotFoundError(f"No module named {package!r}", name=package)
            raise explained(error) or error


def _extras() -> dict[str, str]:
    """By distribution, the first of the extras that bring it, as the installed package declares them."""
    try:
        declared = requires("collm") or []
    except PackageNotFoundError:  # a checkout on the path, which was not installed
        return {}
    found: dict[str, str] = {}
    for requirement in declared:
        match = _REQUIREMENT.match(requirement)
        if match and match["extra"] not in _FOR_DEVELOPERS:
            found.setdefault(match["distribution"], match["extra"])
    return found
