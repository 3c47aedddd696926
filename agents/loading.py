"""Loading of language models by name: separate weights, shared weights, or one LoRA adapter per agent."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache
from huggingface_hub.constants import HF_HUB_OFFLINE
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from .._errors import UserError
from .._json import explained_content, read_json
from .config import ALL_LINEAR, MAX_NEW_TOKENS, TINY, ModelConfig
from .decoding.adapters import REFERENCE
from .decoding.base import context_of
from .decoding.sampling import Sampling
from .decoding.steps.graph_steps import check_graphs
from .encoding import Encoder
from .language.chat import chat_spec
from .language.model import LanguageModel
from .language.model_files import (
    GGUF,
    WEIGHTS,
    adapter_settings,
    check_language_model,
    model_config,
    reason,
    tokenizer_of,
    unusual_setting,
)
from .language.policy import SETTINGS_FILE, LanguagePolicy
from .language.pretrained import load_adapter, load_model, quiet_peft
from .language.shape import empty_model
from .registry import PolicySpec, registered_policy
from .tiny import STARTS, TINY_DIRECTORY
from .vllm.client import VLLMClient
from .vllm.server import Serving

SERVER_CHECK_S = 20.0  # timeout for the check of a vLLM server


def named_policy(name: str) -> PolicySpec | None:
    """Return the registered policy or chat model with this name. None: `load_policies` loads a model by this name."""
    return registered_policy(name) or chat_spec(name)


def chat_encoders(config: ModelConfig) -> dict[str, Encoder]:
    """Return the encoders of the local models that use a chat template, as a dict with the models' names as keys."""
    names = [name for name in dict.fromkeys(config.model.split(",")) if named_policy(name) is None]
    encoders = {name: _encoder(config, name) for name in names if config.is_chat is not False}
    return {name: encoder for name, encoder in encoders.items() if encoder.is_chat}


def chat_lines(config: ModelConfig, encoders: Mapping[str, Encoder]) -> list[str]:
    """Return a notice for each model whose chat template is used because it has one. `encoders`: `chat_encoders`."""
    names = encoders if config.is_chat is None else ()
    return [f"is_chat: True, because the tokenizer of {name!r} has a chat template" for name in names]


def check_models(config: ModelConfig, num_agents: int) -> None:
    """Check that models, tokenizers, devices and server addresses can be used, without loading weights."""
    for device in dict.fromkeys(config.devices(num_agents)):
        check_device(device)
    for addresses in config.servers(num_agents):
        for address in addresses:
            VLLMClient(address, SERVER_CHECK_S)
    if config.server is None and config.sampler == "graphs":
        for device in config.devices(num_agents):
            check_graphs(device_named(device))
    for name in dict.fromkeys(config.names(num_agents)):
        _encoder(config, name)
        if config.weights == "adapters":
            _check_adapter(config, name)


def check_template_kwargs(config: ModelConfig) -> None:
    """Raise `UserError` if an argument of the chat template is not a variable of any model's template."""
    encoders = chat_encoders(config).values() if config.template_kwargs else ()
    names = {"chat_template"}.union(*(each.template.names for each in encoders if each.template is not None))
    if encoders and (unknown := sorted(config.template_kwargs.keys() - names)):
        raise UserError(f"template_kwargs has {unknown[0]!r}, which no chat template of the models reads; leave it out")


def check_servers(config: ModelConfig, num_agents: int, *, learns: bool) -> None:
    """Raise `ServerError` if a vLLM server does not respond, or lacks an option that training (`learns`) needs."""
    for address in dict.fromkeys(address for each in config.servers(num_agents) for address in each):
        client = VLLMClient(address, SERVER_CHECK_S)
        client.base_model()
        client.check_sampling()
        if learns:
            client.check_exchange(adapters=config.weights == "adapters")


def check_room(config: ModelConfig, agents: Sequence[str], observations: Mapping[str, str]) -> None:
    """Raise `UserError` if the first prompt and completion of an agent exceed the context of the agent's model."""
    for agent, name in zip(agents, config.names(len(agents)), strict=True):
        limit = context_of(model_config(where_of(name)))
        if limit is None or agent not in observations:
            continue
        prompt, _ = _encoder(config, name).prompt(observations[agent])
        room = config.max_new_tokens or MAX_NEW_TOKENS
        if len(prompt) + room > limit:
            raise UserError(
                f"the first prompt of {agent} has {len(prompt)} tokens; with max_new_tokens={room} it exceeds the "
                f"context ({limit} tokens) of {name!r}; lower max_new_tokens, or use a model with a longer context"
            )


