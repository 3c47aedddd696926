"""`collm export RUN OUT`: write a run's models as folders for transformers, each with a model card."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from ..._errors import nearest
from ..._json import explained_content, read_json
from ..._ranges import Checked
from ..._terminal import shown, terminal
from ..arguments import parsed
from ..errors import UserError, check_folder, refusals
from ..markdown import markdown_table

CARD = "README.md"
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
"""Names of models on the hub. The hub refuses paths as `base_model`, and "tiny" would be another person's model."""
ADAPTER = "adapter_config.json"
OWN_FILES = ("collm_policy.json", "value_head.safetensors", CARD)
"""Files of a run's model folder that transformers does not use, and peft's blank card."""
CODE_FILES = ("*.py", "*.pyc")
EXAMPLES = ("collm export runs/build models", "collm export runs/build models --agent builder_0 --merge")


@dataclass(frozen=True, kw_only=True)
class ExportArguments(Checked):
    """Write a run's models for use without collm: one folder per agent, or OUT itself with --agent."""

    directory: Positional[Path]
    """Run directory of `collm train`."""
    out: Positional[Path]
    """Output folder, which must be new or empty."""
    agent: str | None = None
    """Agent whose model is written. None: all agents."""
    merge: bool = False
    """Merge adapters into their base model. False: write the adapters, which need the base model."""
    trust: bool = False
    """With `--merge`, allow base models outside of the run's folder. Only for folders whose author you trust."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(ExportArguments, "export", args, examples=EXAMPLES)
    with refusals():
        folders = model_folders(arguments.directory, arguments.agent)
        check_folder(arguments.out, "OUT")
        if arguments.out.is_dir() and any(arguments.out.iterdir()):
            raise UserError(f"OUT {arguments.out} is not empty; give a new folder")
        if arguments.merge and not arguments.trust:
            from ...algorithms.runs.assembly.trust import refuse_untrusted_models  # here, as help needs no torch

            refuse_untrusted_models(arguments.directory)
        targets = {agent: arguments.out if arguments.agent else arguments.out / agent for agent in folders}
        for agent, folder in folders.items():
            with explained_content(arguments.directory):
                is_adapter = (folder / ADAPTER).is_file() and not arguments.merge
                text = card(arguments.directory, agent, targets[agent].name, is_adapter=is_adapter)
            export(folder, targets[agent], is_merged=arguments.merge)
            leave_out_code(folder, targets[agent])
            (targets[agent] / CARD).write_text(text, encoding="utf-8", errors="backslashreplace")
    for target in targets.values():
        terminal().print(f"model: {shown(target)}", markup=False, highlight=False, soft_wrap=True)


def model_folders(directory: Path, agent: str | None) -> dict[str, Path]:
    """Folders of a run's language models, by agent."""
    from ...algorithms.runs.files import read_config  # here, as help needs no torch

    read_config(directory)  # raises if the folder is not a run
    found = {path.name: path for path in sorted((directory / "agents").glob("*")) if path.is_dir()}
    if not found:
        raise UserError(f"{directory} has no models yet; they are written at the end of the training")
    if agent is not None and agent not in found:
        raise UserError(f"the run has no agent {agent!r}; {nearest(agent, found)}")
    chosen = found if agent is None else {agent: found[agent]}
    for name, path in chosen.items():
        if not any((path / file).is_file() for file in ("config.json", ADAPTER)):
            raise UserError(f"{name!r} is not a language model: {path} has no config.json")
        if link := next((each for each in path.rglob("*") if each.is_symlink()), None):
            raise UserError(
                f"{link} is a symbolic link and would export a file outside of the run; replace it by the file"
            )
    return chosen


def export(folder: Path, target: Path, *, is_merged: bool) -> None:
    """Write one model with its tokenizer."""
    is_adapter = (folder / ADAPTER).is_file()
    if is_merged and not is_adapter:
        raise UserError(f"{folder} has a whole model and no adapter; remove --merge")
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns(*OWN_FILES, *CODE_FILES), dirs_exist_ok=True)
    if not is_adapter:
        return
    settings = read_json(target / ADAPTER)
    base = settings.get("base_model_name_or_path")
    if not isinstance(base, str):
        raise UserError(
            f"{folder / ADAPTER} has no base_model_name_or_path; save the adapter again with its base model"
        )
    if not is_merged:
        if Path(base).is_dir():  # relative to the working directory of the run
            settings["base_model_name_or_path"] = str(Path(base).resolve())
            (target / ADAPTER).write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
        return
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    from ...agents.language.model_files import check_language_model, reason
    from ...agents.loading import peft_of_old_names

    transformers_logging.disable_progress_bar()
    check_language_model(folder)
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, trust_remote_code=False)
        with peft_of_old_names():
            merged: Any = PeftModel.from_pretrained(loaded, str(folder)).merge_and_unload()
    except Exception as error:  # transformers and peft raise many types for invalid files
        raise UserError(f"the adapter {folder} cannot be merged: {reason(error)}") from error
    for file in target.glob("adapter_*"):
        file.unlink()
    merged.save_pretrained(str(target))


