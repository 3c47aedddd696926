"""Checks of a model's configuration, tokenizer and weight files, without loading weights."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from peft import LoraConfig
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_MAPPING,
)
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING
from transformers.utils.peft_utils import find_adapter_config_file

from ..._errors import UserError
from ..._extras import require
from ..._json import read_json, refuse_device

_CUSTOM_CODE = "{} needs custom Python code (auto_map), which is never run; use a model whose code is in transformers"
WEIGHTS = ("*.safetensors", "*.bin", "*.bin.index.json", "*.safetensors.index.json")
GGUF = ".gguf"
_LAYER = re.compile(r"((.*?)\.\d+)\.")  # path of the outermost numbered module of a weight
_LORA_SETTINGS = set(
    "alpha_pattern base_model_name_or_path fan_in_fan_out inference_mode layers_pattern layers_to_transform lora_alpha "
    "lora_dropout peft_version r rank_pattern target_modules task_type use_rslora".split()
)
"""Settings of peft that a LoRA adapter of a policy may have. All others must have peft's defaults."""


def source_of(name: str | Path) -> tuple[str, dict[str, str]]:
    """Return the arguments of `from_pretrained`: the folder or hub name, and `gguf_file` for a GGUF file."""
    path = Path(name)
    if path.suffix.lower() != GGUF:
        return str(name), {}
    require("gguf")
    return str(path.parent), {"gguf_file": path.name}


def adapter_settings(name: str | Path) -> dict[str, Any] | None:
    """Return the settings of an adapter of peft. None: the model is not an adapter. Raise `UserError` if unsafe."""
    file = None if Path(name).is_file() else find_adapter_config_file(str(name))
    if file is None:
        return None
    settings = read_json(Path(file))
    if settings.get("megatron_config"):
        raise UserError(f"{file} sets megatron_config, for which peft would import code; remove this setting")
    base = settings.get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise UserError(f"{file} has no base_model_name_or_path; save the adapter again with its base model")
    if (Path(base) / "adapter_config.json").is_file():
        raise UserError(f"{file} names the base model {base!r}, which is itself an adapter; merge that adapter first")
    return settings


def unusual_setting(settings: Mapping[str, Any]) -> str | None:
    """Return the first setting that a LoRA adapter of a policy may not have, as "name=value". None: there is none."""
    usual = {**LoraConfig().to_dict(), "peft_type": "LORA"}
    for name, value in {"peft_type": None, **settings}.items():  # the type first
        if name not in _LORA_SETTINGS and value and value != usual.get(name):
            return f"{name}={value!r}"[:100]
    return None


def model_config(name: str | Path) -> PreTrainedConfig:
    """Load the configuration of a model, or of an adapter's base model. Raise `UserError` if malformed or unsafe."""
    settings = adapter_settings(name)
    if settings is not None:
        return model_config(settings["base_model_name_or_path"])
    place, options = source_of(name)
    found: dict[str, Any] = {}
    if (Path(name) / "config.json").is_file():
        found = read_json(Path(name) / "config.json")  # unlike transformers, `read_json` reports the line of an error
        quantization = found.get("quantization_config")
        method = str(quantization.get("quant_method", "")) if isinstance(quantization, dict) else ""
        if not any(each.startswith(method) for each in AUTO_QUANTIZATION_CONFIG_MAPPING):
            raise UserError(f"{name} has quant_method={method!r}, which transformers cannot read; convert the model")
        if {"algorithm", "env"} <= found.keys():
            raise UserError(f"{name} is a run folder, not a model; its models are in {Path(name) / 'agents'}")
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(place, trust_remote_code=False, **options)
    except Exception as error:  # transformers can raise any exception for malformed files
        if "auto_map" in found:
            raise UserError(_CUSTOM_CODE.format(f"the model {str(name)!r}")) from error
        raise UserError(f"the settings of the model {str(name)!r} cannot be read: {reason(error)}") from error
    for part in [config, *(getattr(config, each, None) for each in config.sub_configs)]:
        for setting in ("_attn_implementation", "_experts_implementation"):
            if "/" in str(getattr(part, setting, "")):  # kernels from the hub are compiled code
                raise UserError(
                    f"the model {str(name)!r} needs the kernel {getattr(part, setting)!r}, which is compiled code; "
                    f"remove {setting[1:]} from its config.json"
                )
    return config


