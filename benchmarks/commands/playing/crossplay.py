"""`collm crossplay RUN RUN …`: evaluate teams whose agents come from different runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from ...._ownership import owned, refuse_foreign_files, write_text
from ...._progress import observing
from ...._ranges import Also, Count, Needs
from ...._terminal import shown, terminal
from ....algorithms.runs.files import read_config
from ...arguments import TrustArguments, keyword_arguments, parsed
from ...errors import check_folder, refusals
from .play import as_trained

PAGE, PICTURE = "README.md", "crossplay.png"


@dataclass(frozen=True, kw_only=True)
class CrossPlayArguments(TrustArguments):
    """Play held-out tasks with one agent of one run and the other agents of another run, for all pairs of runs."""

    runs: Positional[tuple[Path, ...]]
    """Run directories of `collm train` or `collm benchmark`, two or more, trained in the same environment."""
    env: str | None = None
    """Registered id of the environment. None: the environment of the runs."""
    env_kwargs: Annotated[tuple[str, ...], Needs("--env", lambda call: call.env is not None)] = ()
    """Arguments of the environment given by `--env`, as key=value."""
    partners: tuple[str, ...] = ()
    """Scripted partners for an agent of each run: reference, random, empty, or a partner or exploit of the environment,
    such as "first of the list" in MiniShift. training, held-out: all partners of this kind that the environment has.
    Default: only pairs of runs."""
    seats: tuple[str, ...] = ()
    """Agents that come from the first run of a pair, one at a time. Default: the first agent if the agents have common
    interests, else all agents."""
    episodes: Annotated[Count, Also("num_episodes")] = 100
    """Number of episodes per pair of runs."""
    greedy: bool = False
    """Generate greedily (most likely token) instead of sampling."""
    out: Path = Path("runs/crossplay")
    """Output folder for the table (README.md) and the heat map (crossplay.png)."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(CrossPlayArguments, "crossplay", args)
    with refusals():
        for directory in arguments.runs:
            read_config(directory)  # raises before the slow import of torch

    from ....algorithms.runs.api import load_run  # late import: help needs no torch
    from ....algorithms.runs.loggers.display import ProgressLines
    from ....envs.registration.registry import make
    from ...crossplay import cross_play, draw, page

    console = terminal()

    def on_pair(first: str, others: str, value: float) -> None:
        console.print(f"{shown(first)} with {shown(others)}: {value:.3f}", highlight=False, markup=False)

    with refusals(), observing(ProgressLines(terminal(stderr=True))):
        check_folder(arguments.out, "--out")
        refuse_foreign_files(arguments.out, [PAGE, PICTURE])
        kwargs = keyword_arguments(arguments.env_kwargs, "--env-kwargs")
        env = (
            None if arguments.env is None else make(arguments.env, **as_trained(arguments.runs, arguments.env, kwargs))
        )
        runs = [load_run(each, env=env, trust=arguments.trust) for each in arguments.runs]
        found = cross_play(
            runs,
            num_episodes=arguments.episodes,
            greedy=arguments.greedy,
            partners=arguments.partners,
            seats=arguments.seats,
            on_pair=on_pair,
        )
    write_text(arguments.out, PAGE, page(found))
    with owned(arguments.out, PICTURE) as new:
        draw(found, new)
    for name, value in (("self-play", found.self_play()), ("cross-play", found.cross_play()), ("gap", found.gap())):
        console.print(f"{name} {value}", highlight=False)
    console.print(f"table and heat map: {shown(arguments.out)}", markup=False)
