"""Small models of several families, from random weights."""

from typing import Any

import torch
from fakes import random_llama
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

SMALL: dict[str, Any] = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
SMALL |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
SMALL |= {"initializer_range": 0.15}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {  # type of model in transformers, and its settings
    "gpt2": ("gpt2", {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}),
    "mamba": ("mamba", {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "expand": 1}),
    "qwen2": ("qwen2", SMALL),
    "qwen3": ("qwen3", SMALL | {"head_dim": 8}),
    "olmo": ("olmo", SMALL),
    "windowed": ("mistral", SMALL | {"sliding_window": 16}),
    # windows in every other layer, and capped logits
    "gemma2": ("gemma2", SMALL | {"head_dim": 8, "sliding_window": 12}),
}


def model_of(name: str) -> PreTrainedModel:
    torch.manual_seed(0)
    if name in KINDS:
        kind, settings = KINDS[name]
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **settings)).eval()
    llama = random_llama(vocab_size=97).eval()
    if name == "eager":
        llama.set_attn_implementation("eager")
    return llama


def adapted_model(name: str = "llama", **left: Any) -> PeftModel:
    """Return a model with random LoRA adapters "left" and "right". `left`: changed settings of the adapter "left"."""
    base = model_of(name)
    model = get_peft_model(base, LoraConfig(r=4, target_modules="all-linear", **left), adapter_name="left")
    right = ["c_attn"] if name == "gpt2" else ["q_proj", "up_proj"]
    model.add_adapter("right", LoraConfig(r=2, lora_alpha=3, target_modules=right))
    for parameter, weight in model.named_parameters():
        if "lora_B" in parameter:
            nn.init.normal_(weight, std=0.3)
        weight.requires_grad_("lora" in parameter)
    return model.eval()
