"""Export of a run's models as folders for transformers, each with a model card."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from pprint import pformat
from tempfile import TemporaryDirectory
from typing import Any

from ..._errors import UserError, nearest
from ..._json import read_json
from ...agents.config import TINY
from ...agents.tiny import STARTS
from ..markdown import markdown_table

CARD = "README.md"
EPISODES = "episodes.jsonl"
TAGS = ["collm", "multi-agent", "reinforcement-learning"]
# Names of models on the hub. The hub rejects paths as `base_model`, and its model "tiny" is not the embedded model.
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
ADAPTER = "adapter_config.json"
POLICY = "collm_policy.json"
OWN_FILES = ("value_head.safetensors", CARD)  # transformers ignores the first; peft's card is empty
CODE_FILES = ("*.py", "*.pyc")
DECODING = ("sampled", "greedy")
PACKAGES = ("collm", "torch", "transformers", "peft")
EXAMPLE = """from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

path = {path}
model = AutoModelForCausalLM.from_pretrained(path)  # needs peft if the folder contains an adapter
tokenizer = AutoTokenizer.from_pretrained(path)
model.generation_config = GenerationConfig.from_pretrained(path)  # samples as in training
messages = {messages}
inputs = {inputs}
output = model.generate(**inputs)
print(tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))
"""
CHAT_INPUTS = """tokenizer.apply_chat_template(
    messages, add_generation_prompt=True, return_dict=True, return_tensors="pt"{more}
)"""
PLAIN_INPUTS = """tokenizer("".join(message["content"] + "\\n" for message in messages), return_tensors="pt")"""
DATASET_EXAMPLE = """from datasets import load_dataset

episodes = load_dataset({name!r}, split="train")
print(episodes[0]["return"])
"""
TEAM_EXAMPLE = """import collm
from huggingface_hub import snapshot_download

