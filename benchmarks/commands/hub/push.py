"""`collm push RUN REPO`: upload the team of a run to the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from ...._terminal import print_line
from ...arguments import TrustArguments, parsed
from ...errors import refusals
from ...sharing.hub import push

EXAMPLES = ("collm push runs/build me/build-team --private", "collm push runs/build me/build-team --license apache-2.0")


@dataclass(frozen=True, kw_only=True)
class PushArguments(TrustArguments):
    """Upload the models, settings and a model card of a run as a model repository of the hub, and the episodes as the
    dataset REPO-episodes, which `datasets.load_dataset("REPO-episodes")` loads.

    Log in first: `hf auth login`, or set HF_TOKEN.
    """

    directory: Positional[Path]
    """Run directory of `collm train`."""
    repo: Positional[str]
    """Name of the repository, owner/name. An existing repository gets a new commit."""
    private: bool = False
    """Create private repositories."""
    license: str | None = None
    """License, as an identifier of the hub, such as apache-2.0. None: the license of the base model, if known."""
    base_model: str | None = None
    """Name of the base model on the hub, such as Qwen/Qwen3-0.6B, which the card and adapters then state. None: the
    name in the run's settings; adapters of a local model are merged into a copy of the model."""
    dry_run: bool = False
    """Print the model card and the files instead of uploading them. Nothing is sent to the hub."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(PushArguments, "push", args, examples=EXAMPLES)
    with refusals():
        done = push(**vars(arguments))
    print_line(done if arguments.dry_run else f"team: {done}")
