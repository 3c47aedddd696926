"""Export of a run's models as folders for transformers, each with a model card."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..._errors import UserError, nearest
from ..._json import read_json
from ..markdown import markdown_table

CARD = "README.md"
EPISODES = "episodes.jsonl"
TAGS = ["collm", "multi-agent", "reinforcement-learning"]
# Names of models on the hub. The hub rejects paths as `base_model`, and its model "tiny" is not the embedded model.
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
ADAPTER = "adapter_config.json"
POLICY = "collm_policy.json"
OWN_FILES = (POLICY, "value_head.safetensors", CARD)  # transformers ignores them; peft's card is empty
CODE_FILES = ("*.py", "*.pyc")
DECODING = ("sampled", "greedy")
PACKAGES = ("collm", "torch", "transformers", "peft")
EXAMPLE = """import collm
import torch
from collm.agents.encoding import Encoder
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

model = AutoModelForCausalLM.from_pretrained({name!r})  # needs peft if the folder contains an adapter
tokenizer = AutoTokenizer.from_pretrained({name!r})
model.generation_config = GenerationConfig.from_pretrained({name!r})  # samples as in training
observations, infos = collm.make({env!r}, **{env_kwargs}).reset(seed=0)
encoder = Encoder(tokenizer, is_chat={is_chat}, template_kwargs={template_kwargs})
prompt, _ = encoder.prompt(observations[{agent!r}])
output = model.generate(torch.tensor(prompt[None]), max_new_tokens={max_new_tokens})
print(encoder.text(output[0, len(prompt) :].tolist(), prompt))
"""
DATASET_EXAMPLE = """from datasets import load_dataset

episodes = load_dataset({name!r}, split="train")
print(episodes[0]["return"])
"""
TEAM_EXAMPLE = """import collm
from huggingface_hub import snapshot_download

team = collm.load_team(snapshot_download({name!r}))
print(team.evaluate(num_episodes=10).team_return)
observations, infos = collm.make({env!r}, **{env_kwargs}).reset(seed=0)
print(team.act(observations, infos, greedy=True))
"""


def model_folders(directory: Path, agent: str | None) -> dict[str, Path]:
    """Folders of a run's language models, as a dict with agents as keys. `agent` None: all agents."""
    from ...algorithms.runs.files import read_config  # late import: help needs no torch

    read_config(directory)  # raises an error if the folder is not a run
    found = {path.name: path for path in sorted((directory / "agents").glob("*")) if path.is_dir()}
    if not found:
        raise UserError(f"{directory} has no models yet; finish the training, which writes them")
    if agent is not None and agent not in found:
        raise UserError(f"the run has no agent {agent!r}; {nearest(agent, found)}")
    chosen = found if agent is None else {agent: found[agent]}
    for name, path in chosen.items():
        if not any((path / file).is_file() for file in ("config.json", ADAPTER)):
            raise UserError(f"{name!r} is not a language model: {path} has no config.json")
        if link := next((each for each in path.rglob("*") if each.is_symlink()), None):
            raise UserError(
                f"{link} is a symbolic link and would export a file outside of the run; replace the link by the file"
            )
    return chosen


def export(folder: Path, target: Path, *, is_merged: bool) -> None:
    """Write a model and its tokenizer to a folder. Raise UserError if its adapter cannot be merged."""
    is_adapter = (folder / ADAPTER).is_file()
    if is_merged and not is_adapter:
        raise UserError(f"{folder} has a complete model and no adapter to merge; remove --merge")
    settings = read_json(folder / ADAPTER) if is_adapter else {}
    base = Path(str(settings.get("base_model_name_or_path")))
    if base.suffix.lower() == ".gguf" and not is_merged:
        raise UserError(f"{folder} is an adapter of {base}, which peft cannot load; add --merge")
    model = None
    if not is_merged:
        from safetensors.torch import load_file  # late imports: help needs no torch

        from ...agents.language.model_files import check_finite, check_weights

        check_weights(folder)
        for file in folder.glob("*.safetensors"):
            check_finite(folder, load_file(file).items())
    else:
        from ...agents.language.model_files import check_language_model
        from ...agents.language.pretrained import load_model

        check_language_model(folder)
        model = load_model(folder)  # before files are written, because the adapter may not fit its base model
    ignored = (*OWN_FILES, *CODE_FILES, *(("adapter_*",) if is_merged else ()))
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns(*ignored), dirs_exist_ok=True)
    if model is not None:
        model.save_pretrained(str(target))
    elif base.is_dir():  # relative to the working directory of the run
        settings["base_model_name_or_path"] = str(base.resolve())
        (target / ADAPTER).write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")


