"""`collm play-page RUN …`: write a page in which a person plays with trained teams in a browser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from ...._ownership import refuse_foreign_files, write_text
from ...._ranges import Checked
from ...._terminal import print_line
from ....algorithms.runs.files import read_config
from ...arguments import parsed
from ...errors import check_folder, refusals

PAGE = "play.html"


@dataclass(frozen=True, kw_only=True)
class PageArguments(Checked):
    """Write an HTML page in which a person takes the place of one agent. The page works offline in any browser.

    The runs must be in Mini environments, with the embedded model or another small Llama.
    """

    runs: Positional[tuple[Path, ...]]
    """Run directories of `collm train`, each of which becomes a game of the page."""
    trust: bool = False
    """Allow settings of a run that import code, loosen the sandbox, or refer to files and servers outside of its
    folder. Only for folders whose author you trust."""
    out: Path = Path("runs/page")
    """Output folder for the page (play.html)."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(PageArguments, "play-page", args, examples=("collm play-page runs/shift runs/code",))
    with refusals():
        for directory in arguments.runs:
            read_config(directory)  # raises before the slow import of torch

        from ...play_page.build import page_of  # late import: help needs no torch

        check_folder(arguments.out, "--out")
        refuse_foreign_files(arguments.out, [PAGE])
        page = page_of(arguments.runs, trust=arguments.trust)
        write_text(arguments.out, PAGE, page)
    print_line(f"page: {arguments.out / PAGE}")