def check_device(name: str) -> None:
    """Raise `UserError` if this machine does not have the device."""
    if name == "auto":
        return
    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    known = ["auto", "cpu", *(f"cuda:{index}" for index in range(num_gpus))]
    try:
        device = device_named(name)
        if device.type == "meta":
            raise RuntimeError("tensors on this device have no data")
        if device.type == "cpu" and device.index:
            raise RuntimeError("there is only one CPU device")
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, ImportError, NotImplementedError) as error:  # AssertionError: no CUDA
        raise UserError(
            f"the device {name!r} cannot be used: {reason(error)}; this machine has {', '.join(known)}"
        ) from error


def device_named(name: str) -> torch.device:
    """Return the device with this name. "cuda" without an index becomes the current GPU, on a rank the rank's GPU."""
    device = torch.device(name if name != "auto" else "cuda" if torch.cuda.is_available() else "cpu")
    if device.type != "cuda" or not torch.cuda.is_available():
        return device
    prepare_cuda()
    return torch.device("cuda", torch.cuda.current_device()) if device.index is None else device


@cache
def prepare_cuda() -> None:
    """Set PyTorch's options for GPUs before it allocates memory there. Environment variables of the user stay."""
    if "PYTORCH_CUDA_ALLOC_CONF" not in os.environ:  # the older name, which PyTorch prefers
        # Batches have many sizes. Without this option, free memory is split into pieces that no batch fits into.
        os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    if os.environ.get("TORCH_CUDNN_SDPA_DEPRIORITIZED") != "0":
        # cuDNN's attention builds a plan per shape, and most decoding steps and micro-batches have a new shape.
        torch.backends.cuda.enable_cudnn_sdp(False)


def model_folder(name: str) -> Path | None:
    """Return the folder or GGUF file of a model, or None for a hub name. Raise `FileNotFoundError` for other names."""
    folder = TINY_DIRECTORY if name == TINY else STARTS.get(name, Path(name))
    if folder.is_dir():
        has_config = (folder / "config.json").is_file()
        if (folder / "adapter_config.json").is_file() or (has_config and any(map(any, map(folder.glob, WEIGHTS)))):
            return folder
        files = sorted(file for file in folder.iterdir() if file.suffix.lower() == GGUF)
        if len(files) > 1:
            names = ", ".join(file.name for file in files)
            raise UserError(f"{folder} contains {len(files)} GGUF files ({names}); name one, such as {files[0]}")
        if not files and not has_config:
            raise FileNotFoundError(f"{folder} contains no model: it has no config.json; give a save_pretrained folder")
        return files[0] if files else folder
    if folder.is_file() and folder.suffix.lower() == GGUF:
        return folder
    looks_like_path = name.startswith((".", "/", "~")) or name.endswith(GGUF) or name.count("/") != 1
    if looks_like_path and "/" not in name:
        # Hub names without an owner ("gpt2") are accepted only if the cache has the model; other names may be typos.
        looks_like_path = not isinstance(try_to_load_from_cache(name, "config.json"), str)
    if looks_like_path:
        raise FileNotFoundError(
            f"there is no model folder {name!r}; give a folder, a GGUF file, a hub name owner/name, or 'tiny'"
        )
    if HF_HUB_OFFLINE and not isinstance(try_to_load_from_cache(name, "config.json"), str):
        raise FileNotFoundError(
            f"the model {name!r} is not in the hub's cache, and HF_HUB_OFFLINE={os.environ.get('HF_HUB_OFFLINE')} "
            "forbids downloads; unset HF_HUB_OFFLINE, or give a folder"
        )
    return None


def where_of(name: str) -> Path | str:
    """Return a model's folder, GGUF file or hub name, for `load_model`."""
    return model_folder(name) or name