def without_code(folder: Path, target: Path) -> list[str]:
    """Remove references to Python code from an exported model. Return the names of the removed parts."""
    removed = [path.name for pattern in CODE_FILES for path in sorted(folder.rglob(pattern))]
    for path in sorted(target.rglob("*config.json")):
        settings = read_json(path)
        if settings.pop("auto_map", None) is not None:
            path.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            removed.append(f"auto_map of {path.name}")
    return removed


def dataset_card(repo: str, license_id: str | None) -> str:
    """Build the card of the episodes of the team `repo`, which `datasets.load_dataset` reads."""
    from huggingface_hub import DatasetCardData  # late import: help needs no hub

    configs = [{"config_name": "default", "data_files": EPISODES}]
    data = DatasetCardData(license=license_id, task_categories=["reinforcement-learning"], tags=TAGS, configs=configs)
    parts = [
        f"# Episodes of the team {repo}",
        "Episodes of a team of language models in training, recorded by collm.",
        f"```python\n{DATASET_EXAMPLE.format(name=f'{repo}-episodes')}```",
    ]
    return _with_metadata(data, parts)


def card(directory: Path, name: str, agent: str | None = None, **metadata: Any) -> str:
    """Build a model card with metadata, an example, the training, its results and its settings.

    Args:
        name: folder or hub repository of the model, for the example.
        agent: agent of the model. None: the card of the whole team.
        metadata: further fields of `huggingface_hub.ModelCardData`: `library_name` (package that loads the model:
            transformers, peft, or collm for a team), `license` (the hub's identifier, such as apache-2.0; None:
            unknown) and `datasets` (hub repositories of the run's episodes; None: not on the hub).
    """
    from huggingface_hub import ModelCardData  # late import: help needs no hub

    from ...algorithms.runs.files import read_config, read_lines

    config = read_config(directory)
    bases = hub_bases(config, directory)
    files = (directory / "metrics.jsonl", directory / "evaluation.jsonl")
    rows, evaluations = (read_lines(file) if file.is_file() else [] for file in files)
    if evaluations:
        metadata["model_name"] = name.rpartition("/")[2]
        metadata["eval_results"] = _eval_results(config["env"], evaluations[-1])
    base = bases[0] if len(bases) == 1 else bases or None
    data = ModelCardData(base_model=base, pipeline_tag="text-generation", tags=TAGS, **metadata)
    subject = "A team" if agent is None else "One agent of a team"
    settings = _without_paths({**config["config"], **config["model"]}, directory)
    parts = [
        f"# {agent or name}, trained by {config['algorithm']} on {config['env']}",
        f"{subject} of language models that learned to work together, trained with collm.",
        _facts(config, directory, agent, bases, rows[-1] if rows else {}),
        *([_held_out(evaluations)] if evaluations else []),
        f"```python\n{_example(config, name, directory, agent)}```",
        f"## All settings\n\n```json\n{json.dumps(settings, indent=2, ensure_ascii=False)}\n```",
    ]
    return _with_metadata(data, parts)


def _with_metadata(data: Any, parts: Sequence[str]) -> str:
    return "\n\n".join([f"---\n{data.to_yaml().rstrip()}\n---", *parts]) + "\n"