def check_language_model(name: str | Path) -> PreTrainedConfig:
    """Return the configuration of a causal language model. Raise `UserError` for other or malformed models."""
    config = model_config(name)
    _check_kind(name, config, MODEL_FOR_CAUSAL_LM_MAPPING, "does not generate text")
    text = config.get_text_config(decoder=True)
    size, pad = getattr(text, "vocab_size", None), getattr(text, "pad_token_id", None)
    if size is not None and pad is not None and not -size <= pad < size:
        raise UserError(
            f"{name} has pad_token_id={pad}, outside its {size} tokens; correct pad_token_id in config.json"
        )
    check_weights(name, config)
    return config


def check_critic_model(name: str | Path) -> None:
    """Raise `UserError` if the files of a critic's model are missing, malformed or inconsistent."""
    config = model_config(name)
    _check_kind(name, config, MODEL_MAPPING, "has no hidden states for a critic's head")
    check_weights(name, config)
    tokenizer_of(name, config)


def check_reward_model(name: str | Path) -> None:
    """Raise `UserError` if a model is not a sequence classifier with one output, or has malformed files."""
    config = model_config(name)
    kinds = config.architectures or []
    if not any("ForSequenceClassification" in kind for kind in kinds):
        raise UserError(
            f"the reward model {str(name)!r} is no sequence classifier ({', '.join(kinds) or 'of unknown kind'}), so "
            "its score would be random; give a ...ForSequenceClassification model with one output"
        )
    if config.num_labels != 1:
        raise UserError(
            f"a reward is one number, but the reward model {str(name)!r} has {config.num_labels} outputs; give a "
            "model trained with num_labels=1"
        )
    check_weights(name, config)
    tokenizer_of(name, config)


def tokenizer_of(name: str | Path, config: PreTrainedConfig) -> PreTrainedTokenizerBase:
    """Load a tokenizer. Raise `UserError` if the tokenizer is malformed or has more tokens than the model."""
    files = [Path(name) / file for file in ("tokenizer.json", "tokenizer_config.json")]
    found = {file.name: read_json(file) for file in files if file.is_file()}
    if not found and (settings := adapter_settings(name)) is not None:  # peft saves adapters without a tokenizer
        return tokenizer_of(settings["base_model_name_or_path"], config)
    place, options = source_of(name)
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(place, trust_remote_code=False, **options)
        is_empty = not tokenizer("a", add_special_tokens=False)["input_ids"]  # an error if settings have a wrong type
    except Exception as error:  # the Rust library raises Exception
        if "auto_map" in found.get("tokenizer_config.json", {}):
            raise UserError(_CUSTOM_CODE.format(f"the tokenizer of the model {str(name)!r}")) from error
        raise UserError(
            f"the tokenizer of the model {str(name)!r} cannot be read: {reason(error)}; save the tokenizer into the "
            "model's folder (tokenizer.save_pretrained)"
        ) from error
    text = config.get_text_config()
    size = getattr(text, "vocab_size", None)
    if is_empty:
        raise UserError(f"the tokenizer of the model {str(name)!r} is empty; save a complete tokenizer into its folder")
    token, last = max(tokenizer.get_vocab().items(), key=lambda item: item[1])
    ids = {f"the id of {token!r}": [last]}
    for setting in ("pad_token_id", "bos_token_id", "eos_token_id"):
        value = getattr(text, setting, None)
        ids[setting] = value if isinstance(value, list) else [value or 0]
    for named, values in ids.items():
        if size is not None and (index := max(values, default=0)) >= size:
            raise UserError(
                f"the model {str(name)!r} has embeddings for {size} tokens, but {named} is {index}; correct it, or "
                f"call model.resize_token_embeddings({index + 1}) and save the model again"
            )
    return tokenizer