def load_policies(
    config: ModelConfig,
    agents: Sequence[str],
    *,
    has_value_head: bool = False,
    value_head_hidden_dim: int | None = None,
    seed: int = 0,
    loaded: Callable[[LanguagePolicy], object] | None = None,
) -> dict[str, LanguagePolicy]:
    """Load one policy per agent.

    Args:
        has_value_head: add a value head to each policy.
        value_head_hidden_dim: width of a tanh layer in the value head. None: linear head.
        seed: seed of new adapters and heads.
        loaded: callback with each policy, called before the next model is loaded.
    """
    check_models(config, len(agents))
    names, servers, devices = config.names(len(agents)), config.servers(len(agents)), config.devices(len(agents))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)

        def policy(model: LanguageModel, name: str, adapter: str | None = None) -> LanguagePolicy:
            made = LanguagePolicy(
                model,
                sampling=Sampling(
                    config.temperature, config.top_k, config.top_p, learns_filtered=config.learns_filtered
                ),
                max_new_tokens=config.max_new_tokens or MAX_NEW_TOKENS,
                adapter=adapter,
                has_value_head=has_value_head,
                value_head_hidden_dim=value_head_hidden_dim,
            )
            folder = model_folder(name)
            if has_value_head and folder is not None:
                made.load_value_head(folder)
            if loaded is not None:
                loaded(made)
            return made

        if config.weights == "own":
            return {
                agent: policy(load_language_model(replace(config, device=device), name, servers=addresses), name)
                for agent, name, addresses, device in zip(agents, names, servers, devices, strict=True)
            }
        config = replace(config, device=devices[0])
        if config.weights == "shared":
            return dict.fromkeys(agents, policy(load_language_model(config, names[0], servers=servers[0]), names[0]))
        # These names differ from all names of layers, which agents may have. peft would confuse them.
        adapters = {agent: f"collm_{number}" for number, agent in enumerate(agents)}
        common = load_language_model(config, names[0], adapters=list(adapters.values()), servers=servers[0])
        return {agent: policy(common, names[0], adapter=adapter) for agent, adapter in adapters.items()}


def load_language_model(
    config: ModelConfig, name: str, adapters: Sequence[str] = (), *, servers: Sequence[str] = ()
) -> LanguageModel:
    """Load a model with its tokenizer. Each name in `adapters` becomes a new adapter or a copy of a saved one."""
    where = where_of(name)
    compute = None if config.compute_dtype == "float32" else getattr(torch, config.compute_dtype)
    saved = adapter_settings(where) if adapters else None
    # Trainable weights are float32; a frozen base model with adapters has the compute data type.
    dtype = compute if adapters and compute is not None else torch.float32
    model = load_model(where if saved is None else saved["base_model_name_or_path"], dtype=dtype)
    model = model.to(device_named(config.device))
    tokenizer = tokenizer_of(where, model.config)
    if adapters:
        model = with_adapters(
            model,
            adapters if saved is None else [*adapters, REFERENCE],
            config.lora_rank,
            alpha=config.lora_alpha,
            target_modules=config.lora_target_modules,
            saved=None if saved is None else where,
        )
    serving = Serving(addresses=tuple(servers), keeps_logprobs=config.server_logprobs == "server")
    return LanguageModel(
        model,
        tokenizer,
        is_chat=config.is_chat,
        compute_dtype=compute,
        recomputes_activations=bool(config.recomputes_activations),
        template_kwargs=config.template_kwargs,
        history_tokens=config.history_tokens,
        sampler=config.sampler,
        serving=serving if servers else None,
        kv_memory=config.kv_memory,
    )


def load_team(directory: Path, agents: Sequence[str], *, device: str = "auto") -> dict[str, LanguagePolicy]:
    """Load policies and their sampling settings from the folders of agents, which `LanguagePolicy.save` wrote."""
    policies: dict[str, LanguagePolicy] = {}
    for agent in agents:
        folder = directory / agent
        if not (folder / SETTINGS_FILE).is_file():
            raise FileNotFoundError(f"there is no saved policy of {agent!r} in {directory}: {folder} is missing")
        saved = read_json(folder / SETTINGS_FILE)
        with explained_content(folder / SETTINGS_FILE):
            settings = {name: saved[name] for name in ("is_chat", "template_kwargs", "max_new_tokens", "compute_dtype")}
            sampling = {name: saved["sampling"][name] for name in ("temperature", "top_p", "top_k", "learns_filtered")}
            settings["history_tokens"] = saved.get("history_tokens", "extended")  # older folders lack it
            weights: Any = "own" if adapter_settings(folder) is None else "adapters"
            config = ModelConfig(model=str(folder), weights=weights, device=device, **settings, **sampling)
        policies |= load_policies(config, [agent])
    return policies


