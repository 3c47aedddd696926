"""The model that is timed where texts do not matter."""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def timed_llama(vocab_size: int, *, seed: int, end_id: int | None, pad_id: int) -> LlamaForCausalLM:
    """About 2 million random weights: enough that arithmetic, not Python, dominates."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end_id,
        pad_token_id=pad_id,
    )
    model = LlamaForCausalLM(config)
    model.eval()
    return model
