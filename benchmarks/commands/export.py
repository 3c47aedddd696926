"""`collm export RUN OUT`: write models of a run for transformers, with model cards, or episodes for Inspect AI."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from ..._extras import require
from ..._json import explained_content
from ..._ownership import new_folder, replaced
from ..._ranges import Needs
from ..._terminal import print_line
from ..arguments import TrustArguments, parsed
from ..errors import UserError, check_folder, refusals
from ..sharing.export import ADAPTER, CARD, SharedRun

OF_RUNS = Needs("a run instead of a file of episodes", lambda call: not call.directory.is_file())
EXAMPLES = ("collm export runs/build models --agent builder_0 --merge", "collm export episodes.jsonl episodes.eval")


@dataclass(frozen=True, kw_only=True)
class ExportArguments(TrustArguments):
    """Write the models of a run for transformers: one subfolder of OUT per agent, or with --agent one model in OUT.
    Or write a file of recorded episodes as a log of Inspect AI."""

    directory: Positional[Path]
    """Run directory of `collm train`, or a file of episodes, such as episodes.jsonl."""
    out: Positional[Path]
    """Output folder, which must be new or empty. For episodes: new file *.eval (for `inspect view`) or *.json."""
    agent: Annotated[str | None, OF_RUNS] = None
    """Agent whose model is exported. None: all agents."""
    merge: Annotated[bool, OF_RUNS] = False
    """Merge adapters into their base model. False: write only the adapters, which need the base model to run."""
    license: Annotated[str | None, OF_RUNS] = None
    """License of the model cards, as an identifier of the hub, such as apache-2.0. None: not stated."""
    base_model: Annotated[str | None, OF_RUNS] = None
    """Name of the base model on the hub, which model cards and adapters then state, such as Qwen/Qwen3-0.6B. None: the
    name or path in the run's settings."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(ExportArguments, "export", args, examples=EXAMPLES)
    if arguments.directory.is_file():
        return export_episodes(arguments)
    from ...algorithms.runs.files import TEAM_FILE, explained, settings_file
    from ...algorithms.runs.own_runs import is_own_run, note_own_run

    directory, out, trust = arguments.directory, arguments.out, arguments.trust
    with refusals(), SharedRun.opened(directory, arguments.agent, arguments.base_model, trust=trust) as shared:
        check_folder(out, "OUT")
        if arguments.merge and not trust:
            from ...algorithms.runs.assembly.trust import refuse_untrusted_models  # late import: help needs no torch

            refuse_untrusted_models(directory)
        with explained(out), new_folder(out) as new:
            for agent, folder in shared.models.items():
                name = "." if arguments.agent else agent
                with explained_content(directory):
                    is_adapter = (folder / ADAPTER).is_file() and not arguments.merge
                    library = "peft" if is_adapter else "transformers"
                    text = shared.card(str(out / name), agent, library_name=library, license=arguments.license)
                removed = shared.export(agent, new / name, is_merged=arguments.merge)
                (new / name / CARD).write_text(text, encoding="utf-8", errors="backslashreplace")
                if is_adapter and not shared.bases:
                    print_line(f"{agent}: adapters of a base model that only this machine has; --merge includes it")
                if removed:
                    print_line(f"not exported, because it is code: {', '.join(removed)}")
            if arguments.agent is None:
                shutil.copyfile(settings_file(directory), new / TEAM_FILE)
        if arguments.agent is None and is_own_run(settings_file(directory)):
            note_own_run(out / TEAM_FILE)
    for agent in shared.models:
        print_line(f"model: {out if arguments.agent else out / agent}")


def export_episodes(arguments: ExportArguments) -> None:
    """Write a file of episodes as a log of Inspect AI."""
    out = arguments.out
    with refusals():
        if out.suffix not in (".eval", ".json") or os.path.lexists(out):
            raise UserError(f"OUT {out} must be the name of a new file *.eval or *.json")
        require("inspect_ai")
        from ...agents.interop.inspect_ai import write_log  # late imports: slow
        from ...algorithms.runs.records import read_text_episodes

        with replaced(out) as new:
            write_log(read_text_episodes(arguments.directory), new)
    print_line(f"log: {out}")