def with_adapters(
    model: PreTrainedModel,
    adapters: Sequence[str],
    rank: int,
    *,
    alpha: int | None = None,
    target_modules: Sequence[str] = (ALL_LINEAR,),
    saved: Path | str | None = None,
) -> PeftModel:
    """Freeze a model and add a LoRA adapter (arXiv:2106.09685) per name.

    `saved` is the folder of an adapter, which each new adapter copies. Other arguments: see `ModelConfig`.
    """
    modules = list(target_modules)
    lora = LoraConfig(
        r=rank,
        lora_alpha=alpha or 2 * rank,
        target_modules=ALL_LINEAR if modules == [ALL_LINEAR] else modules,
        task_type="CAUSAL_LM",
    )
    adapted: Any = model
    if saved is not None:
        for adapter in adapters:
            adapted = load_adapter(adapted, saved, adapter)
    else:
        with quiet_peft():
            try:
                adapted = get_peft_model(model, lora, adapters[0])
            except ValueError as error:  # the error message contains the missing layers
                raise UserError(f"lora_target_modules: {reason(error)}") from error
            for adapter in adapters[1:]:
                adapted.add_adapter(adapter, lora)
    for settings in adapted.peft_config.values():
        settings.base_model_name_or_path = model.name_or_path
        settings.task_type, settings.auto_mapping = TaskType.CAUSAL_LM, None
        if isinstance(settings.target_modules, set):
            settings.target_modules = sorted(settings.target_modules)  # peft saves a set, whose order varies
    for name, weight in adapted.named_parameters():
        if "lora_" in name:
            weight.data = weight.data.float()  # trainable weights are float32
    assert isinstance(adapted, PeftModel)
    return adapted


def start_lines(config: ModelConfig) -> list[str]:
    """Return a line for each model that is an adapter. The line says how training starts from this adapter."""
    start = "each agent continues a copy of it" if config.weights == "adapters" else "it is merged into its base model"
    names = [name for name in dict.fromkeys(map(str.strip, config.model.split(","))) if named_policy(name) is None]
    return [f"the model {name!r} is an adapter: {start}" for name in names if adapter_settings(where_of(name))]


def _check_adapter(config: ModelConfig, name: str) -> None:
    """Raise `UserError` if a saved adapter cannot be continued, or layers for new adapters are missing."""
    settings = adapter_settings(where_of(name))
    if settings is None:
        return None if list(config.lora_target_modules) == [ALL_LINEAR] else _check_target_modules(config, name)
    if unusual := unusual_setting({**settings, "auto_mapping": None}):  # auto_mapping: adapters without a task
        raise UserError(f"the adapter {name!r} has {unusual} and cannot be continued; merge it by weights='own'")
    for setting, field in (("lora_rank", "r"), ("lora_alpha", "lora_alpha"), ("lora_target_modules", "target_modules")):
        value, old = getattr(config, setting), settings.get(field)
        is_equal = value == old if isinstance(value, int) else isinstance(old, list) and set(value) == set(old)
        if value not in (getattr(ModelConfig, setting), [ALL_LINEAR]) and not is_equal:
            raise UserError(f"{setting}={value} contradicts the adapter {name!r} with {field}={old}; omit {setting}")


def _check_target_modules(config: ModelConfig, name: str) -> None:
    layers = dict(empty_model(model_config(where_of(name))).named_modules())
    usable = [path for path, layer in layers.items() if isinstance(layer, (nn.Linear, nn.Embedding, Conv1D))]
    for wanted in config.lora_target_modules:
        paths = [path for path in layers if f".{path}".endswith(f".{wanted}")]
        if not paths or not set(paths) <= set(usable):
            names = sorted({path.rpartition(".")[2] for path in usable})
            raise UserError(
                f"the model {name!r} has no layer {wanted!r} for lora_target_modules; use {ALL_LINEAR} alone, or names "
                f"of {', '.join(names)}"
            )


def _encoder(config: ModelConfig, name: str) -> Encoder:
    """Check a model's files, without loading weights, and return the model's encoder."""
    where = where_of(name)
    tokenizer = tokenizer_of(where, check_language_model(where))
    try:
        return Encoder(tokenizer, is_chat=config.is_chat, template_kwargs=config.template_kwargs)
    except ValueError as error:
        raise UserError(f"the model {name!r}: {error}") from error
