"""Build the page: tasks, rules and models as JSON, with the scripts that play the environments in a browser."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from importlib.resources import files
from inspect import signature
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from safetensors.torch import load_file

from ..._errors import UserError
from ..._json import explained_content, read_json
from ...algorithms.runs.assembly.trust import load_experiment
from ...envs.coding.mini_code import rules as code_rules
from ...envs.coding.mini_code.env import MiniCode
from ...envs.core import TextParallelEnv
from ...envs.games.mini_build.env import MiniBuild
from ...envs.games.mini_shift.env import MiniShift
from ...envs.games.mini_shift.rules import new_shift
from ...envs.writing.mini_writing.env import MiniWriting
from ...envs.writing.mini_writing.prompts import explanation
from ...envs.writing.mini_writing.rules import KINDS, TOPICS
from ..sharing.export import ADAPTER, export, model_folders

WORLDS = {world.__name__: world for world in (MiniBuild, MiniShift, MiniWriting, MiniCode)}
MAX_WEIGHTS = 5_000_000  # a browser decodes a larger model too slowly, and the page is too large
NUM_TASKS = 40
ASSETS = files(__package__) / "assets"
LAYER = (
    *("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    *("post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
)


def page_of(runs: Sequence[Path], *, trust: bool = False) -> str:
    """Return the page as HTML, with one game per run.

    Raises:
        UserError: if a run's environment is not a Mini environment, or a model cannot run in the browser.
    """
    models: list[dict[str, Any]] = []
    games = [_game(directory, models, trust=trust) for directory in runs]
    data = json.dumps({"games": games, "models": models}, separators=(",", ":")).replace("<", "\\u003c")
    scripts = "\n".join((ASSETS / name).read_text("utf-8") for name in ("model.js", "worlds.js", "page.js"))
    parts = {"STYLE": (ASSETS / "page.css").read_text("utf-8"), "SCRIPT": scripts, "DATA": data}
    page = (ASSETS / "page.html").read_text("utf-8")
    for name, text in parts.items():
        page = page.replace(f"{{{{{name}}}}}", text)
    return page


def _game(directory: Path, models: list[dict[str, Any]], *, trust: bool) -> dict[str, Any]:
    experiment = load_experiment(directory, trust=trust)
    if experiment.model.is_chat:
        raise UserError(
            f"{directory} was trained with is_chat=True; the page plays only models without a chat template"
        )
    with closing(experiment.make_env("test")) as env:
        world = WORLDS.get(type(env).__name__)
        if world is None or type(env) is not world:
            raise UserError(f"{directory} was trained on {experiment.env}; the page plays only {', '.join(WORLDS)}")
        settings = _settings(world, experiment.env_kwargs_of("test"))
        tasks = [_task(cast(TextParallelEnv, env), number, settings) for number in range(NUM_TASKS)]
        agents = env.possible_agents
    return {
        "world": world.__name__,
        "title": f"{world.__name__}, {experiment.algorithm}",
        "agents": agents,
        "rules": _rules(world, settings, agents),
        "settings": settings,
        "tasks": tasks,
        "models": {agent: _index(folder, models) for agent, folder in model_folders(directory, None).items()},
        "max_new_tokens": experiment.team_model.max_new_tokens,
    }


def _settings(world: type[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments of an environment, with the defaults of its class and its base classes."""
    found: dict[str, Any] = {}
    for each in reversed(world.__mro__[:-1]):
        found |= {name: one.default for name, one in signature(each).parameters.items()}
    found |= kwargs
    return {name: value for name, value in found.items() if isinstance(value, (str, int, float))}


def _rules(world: type[Any], settings: Mapping[str, Any], agents: Sequence[str]) -> dict[str, str]:
    """Return the rules that the environment explains to each agent, without the task at the end."""
    if world is MiniWriting:
        return {agent: explanation(agent) for agent in agents}
    env = world(**dict(settings) | {"is_explained": True})
    histories, _ = env.reset(seed=0)
    return {agent: history.messages[-1].content.rpartition("\n")[0] for agent, history in histories.items()}


def _task(env: TextParallelEnv, number: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    histories, _ = env.reset(seed=number, options={"task": number})
    openings = {agent: [message.content for message in history.messages] for agent, history in histories.items()}
    return {"openings": openings, "facts": _facts(env, number, settings)}


def _facts(env: TextParallelEnv, number: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the rules in the browser need of a task."""
    if isinstance(env, MiniBuild):
        return {"goal": env.goal}
    if isinstance(env, MiniShift):
        offers = new_shift(
            number,
            num_builders=len(env.possible_agents),
            num_turns=env.max_turns,
            split=env.split,
            is_shuffled=settings["is_shuffled"],
        )
        return {"offers": [offer.pairs for offer in offers], "lists": [offer.lists for offer in offers]}
    if isinstance(env, MiniWriting):
        known = [sorted({word for topic in TOPICS.values() for word in getattr(topic, kind)}) for kind in KINDS]
        return {"facts": env.task.facts, "known": known}
    assert isinstance(env, MiniCode)
    inputs = code_rules.new_inputs(Random(number), env.task, settings["num_tests"])
    return {**asdict(env.task), "inputs": inputs}


def _index(folder: Path, models: list[dict[str, Any]]) -> int:
    """Return the index of a model in `models`. A new model is added."""
    with TemporaryDirectory() as temporary, explained_content(folder):
        target = Path(temporary)
        export(folder, target, is_merged=(folder / ADAPTER).is_file())
        model = _model(target, folder)
    if model not in models:
        models.append(model)
    return models.index(model)


def _model(target: Path, folder: Path) -> dict[str, Any]:
    config = read_json(target / "config.json")
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    rope = config.get("rope_parameters") or {}
    can_run = (
        config.get("model_type") == "llama"
        and config.get("num_key_value_heads") == config["num_attention_heads"]
        and config.get("hidden_act") == "silu"
        and config.get("tie_word_embeddings")
        and not (config.get("attention_bias") or config.get("mlp_bias"))
        and rope.get("rope_type", "default") == "default"
        and (target / "model.safetensors").is_file()
    )
    if not can_run:
        raise UserError(f"{folder} is not like the embedded model, the only one that runs in the browser")
    tensors = load_file(target / "model.safetensors")
    if (size := sum(each.numel() for each in tensors.values())) > MAX_WEIGHTS:
        raise UserError(f"{folder} has {size:,} weights; the page allows at most {MAX_WEIGHTS:,}")
    kept = "hidden_size intermediate_size vocab_size num_attention_heads num_hidden_layers eos_token_id".split()
    return {
        "config": {name: config[name] for name in kept}
        | {"head_dim": head_dim, "rope_theta": rope.get("rope_theta") or config.get("rope_theta", 10_000.0)},
        "weights": _halves(tensors, config["num_hidden_layers"]),
        "tokenizer": _tokenizer(read_json(target / "tokenizer.json")),
    }


def _halves(tensors: Mapping[str, torch.Tensor], num_layers: int) -> str:
    """Return the weights as base64 of 16-bit floating-point numbers, in the order that model.js reads."""
    names = ["embed_tokens", *(f"layers.{layer}.{name}" for layer in range(num_layers) for name in LAYER), "norm"]
    parts = [tensors[f"model.{name}.weight"].to(torch.float16).flatten() for name in names]
    return base64.b64encode(torch.cat(parts).numpy().tobytes()).decode()


def _tokenizer(saved: Mapping[str, Any]) -> dict[str, Any]:
    model = saved["model"]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    return {"vocab": model["vocab"], "merges": merges, "control": [token["id"] for token in saved["added_tokens"]]}
