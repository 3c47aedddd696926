"""The shape of small transformers that critics and reward models are trained from scratch in."""

from __future__ import annotations

from transformers import LlamaConfig


def small_config(vocab_size: int, *, hidden_dim: int, num_layers: int, max_tokens: int) -> LlamaConfig:
    """A Llama of this width and depth, with heads of 32 (one, where it is narrower) and a feed-forward twice as wide.

    Args:
        max_tokens: longest text.
    """
    return LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=hidden_dim,
        intermediate_size=2 * hidden_dim,
        num_hidden_layers=num_layers,
        num_attention_heads=max(1, hidden_dim // 32),
        max_position_embeddings=max_tokens,
    )
