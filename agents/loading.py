"""Names → policies: the embedded model, a folder, or a hub name; own, shared or adapted weights."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache
from huggingface_hub.constants import HF_HUB_OFFLINE
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, PreTrainedModel

from .._errors import UserError
from .._json import explained_content, read_json
from .config import ALL_LINEAR, MAX_NEW_TOKENS, TINY, ModelConfig
from .decoding.sampling import Sampling
from .decoding.steps.graph_steps import check_graphs
from .encoding import Encoder
from .language.chat import chat_spec
from .language.model import LanguageModel
from .language.model_files import check_language_model, check_loaded, model_config, reason, tokenizer_of
from .language.policy import SETTINGS_FILE, LanguagePolicy
from .registry import PolicySpec, registered_policy
from .tiny import TINY_DIRECTORY
from .vllm.client import VLLMClient
from .vllm.server import Serving

SERVER_CHECK_S = 20.0
"""Seconds that a server may take to say what it serves."""


def named_policy(name: str) -> PolicySpec | None:
    """How the policy of a name is made where it is no model to be loaded: a registered one, or a chat server's model.

    Raises:
        UserError: if it is a malformed name of a chat server's model.
    """
    return registered_policy(name) or chat_spec(name)


def check_models(config: ModelConfig, num_agents: int) -> None:
    """Find what would fail later, without loading a weight.

    Raises:
        UserError: if a setting is wrong, or a model, its tokenizer, the device or a server's address cannot be used.
        FileNotFoundError: if a model is not there.
    """
    for device in dict.fromkeys(config.devices(num_agents)):
        check_device(device)
    for addresses in config.servers(num_agents):
        for address in addresses:
            VLLMClient(address, SERVER_CHECK_S)
    if config.server is None:
        _check_sampler(config, num_agents)
    for name in dict.fromkeys(config.names(num_agents)):
        _encoder(config, name)
        if config.weights == "adapters" and ALL_LINEAR not in config.lora_target_modules:
            _check_target_modules(config, name)


def check_servers(config: ModelConfig, num_agents: int, *, learns: bool) -> None:
    """Ask every server which model it serves, and whether it was started with what is needed.

    Args:
        learns: the servers are to be sent weights.

    Raises:
        ServerError: if one does not answer, or lacks an option.
    """
    for address in dict.fromkeys(address for each in config.servers(num_agents) for address in each):
        client = VLLMClient(address, SERVER_CHECK_S)
        client.base_model()
        client.check_sampling()
        if learns:
            client.check_exchange(adapters=config.weights == "adapters")


def check_room(config: ModelConfig, agents: Sequence[str], observations: Mapping[str, str]) -> None:
    """Refuse first prompts that leave no room for a completion in a model's context.

    Args:
        agents: agents that the settings name models for.
        observations: what those who act first read.

    Raises:
        UserError: naming the agent, its tokens and the limit.
    """
    for agent, name in zip(agents, config.names(len(agents)), strict=True):
        limit = getattr(model_config(where_of(name)).get_text_config(decoder=True), "max_position_embeddings", None)
        if limit is None or agent not in observations:
            continue
        prompt, _ = _encoder(config, name).prompt(observations[agent])
        room = config.max_new_tokens or MAX_NEW_TOKENS
        if len(prompt) + room > limit:
            raise UserError(
                f"the first prompt of {agent} has {len(prompt)} tokens, which with max_new_tokens="
                f"{room} makes more than the {limit} of the model {name!r}; lower max_new_tokens, "
                "or give a model with a longer context"
            )


def check_device(name: str) -> None:
    """Refuse a device that this machine does not have.

    Raises:
        UserError: naming the devices that it has.
    """
    if name == "auto":
        return
    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    known = ["auto", "cpu", *(f"cuda:{index}" for index in range(num_gpus))]
    try:
        device = torch.device(name)
        if device.type == "meta":
            raise RuntimeError("it holds no numbers")
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, ImportError, NotImplementedError) as error:  # torch asserts a missing CUDA
        raise UserError(
            f"the device {name!r} cannot be used: {reason(error)}; this machine has {', '.join(known)}"
        ) from error


def device_named(name: str) -> torch.device:
    """The device that a setting names."""
    return torch.device(name if name != "auto" else "cuda" if torch.cuda.is_available() else "cpu")


def sampling_of(config: ModelConfig) -> Sampling:
    """How the settings sample."""
    return Sampling(
        temperature=config.temperature,
        top_k=config.top_k,
        top_p=config.top_p,
        learns_filtered=config.learns_filtered,
    )


def model_folder(name: str) -> Path | None:
    """Where a model lies; None for a hub name that is to be downloaded or lies in the hub's cache.

    Raises:
        FileNotFoundError: if it is neither, with what to do.
    """
    folder = TINY_DIRECTORY if name == TINY else Path(name)
    if folder.is_dir():
        if not any((folder / file).is_file() for file in ("config.json", "adapter_config.json")):
            raise FileNotFoundError(f"{folder} holds no model: there is no config.json; give a save_pretrained folder")
        return folder
    looks_like_path = name.startswith((".", "/", "~")) or name.count("/") > 1 or "/" not in name
    if looks_like_path and "/" not in name:
        # A hub name without an owner exists ("gpt2"), but only what is in the cache can be told from a typing error.
        looks_like_path = not isinstance(try_to_load_from_cache(name, "config.json"), str)
    if looks_like_path:
        raise FileNotFoundError(f"there is no model folder {name!r}; give a folder, a hub name owner/name, or 'tiny'")
    if HF_HUB_OFFLINE and not isinstance(try_to_load_from_cache(name, "config.json"), str):
        raise FileNotFoundError(
            f"the model {name!r} is not in the hub's cache, and HF_HUB_OFFLINE={os.environ.get('HF_HUB_OFFLINE')} "
            "forbids to download it; unset that, or give a folder"
        )
    return None


def where_of(name: str) -> Path | str:
    """What transformers is to load under a name: a folder, or the hub name."""
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
    """A policy for each agent.

    Args:
        has_value_head: give each a value head.
        value_head_hidden_dim: width of a tanh layer in that head; None: linear.
        seed: draws new weights, adapters' and heads'.
        loaded: called with each policy before the next one's model is loaded.
    """
    check_models(config, len(agents))
    names, servers, devices = config.names(len(agents)), config.servers(len(agents)), config.devices(len(agents))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)

        def policy(model: LanguageModel, name: str, adapter: str | None = None) -> LanguagePolicy:
            made = LanguagePolicy(
                model,
                sampling=sampling_of(config),
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
        common = load_language_model(config, names[0], adapters=agents, servers=servers[0])
        return {agent: policy(common, names[0], adapter=agent) for agent in agents}


def load_language_model(
    config: ModelConfig, name: str, adapters: Sequence[str] = (), *, servers: Sequence[str] = ()
) -> LanguageModel:
    """One model with its tokenizer; with a new adapter of each name, if names are given."""
    where = where_of(name)
    device = device_named(config.device)
    compute = None if config.compute_dtype == "float32" else getattr(torch, config.compute_dtype)
    # A base that does not learn needs no master copy: it is loaded in the type it computes in.
    dtype = compute if adapters and compute is not None else torch.float32
    load: Any = AutoModelForCausalLM.from_pretrained
    try:
        loaded, found = load(where, dtype=dtype, output_loading_info=True, trust_remote_code=False)
    except Exception as error:  # whatever transformers stumbles over in files that others wrote
        raise UserError(f"the model {name!r} cannot be loaded: {reason(error)}") from error
    check_loaded(name, loaded, found["missing_keys"])
    model = loaded.to(device)
    tokenizer = tokenizer_of(where, loaded.config)
    if adapters:
        model = with_adapters(
            model, adapters, config.lora_rank, alpha=config.lora_alpha, target_modules=config.lora_target_modules
        )
    return LanguageModel(
        model,
        tokenizer,
        is_chat=config.is_chat,
        compute_dtype=compute,
        recomputes_activations=bool(config.recomputes_activations),
        template_kwargs=dict(config.template_kwargs),
        sampler=config.sampler,
        serving=_serving(config, servers),
        kv_memory=config.kv_memory,
    )


def _serving(config: ModelConfig, addresses: Sequence[str]) -> Serving | None:
    if not addresses:
        return None
    return Serving(
        addresses=tuple(addresses),
        keeps_logprobs=config.server_logprobs == "server",
    )


def load_team(directory: Path, agents: Sequence[str], *, device: str = "auto") -> dict[str, LanguagePolicy]:
    """The policies that `LanguagePolicy.save` wrote, one folder per agent, with their own sampling settings."""
    policies: dict[str, LanguagePolicy] = {}
    for agent in agents:
        folder = directory / agent
        if not (folder / SETTINGS_FILE).is_file():
            raise FileNotFoundError(f"there is no saved policy of {agent!r} in {directory}: {folder} is missing")
        settings = read_json(folder / SETTINGS_FILE)
        with explained_content(folder / SETTINGS_FILE):
            config = ModelConfig(
                model=str(folder),
                is_chat=settings["is_chat"],
                template_kwargs=settings["template_kwargs"],
                max_new_tokens=settings["max_new_tokens"],
                temperature=settings["sampling"]["temperature"],
                top_p=settings["sampling"]["top_p"],
                top_k=settings["sampling"]["top_k"],
                learns_filtered=settings["sampling"]["learns_filtered"],
                compute_dtype=settings["compute_dtype"],
                device=device,
            )
        policies |= load_policies(config, [agent])
    return policies


def with_adapters(
    model: PreTrainedModel,
    adapters: Sequence[str],
    rank: int,
    *,
    alpha: int | None = None,
    target_modules: Sequence[str] = (ALL_LINEAR,),
) -> PeftModel:
    """Wrap a model with a LoRA adapter (arXiv:2106.09685) of each name; the base is frozen.

    Args:
        model: the base.
        adapters: names.
        rank: rank of each adapter.
        alpha: an adapter's output is scaled by alpha / rank; None: twice the rank.
        target_modules: names of the layers that get adapters; "all-linear": every linear layer but the head.

    Raises:
        UserError: if the model has no layer of a name.
    """
    modules = list(target_modules)
    lora = LoraConfig(
        r=rank,
        lora_alpha=alpha or 2 * rank,
        target_modules=ALL_LINEAR if modules == [ALL_LINEAR] else modules,
        task_type="CAUSAL_LM",
    )
    first, *others = adapters
    with peft_of_old_names():
        try:
            adapted = get_peft_model(model, lora, adapter_name=first)
        except ValueError as error:  # it names the layers that are not there
            raise UserError(f"lora_target_modules: {reason(error)}") from error
    for adapter in others:
        adapted.add_adapter(adapter, lora)
    of_adapters: Any = adapted.peft_config
    for settings in of_adapters.values():
        settings.target_modules = sorted(settings.target_modules)  # a set, which would be saved in any order
    for name, weight in adapted.named_parameters():
        if "lora_" in name:
            weight.data = weight.data.float()  # adapters learn, whatever the base computes in
    assert isinstance(adapted, PeftModel)
    return adapted


@contextmanager
def peft_of_old_names() -> Iterator[None]:
    """Let peft 0.21 ask transformers 5.23 for a property under its old name."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning)
        yield


def _check_sampler(config: ModelConfig, num_agents: int) -> None:
    if config.sampler == "graphs":
        for device in config.devices(num_agents):
            check_graphs(device_named(device))


def _check_target_modules(config: ModelConfig, name: str) -> None:
    """Refuse layers that a model does not have, told by its settings alone."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(model_config(where_of(name)), trust_remote_code=False)
    last = {module.rpartition(".")[2] for module, _ in model.named_modules()}
    for wanted in config.lora_target_modules:
        if wanted.rpartition(".")[2] not in last:
            linear = {
                module.rpartition(".")[2] for module, each in model.named_modules() if isinstance(each, torch.nn.Linear)
            }
            raise UserError(
                f"the model {name!r} has no layer {wanted!r} for lora_target_modules; its linear layers are "
                f"{', '.join(sorted(linear))}"
            )


def _encoder(config: ModelConfig, name: str) -> Encoder:
    """Encoder of a model whose files are sound, without its weights."""
    where = where_of(name)
    settings = check_language_model(where)
    try:
        return Encoder(
            tokenizer_of(where, settings), is_chat=config.is_chat, template_kwargs=dict(config.template_kwargs)
        )
    except ValueError as error:
        raise UserError(f"the model {name!r}: {error}") from error