def leave_out_code(folder: Path, target: Path) -> None:
    """Remove references to Python code from an exported model, and print what was removed."""
    left_out = [path.name for pattern in CODE_FILES for path in sorted(folder.rglob(pattern))]
    for path in sorted(target.rglob("*config.json")):
        settings = read_json(path)
        if settings.pop("auto_map", None) is not None:
            path.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            left_out.append(f"auto_map of {path.name}")
    if left_out:
        line = f"not exported, because it is code: {shown(', '.join(left_out))}"
        terminal().print(line, markup=False, highlight=False, soft_wrap=True)


def card(directory: Path, agent: str, name: str, *, is_adapter: bool) -> str:
    """Model card with the training, its results and its settings.

    Args:
        directory: run directory.
        agent: agent of the model.
        name: name of the exported folder.
        is_adapter: whether the model is an adapter.
    """
    from ...algorithms.runs.files import read_config, read_lines

    config = read_config(directory)
    model = config["model"]["model"]
    base = model if REPOSITORY.fullmatch(model) and not _is_local(model, directory) else None
    rows = read_lines(directory / "metrics.jsonl") if (directory / "metrics.jsonl").is_file() else []
    evaluations = read_lines(directory / "evaluation.jsonl") if (directory / "evaluation.jsonl").is_file() else []
    last: Mapping[str, Any] = rows[-1] if rows else {}
    facts = [
        ("algorithm", config["algorithm"]),
        ("environment", config["env"]),
        ("its arguments", json.dumps(_without_paths(config["env_kwargs"], directory), ensure_ascii=False)),
        ("agent", agent),
        ("base model", base or "not on the hub"),
        ("weights", config["model"]["weights"]),
        ("updates", last.get("update", 0)),
        ("environment steps", last.get("environment_steps", "?")),
        ("seed", config["config"]["seed"]),
    ]
    loader = "AutoPeftModelForCausalLM" if is_adapter else "AutoModelForCausalLM"
    package = "peft" if is_adapter else "transformers"
    parent = f"base_model: {json.dumps(base)}\n" if base else ""
    parts = [
        f"---\nlibrary_name: {package}\n{parent}tags: [collm, multi-agent, reinforcement-learning]\n---",
        f"# {agent}, trained by {config['algorithm']} on {config['env']}",
        "One agent of a team of language models that learned to work together, trained with collm.",
        markdown_table(("", ""), [(fact, f"`{value}`") for fact, value in facts]),
        f"```python\nfrom {package} import {loader}\nfrom transformers import AutoTokenizer\n\n"
        f'model = {loader}.from_pretrained("{name}")\n'
        f'tokenizer = AutoTokenizer.from_pretrained("{name}")\n```',
    ]
    if evaluations:
        header = ("after update", "sampled", "greedy")
        ends = {row["update"]: row for row in (evaluations[0], evaluations[-1])}
        table = markdown_table(header, [_held_out(row) for row in ends.values()])
        parts.insert(4, f"Mean return of the team on held-out tasks [95 %]:\n\n{table}")
    settings = _without_paths({**config["config"], **config["model"]}, directory)
    parts.append(f"## All settings\n\n```json\n{json.dumps(settings, indent=2, ensure_ascii=False)}\n```")
    return "\n\n".join(parts) + "\n"


def _is_local(name: str, directory: Path) -> bool:
    """True if a name is an existing path, relative to the working directory or to a folder above the run."""
    return Path(name).is_absolute() or any((place / name).exists() for place in (Path(), *directory.resolve().parents))


def _without_paths(settings: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """Replace local paths by "local", because a published card must not contain them."""

    def is_path(name: str, value: Any) -> bool:
        return isinstance(value, str) and ("/" in value or "model" in name) and _is_local(value, directory)

    return {name: "local" if is_path(name, value) else value for name, value in settings.items()}


def _held_out(row: Mapping[str, Any]) -> list[str]:
    numbers = [
        "{:.3f} [{:.3f}, {:.3f}]".format(*(row[f"evaluation/{how}/return{end}"] for end in ("", "_low", "_high")))
        for how in ("sampled", "greedy")
    ]
    return [str(row["update"]), *numbers]
