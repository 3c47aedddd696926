"""`collm export RUN OUT`: write models of a run for transformers, with model cards, or episodes for Inspect AI."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from ..._extras import require
from ..._json import explained_content
from ..._ownership import refuse_full_folder
from ..._ranges import Checked, Needs
from ..._terminal import print_line
from ..arguments import parsed
from ..errors import UserError, check_folder, refusals
from ..sharing.export import ADAPTER, CARD, card, export, model_folders, without_code

OF_RUNS = Needs("a run instead of a file of episodes", lambda call: not call.directory.is_file())
EXAMPLES = ("collm export runs/build models --agent builder_0 --merge", "collm export episodes.jsonl episodes.eval")


@dataclass(frozen=True, kw_only=True)
class ExportArguments(Checked):
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
    trust: Annotated[bool, Needs("--merge", lambda call: call.merge)] = False
    """Allow `--merge` to load base models from outside of the run's folder. Only for folders whose author you trust."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(ExportArguments, "export", args, examples=EXAMPLES)
    if arguments.directory.is_file():
        return export_episodes(arguments)
    with refusals():
        folders = model_folders(arguments.directory, arguments.agent)
        check_folder(arguments.out, "OUT")
        refuse_full_folder(arguments.out)
        if arguments.merge and not arguments.trust:
            from ...algorithms.runs.assembly.trust import refuse_untrusted_models  # late import: help needs no torch

            refuse_untrusted_models(arguments.directory)
        targets = {agent: arguments.out if arguments.agent else arguments.out / agent for agent in folders}
        for agent, folder in folders.items():
            with explained_content(arguments.directory):
                is_adapter = (folder / ADAPTER).is_file() and not arguments.merge
                library = "peft" if is_adapter else "transformers"
                name = targets[agent].name
                text = card(arguments.directory, name, agent, library_name=library, license=arguments.license)
            export(folder, targets[agent], is_merged=arguments.merge)
            removed = without_code(folder, targets[agent])
            (targets[agent] / CARD).write_text(text, encoding="utf-8", errors="backslashreplace")
            if removed:
                print_line(f"not exported, because it is code: {', '.join(removed)}")
    for target in targets.values():
        print_line(f"model: {target}")


def export_episodes(arguments: ExportArguments) -> None:
    """Write a file of episodes as a log of Inspect AI."""
    out = arguments.out
    with refusals():
        if out.suffix not in (".eval", ".json") or os.path.lexists(out):
            raise UserError(f"OUT {out} must be the name of a new file *.eval or *.json")
        require("inspect_ai")
        from ...agents.interop.inspect_ai import write_log  # late imports: slow
        from ...algorithms.runs.records import read_text_episodes

        write_log(read_text_episodes(arguments.directory), out)
    print_line(f"log: {out}")
