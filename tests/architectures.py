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
    if name == "qwen2":
        return Qwen2ForCausalLM(Qwen2Config(**SMALL)).eval()
    if name == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**SMALL, head_dim=8)).eval()
    if name == "olmo":
        return OlmoForCausalLM(OlmoConfig(**SMALL)).eval()
    if name == "windowed":
        return MistralForCausalLM(MistralConfig(**SMALL, sliding_window=16)).eval()
    return random_llama(vocab_size=97).eval()