def _facts(
    config: Mapping[str, Any], directory: Path, agent: str | None, bases: Sequence[str], last: Mapping[str, Any]
) -> str:
    """Return a table of the training. `last`: the last line of the metrics."""
    facts = {
        "algorithm": config["algorithm"],
        "environment": config["env"],
        "its arguments": json.dumps(_without_paths(config["env_kwargs"], directory), ensure_ascii=False),
        "agent": agent or "all",
        "base model": ", ".join(bases) or f"{_local_names(config)}, not on the hub",
        "weights": config["model"]["weights"],
        "updates": last.get("update", 0),
        "environment steps": last.get("environment_steps", "?"),
        "seed": config["config"]["seed"],
        "exported with": ", ".join(f"{each} {version(each)}" for each in PACKAGES),
    }
    return markdown_table(("", ""), [(fact, f"`{value}`") for fact, value in facts.items()])


def _local_names(config: Mapping[str, Any]) -> str:
    """Return the names of a run's models, without the folders that contain them."""
    return ", ".join(dict.fromkeys(Path(name).name for name in config["model"]["model"].split(",")))


def hub_bases(config: Mapping[str, Any], directory: Path) -> list[str]:
    """Return the hub names of a run's base models. Local models are left out."""
    names = dict.fromkeys(config["model"]["model"].split(","))
    return [name for name in names if REPOSITORY.fullmatch(name) and not _is_local(name, directory)]


def shared_config(directory: Path) -> dict[str, Any]:
    """Return a run's settings without local paths."""
    from ...algorithms.runs.files import read_config

    config = read_config(directory)
    return {name: _without_paths(part, directory) if isinstance(part, dict) else part for name, part in config.items()}


def _eval_results(env: str, row: Mapping[str, Any]) -> list[Any]:
    from huggingface_hub import EvalResult

    values = {f"mean return of the team, {how}": row[f"evaluation/{how}/return"] for how in DECODING}
    return [
        EvalResult("reinforcement-learning", env, env, "mean_reward", value, metric_name=name)
        for name, value in values.items()
    ]


def _example(config: Mapping[str, Any], name: str, directory: Path, agent: str | None) -> str:
    """Return a script in which an agent, or the team, answers the first observation of an episode."""
    values = {"name": name, "env": config["env"], "env_kwargs": _without_paths(config["env_kwargs"], directory)}
    if agent is None:
        return TEAM_EXAMPLE.format(**values)
    settings = read_json(directory / "agents" / agent / POLICY)
    names = ("is_chat", "template_kwargs", "max_new_tokens")
    return EXAMPLE.format(**values, agent=agent, **{each: repr(settings[each]) for each in names})


def _is_local(name: str, directory: Path) -> bool:
    """True if the name is an absolute path, or exists in the working directory or in a folder above the run."""
    return Path(name).is_absolute() or any((place / name).exists() for place in (Path(), *directory.resolve().parents))


def _without_paths(settings: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """Replace local paths by "local", because a published model card must not contain them."""

    def is_path(name: str, value: Any) -> bool:
        is_candidate = isinstance(value, str) and ("/" in value or "model" in name)
        return is_candidate and any(_is_local(part, directory) for part in value.split(","))

    return {name: "local" if is_path(name, value) else value for name, value in settings.items()}


def _held_out(evaluations: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of the first and the last evaluation: returns of the team and, if interests differ, of agents."""
    from ...algorithms.runs.evaluation import agents_in, interval_in

    table = []
    for row in {row["update"]: row for row in (evaluations[0], evaluations[-1])}.values():
        own = {f"{row['update']}, {agent}": f"return/{agent}" for agent in agents_in(row)}
        for label, name in {str(row["update"]): "return", **own}.items():
            table.append([label, *(str(interval_in(row, f"evaluation/{how}/{name}")) for how in DECODING)])
    header = ("after update", *DECODING)
    return f"Mean return of the team on held-out tasks [95 %]:\n\n{markdown_table(header, table)}"
