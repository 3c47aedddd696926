"""`collm pull REPO`: download a team from the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from ...._ranges import Checked
from ...._terminal import print_line
from ...arguments import parsed
from ...errors import check_folder, refusals
from ...sharing.hub import pull

EXAMPLES = ("collm pull me/build-team", "collm pull me/build-team --out runs/theirs")


@dataclass(frozen=True, kw_only=True)
class PullArguments(Checked):
    """Download a team, without code and pickled files, into a folder for `collm evaluate` and `collm.load_team`."""

    repo: Positional[str]
    """Name of the repository, owner/name."""
    out: Path | None = None
    """Output folder, which must be new or empty. None: runs/ and the name of the repository."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(PullArguments, "pull", args, examples=EXAMPLES)
    out = arguments.out or Path("runs") / arguments.repo.rpartition("/")[2]
    with refusals():
        check_folder(out, "--out")
        pull(arguments.repo, out)
    print_line(f"team: {out}")