team = collm.load_team(snapshot_download({name!r}))
print(team.evaluate(num_episodes=10).team_return)
observations, infos = collm.make({env!r}{more}).reset(seed=0)
print(team.act(observations, infos, greedy=True))
"""


@dataclass(frozen=True)
class SharedRun:
    """Run whose models are exported or uploaded. `opened` makes it."""

    directory: Path
    models: Mapping[str, Path]  # folders of the models, with agents as keys
    base_model: str | None  # name that cards and adapters give to the base model. None: as in the run

    @classmethod
    @contextmanager
    def opened(cls, directory: Path, agent: str | None, base_model: str | None, *, trust: bool) -> Iterator[SharedRun]:
        """Yield a run with the model of one agent. `agent` None: the models of all agents.

        Models of a run that was stopped are read from its newest checkpoint, and written to a temporary folder.
        """
        from ...algorithms.runs.files import agents_folder, read_config  # late imports: errors need no torch

        read_config(directory)  # raises an error if the folder is not a run
        from ...algorithms.runs.checkpoint import has_newest_models

        with ExitStack() as stack:
            place = agents_folder(directory)
            if not has_newest_models(directory):
                from ...algorithms.runs.team import load_team

                team = load_team(directory, trust=trust)
                place = team.save(stack.enter_context(TemporaryDirectory(prefix="collm-models-")))
            found = {path.name: path for path in sorted(place.glob("*")) if path.is_dir()}
            if not found:
                raise UserError(f"{directory} has no models yet; finish the training, which writes them")
            if agent is not None and agent not in found:
                raise UserError(f"the run has no agent {agent!r}; {nearest(agent, found)}")
            models = found if agent is None else {agent: found[agent]}
            for name, path in models.items():
                if not any((path / file).is_file() for file in ("config.json", ADAPTER)):
                    raise UserError(f"{name!r} is not a language model: {path} has no config.json")
                if link := next((each for each in path.rglob("*") if each.is_symlink()), None):
                    raise UserError(
                        f"{link} is a symbolic link and would export a file outside of the run; replace it by the file"
                    )
            yield cls(directory, models, base_model)

    @cached_property
    def config(self) -> dict[str, Any]:
        from ...algorithms.runs.files import read_config

        return read_config(self.directory)

    @property
    def bases(self) -> list[str]:
        """Names of the base models on the hub. Local models are left out."""
        names = self.config["model"]["model"].split(",") if self.base_model is None else [self.base_model]
        return [each for each in dict.fromkeys(names) if REPOSITORY.fullmatch(each) and not self._is_local(each)]

    @property
    def public_config(self) -> dict[str, Any]:
        """Settings of the run. "local" replaces local paths, which a published file must not contain."""
        return {name: self._public(name, part) for name, part in self.config.items()}

    def export(self, agent: str, target: Path, *, is_merged: bool) -> list[str]:
        """Write a model, its tokenizer and settings to a folder, without Python code.

        Returns the names of the parts that were left out because they are code or refer to code. Raises UserError if
        the model's adapter cannot be merged.
        """
        folder = self.models[agent]
        is_adapter = (folder / ADAPTER).is_file()
        if is_merged and not is_adapter:
            raise UserError(f"{folder} has a complete model and no adapter to merge; remove --merge")
        settings = read_json(folder / ADAPTER) if is_adapter else {}
        base = Path(str(settings.get("base_model_name_or_path")))
        if base.suffix.lower() == ".gguf" and not is_merged and self.base_model is None:
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
        elif is_adapter and (self.base_model is not None or base.is_dir()):
            # A path is relative to the working directory of the run.
            settings["base_model_name_or_path"] = self.base_model or str(base.resolve())
            (target / ADAPTER).write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
        removed = [path.name for pattern in CODE_FILES for path in sorted(folder.rglob(pattern))]
        for path in sorted(target.rglob("*config.json")):
            settings = read_json(path)
            if settings.pop("auto_map", None) is not None:
                path.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
                removed.append(f"auto_map of {path.name}")
        return removed

    def card(self, name: str, agent: str | None = None, **metadata: Any) -> str:
        """Build a model card with metadata, an example, the training, its results and its settings.

        Args:
            name: folder of the model, or hub repository of the team, for the example.
            agent: agent of the model. None: the card of the whole team.
            metadata: further fields of `huggingface_hub.ModelCardData`: `library_name` (package that loads the model:
                transformers, peft, or collm for a team), `license` (the hub's identifier, such as apache-2.0; None:
                unknown) and `datasets` (hub repositories of the run's episodes; None: not on the hub).
        """
        from huggingface_hub import ModelCardData  # late import: help needs no hub

        from ...algorithms.runs.files import read_lines

        config, bases = self.public_config, self.bases
        files = (self.directory / "metrics.jsonl", self.directory / "evaluation.jsonl")
        rows, evaluations = (read_lines(file) if file.is_file() else [] for file in files)
        if evaluations:
            metadata["model_name"] = name.rpartition("/")[2]
            metadata["eval_results"] = _eval_results(config["env"], evaluations[-1])
        base = bases[0] if len(bases) == 1 else bases or None
        data = ModelCardData(base_model=base, pipeline_tag="text-generation", tags=TAGS, **metadata)
        subject = "A team" if agent is None else "One agent of a team"
        settings = {**config["config"], **config["model"]}
        parts = [
            f"# {agent or name}, trained by {config['algorithm']} on {config['env']}",
            f"{subject} of language models that learned to work together, trained with collm.",
            self._facts(agent, rows[-1] if rows else {}),
            *([_held_out(evaluations)] if evaluations else []),
            *(f"```python\n{example}```" for example in self._examples(name, agent)),
            f"## All settings\n\n```json\n{json.dumps(settings, indent=2, ensure_ascii=False)}\n```",
        ]
        return _with_metadata(data, parts)

    def _facts(self, agent: str | None, last: Mapping[str, Any]) -> str:
        """Return a table of the training. `last`: the last line of the metrics."""
        config, names = self.public_config, self.config["model"]["model"].split(",")
        local = "tiny, which is part of collm" if {TINY, *STARTS}.issuperset(names) else "a local model"
        facts = {
            "algorithm": config["algorithm"],
            "environment": config["env"],
            "its arguments": json.dumps(config["env_kwargs"], ensure_ascii=False),
            "agent": agent or "all",
            "base model": ", ".join(self.bases) or local,
            "weights": config["model"]["weights"],
            "updates": last.get("update", 0),
            "environment steps": last.get("environment_steps", "?"),
            "seed": config["config"]["seed"],
            "exported with": ", ".join(f"{each} {version(each)}" for each in PACKAGES),
        }
        return markdown_table(("", ""), [(fact, f"`{value}`") for fact, value in facts.items()])

    def _examples(self, name: str, agent: str | None) -> list[str]:
        """Return scripts that answer an agent's first observation with transformers, and play with the team."""
        from ...algorithms.runs.files import each_line

        config, start, path, examples = self.public_config, "", repr(name), []
        if agent is None:
            agent, start = next(iter(self.models)), "from huggingface_hub import snapshot_download\n"
            path = f"snapshot_download({name!r}) + '/agents/{agent}'"
            if config["env_kwargs"] == self.config["env_kwargs"]:  # nobody else has the author's local data
                examples.append(TEAM_EXAMPLE.format(name=name, more=_unpacked(config["env_kwargs"]), **config))
        settings, file = read_json(self.models[agent] / POLICY), self.directory / EPISODES
        row = next((row for row, _ in each_line(file)), {}) if file.is_file() else {}
        turns = row.get("agents", {}).get(agent, {}).get("turns") or [{"read": [{"role": "user", "content": "…"}]}]
        messages = [{"role": each["role"], "content": each["content"]} for each in turns[0]["read"]]
        more = _unpacked(settings["template_kwargs"])
        inputs = CHAT_INPUTS.format(more=more) if settings["is_chat"] else PLAIN_INPUTS
        shown = pformat(messages, width=110, sort_dicts=False)
        return [*examples, start + EXAMPLE.format(path=path, messages=shown, inputs=inputs)]

    def _public(self, name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: self._public(key, each) for key, each in value.items()}
        is_candidate = isinstance(value, str) and ("/" in value or "model" in name or name in ("data", "prompts"))
        return "local" if is_candidate and any(map(self._is_local, value.split(","))) else value

    def _is_local(self, name: str) -> bool:
        """True if the name is an absolute path, or exists in the working directory or in a folder above the run."""
        places = (Path(), *self.directory.resolve().parents)
        return Path(name).is_absolute() or any((place / name).exists() for place in places)


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


def _with_metadata(data: Any, parts: Sequence[str]) -> str:
    return "\n\n".join([f"---\n{data.to_yaml().rstrip()}\n---", *parts]) + "\n"


def _unpacked(kwargs: Mapping[str, Any]) -> str:
    """Return code that passes the keyword arguments after others. Empty if there are none."""
    return f", **{kwargs}" if kwargs else ""


def _eval_results(env: str, row: Mapping[str, Any]) -> list[Any]:
    from huggingface_hub import EvalResult

    values = {f"mean return of the team, {how}": row[f"evaluation/{how}/return"] for how in DECODING}
    return [
        EvalResult("reinforcement-learning", env, env, "mean_reward", value, metric_name=name)
        for name, value in values.items()
    ]


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
