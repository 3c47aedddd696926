"""Small models of several families, from random weights."""

from __future__ import annotations

from typing import Any

import torch
from fakes import random_llama
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    MistralConfig,
    MistralForCausalLM,
    OlmoConfig,
    OlmoForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SMALL: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.15,
}


def model_of(name: str) -> PreTrainedModel:
    torch.manual_seed(0)
    if name == "gpt2":
        return GPT2LMHeadModel(GPT2Config(vocab_size=97, n_embd=32, n_layer=2, n_head=4, n_positions=128)).eval()
    kinds = {
        "qwen2": (Qwen2ForCausalLM, Qwen2Config, {}),
        "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"head_dim": 8}),
        "olmo": (OlmoForCausalLM, OlmoConfig, {}),
        "windowed": (MistralForCausalLM, MistralConfig, {"sliding_window": 16}),
    }
    if name not in kinds:
        return random_llama(vocab_size=97).eval()
    model, config, settings = kinds[name]
    return model(config(**SMALL, **settings)).eval()
