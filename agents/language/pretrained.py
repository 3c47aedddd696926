"""Loading of pretrained models: folders in Hugging Face format, hub names, adapters of peft, and GGUF files."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForCausalLM, GenerationConfig
from transformers.utils import logging as transformers_logging

from ..._errors import UserError
from .model_files import adapter_settings, check_loaded, reason, source_of

NUM_COMPARED = 16  # tokens on which a merged model is compared with the model and its adapter
MAX_DIFFERENCE = 1e-4  # of merged outputs, relative to the largest output; the usual difference is 1e-6


def load_model(
    name: str | Path, kind: Any = AutoModelForCausalLM, *, dtype: torch.dtype = torch.float32, **options: Any
) -> Any:
    """Load a folder, GGUF file or hub name by a class of transformers. An adapter is merged into its base model.

    Raises `UserError` if files are malformed or incomplete, or merging changes the outputs of the model.
    """
    settings = adapter_settings(name)
    if settings is not None:
        return _merged(name, settings, kind, dtype, options)
    place, source = source_of(name)
    options |= {"output_loading_info": True, "ignore_mismatched_sizes": True, "trust_remote_code": False}
    log = logging.getLogger("transformers.modeling_utils")
    log.addFilter(_is_no_report)
    transformers_logging.disable_progress_bar()
    try:
        model, loading = kind.from_pretrained(place, dtype=dtype, **source, **options)
    except Exception as error:  # transformers can raise any exception for malformed files
        raise UserError(f"the model {str(name)!r} cannot be loaded: {reason(error)}") from error
    finally:
        log.removeFilter(_is_no_report)
    for weight, shape, expected in sorted(loading["mismatched_keys"]):
        raise UserError(
            f"the model {str(name)!r} cannot be loaded: {weight!r} has the shape {tuple(shape)} in its files, but "
            f"{tuple(expected)} by its config.json"
        )
    # The pooler is not used: critics read the last hidden states.
    missing = [weight for weight in loading["missing_keys"] if not weight.startswith("pooler.")]
    check_loaded(name, model, missing, loading["unexpected_keys"])
    if source:
        # The weights are not quantized any more, but transformers would refuse to save them.
        vars(model.config).pop("quantization_config", None)
        for attribute in ("hf_quantizer", "is_quantized", "quantization_method"):
            vars(model).pop(attribute, None)
        model.name_or_path = model.config.name_or_path = str(name)  # an adapter's file names this base model
    return model


def load_adapter(model: Any, folder: str | Path, name: str) -> Any:
    """Add a saved adapter to a model of transformers or peft. Raise `UserError` if the adapter's files do not fit."""
    try:
        with quiet_peft():
            if not isinstance(model, PeftModel):
                model = PeftModel.from_pretrained(model, folder, name, is_trainable=True)
            loaded = model.load_adapter(folder, name, is_trainable=True, torch_device=str(model.device))
    except Exception as error:  # peft raises many types for invalid files
        raise UserError(f"the adapter {str(folder)!r} cannot be loaded: {reason(error)}") from error
    check_loaded(folder, model, [*loaded.missing_keys, *loaded.unexpected_keys])
    return model


def _is_no_report(record: logging.LogRecord) -> bool:
    return "LOAD REPORT" not in str(record.msg)  # a table of what `load_model` checks itself


@contextmanager
def quiet_peft() -> Iterator[None]:
    """Ignore warnings of peft: an old name in transformers 5.23, tied embeddings, and what `load_adapter` refuses."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning)
        warnings.filterwarnings("ignore", message="Model .*`tie_word_embeddings|Input and output embed|Found missing")
        yield


def _merged(name: str | Path, settings: dict[str, Any], kind: Any, dtype: torch.dtype, options: dict[str, Any]) -> Any:
    if settings.get("num_virtual_tokens"):
        raise UserError(
            f"the adapter {str(name)!r} ({settings['peft_type']}) adds tokens to prompts; give a LoRA adapter"
        )
    is_backbone = kind is AutoModel and settings.get("task_type") == "CAUSAL_LM"  # of a critic
    whole = AutoModelForCausalLM if is_backbone else kind
    base: Any = load_model(settings["base_model_name_or_path"], whole, dtype=dtype, **options)
    adapted: Any = load_adapter(base, name, "merged").eval()
    expected = _outputs(adapted)
    head, embedding = base.get_output_embeddings(), base.get_input_embeddings()
    is_adapted = [isinstance(layer, BaseTunerLayer) for layer in (head, embedding)]
    if head is not None and any(is_adapted):
        own = head.get_base_layer() if is_adapted[0] else head
        own.weight = nn.Parameter(own.weight.detach().clone())  # may be tied: merging would change both
        base.config.tie_word_embeddings = base.config.get_text_config().tie_word_embeddings = False
    try:
        with quiet_peft():
            model = adapted.merge_and_unload()
        difference = float((_outputs(model) - expected).abs().max() / expected.abs().max().clamp(min=1))
        if not difference <= MAX_DIFFERENCE:
            raise ValueError(f"the outputs differ by {difference:.2g}, relative to the largest; use it without merging")
    except Exception as error:  # peft raises many types for adapters that cannot be merged
        raise UserError(f"the adapter {str(name)!r} cannot be merged: {reason(error)}") from error
    model.requires_grad_(True)  # peft froze the base model
    if (Path(name) / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(name)
    return model.base_model if is_backbone else model


@torch.no_grad()
def _outputs(model: Any) -> Tensor:
    """Return the logits, or the last hidden states, of a few tokens."""
    size = model.config.get_text_config().vocab_size
    outputs: Tensor = model(input_ids=torch.arange(NUM_COMPARED, device=model.device)[None] * 7 % size)[0]
    return outputs.float()
