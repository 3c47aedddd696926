"""Packages of the distribution and their folders; pyproject.toml has the other settings.

src/collm holds symbolic links to the four layers. ZIP archives, and clones with core.symlinks=false, have text files
instead of the links. A layer without its link is mapped to its folder. A layer with its link is not mapped: mypy
follows an editable installation only if it is a single path, src.
"""

from pathlib import Path

from setuptools import find_packages, setup

LINKS = {f"collm.{layer}": f"src/collm/{layer}" for layer in ("envs", "agents", "algorithms", "benchmarks")}
MAPPED = {name: Path(link).name for name, link in LINKS.items() if not Path(link).is_dir()}

setup(
    package_dir={"": "src"} | MAPPED,
    packages=[
        "collm",
        *LINKS,  # named even if its folder is missing, so that the build fails
        *(f"{name}.{inner}" for name, folder in (LINKS | MAPPED).items() for inner in find_packages(folder)),
    ],
)