def check_loaded(name: str | Path, model: Any, missing: Sequence[str], unexpected: Collection[str] = ()) -> None:
    """Raise `UserError` if weights of a loaded model are NaN, infinite or `missing` in the model's files.

    Also raise it if `unexpected` weights of the files belong to further layers, which the model lacks.
    """
    prefix = f"{model.base_model_prefix}." if unexpected else ""
    modules = {path.removeprefix(prefix) for path, _ in model.named_modules()}
    numbered = {match[1] for key in unexpected if (match := _LAYER.match(key.removeprefix(prefix)))}
    kinds = {match[2] for path in modules if (match := _LAYER.match(f"{path}."))}
    unread = [path for path in numbered - modules if path.rpartition(".")[0] in kinds]
    # Layers that predict several tokens at once are not part of the model.
    if len(unread) > (getattr(model.config.get_text_config(decoder=True), "num_nextn_predict_layers", None) or 0):
        raise UserError(
            f"the files of the model {str(name)!r} have layers that config.json leaves out, such as "
            f"{min(unread)!r}; correct num_hidden_layers"
        )
    if missing:
        raise UserError(
            f"the files of the model {str(name)!r} lack {len(missing)} weights, such as {sorted(missing)[0]!r}, which "
            "would be random; give a folder with the complete model"
        )
    check_finite(name, model.named_parameters())


def check_finite(name: str | Path, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Raise `UserError` if a weight of a model is NaN or infinite."""
    for parameter, weight in weights:
        if not weight.isfinite().all():
            raise UserError(
                f"the model {str(name)!r} has weights that are not finite, for example in {parameter!r}; use a "
                "checkpoint that was saved before the divergence"
            )


def reason(error: Exception) -> str:
    """Return the first line of another library's error message, with the next line if it is a heading."""
    if isinstance(error, UnpicklingError):  # the message advises to run the file's code
        return "a weight file is not safe or not complete; convert the weights to safetensors"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    line = " ".join(lines[: 2 if lines[0].endswith(":") else 1])
    return f"{type(error).__name__} {line}"[:300] if isinstance(error, KeyError) else line[:300]


def _check_kind(name: str | Path, config: PreTrainedConfig, mapping: Any, fault: str) -> None:
    """Raise `UserError` if a model is not causal, or its kind is not in a mapping of transformers (`fault`)."""
    kind = type(config)
    for is_other, cause in (
        (config.is_encoder_decoder, "is an encoder-decoder"),
        (kind in MODEL_FOR_MASKED_LM_MAPPING and not getattr(config, "is_decoder", False), "is an encoder"),
        (kind not in mapping, fault),
    ):
        if is_other:
            raise UserError(f"the model {str(name)!r} ({config.model_type}) {cause}; give a causal language model")


def check_weights(name: str | Path, config: PreTrainedConfig | None = None) -> None:
    """Raise `UserError` if weight files are not complete, or do not have the number of layers in `config`."""
    folder = Path(name)
    if not folder.is_dir():  # hub name or GGUF file
        return
    if (settings := adapter_settings(name)) is not None:
        check_weights(settings["base_model_name_or_path"], config)
    if not any(file.name != "value_head.safetensors" for pattern in WEIGHTS for file in folder.glob(pattern)):
        raise UserError(f"{folder} contains no weights (model.safetensors); give a folder saved by save_pretrained")
    names: dict[str, dict[str, str]] = {}
    for file in sorted(folder.glob("*.index.json")):
        files = read_json(file).get("weight_map")
        if not isinstance(files, dict) or not files or any(Path(str(each)).name != each for each in files.values()):
            raise UserError(f"weight_map in {file} is missing or names files in other folders; save the model again")
        names[file.name] = files
    file = folder / "generation_config.json"
    if file.is_file():
        try:
            read_json(file)
        except UserError as error:
            warnings.warn(f"{error}; the file is ignored, and the model is used without it", UserWarning, stacklevel=3)
    tensors: dict[str, str] = {}  # tensor -> file
    for file in sorted(folder.glob("*.safetensors")):
        refuse_device(file)
        try:
            with safe_open(file, framework="pt") as content:
                tensors |= dict.fromkeys(content.keys(), file.name)
        except (SafetensorError, OSError) as error:
            raise UserError(f"{file} is not a complete weight file: {error}; copy or save it again") from error
    if config is None or not any(folder.glob("model*.safetensors")):  # an adapter, or a format other than safetensors
        return
    index = "model.safetensors.index.json"
    if not (folder / "model.safetensors").is_file() and (lost := names.get(index, {}).items() - tensors.items()):
        raise UserError("{} lacks the tensor {!r} in {}; copy or save it again".format(folder, *min(lost)))
    num_layers = getattr(config.get_text_config(decoder=True), "num_hidden_layers", None)
    if num_layers is not None and not 1 <= num_layers <= len(tensors):  # building these layers could exhaust the memory
        raise UserError(f"{name} has {len(tensors)} tensors for num_hidden_layers={num_layers}; use a complete model")
