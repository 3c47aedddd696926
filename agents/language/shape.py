"""Sizes of transformers and memory of their activations, from the configuration and without weights."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from transformers import AutoModel, AutoModelForCausalLM, LlamaConfig, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from ..._errors import UserError
from .model_files import reason

_QWEN3 = {"model_type": "qwen3", "vocab_size": 151936, "max_position_embeddings": 40960, "head_dim": 128}
# Configurations of hub models, so that memory plans need no files of these models.
KNOWN: dict[str, dict[str, Any]] = {
    f"Qwen/Qwen3-{size}": {
        **_QWEN3,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "tie_word_embeddings": is_tied,
    }
    for size, hidden, inner, layers, heads, is_tied in (
        ("0.6B", 1024, 3072, 28, 16, True),
        ("1.7B", 2048, 6144, 28, 16, True),
        ("4B", 2560, 9728, 36, 32, True),
        ("8B", 4096, 12288, 36, 32, False),
    )
}
FLOAT32 = 4  # bytes per number; trainable weights, gradients and the residual stream are float32


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a causal language model."""

    num_weights: int
    num_pinned: int  # num_weights, with the size of each tensor rounded up to a power of two, as in pinned memory
    num_linear: int  # number of weights of linear layers, with the output matrix, even if it is tied to the embedding
    num_rows: int  # number of LoRA weights at rank 1: inputs plus outputs of all linear layers except the output matrix
    num_layers: int
    hidden: int
    query: int  # total width of all query heads
    key: int  # total width of all key heads, which is also that of all value heads
    num_heads: int
    num_key_heads: int
    feed_forward: int
    num_products: int  # number of matrices in a feed-forward layer: 3 with a gate, else 2
    vocabulary: int
    is_tied: bool  # True if the output matrix and the embedding are the same tensor
    has_head_norms: bool  # True if queries and keys are normalized per head

    @classmethod
    def of(cls, config: PreTrainedConfig) -> ModelShape:
        """Compute the sizes of a model from its configuration. Raise `UserError` if a setting is invalid."""
        settings = config.to_json_string(use_diff=False)
        if settings not in _SHAPES:
            _SHAPES[settings] = _shape(config)
        return _SHAPES[settings]

    @property
    def num_embedded(self) -> int:
        return self.vocabulary * self.hidden

    def adapter_weights(self, rank: int) -> int:
        """Return the number of weights of one LoRA adapter on every linear layer."""
        return rank * self.num_rows

    def backbone(self) -> ModelShape:
        """Return the sizes of the model without its output matrix, as critics use it."""
        lost = 0 if self.is_tied else self.num_embedded
        return replace(
            self,
            num_weights=self.num_weights - lost,
            num_pinned=self.num_pinned - (_power_of_two(lost) if lost else 0),
            num_linear=self.num_linear - self.num_embedded,
        )

    def kv_per_token(self, bytes_each: int) -> int:
        """Return the KV-cache memory in bytes per token, for numbers of `bytes_each` bytes."""
        return 2 * self.num_layers * self.key * bytes_each

    def kept_per_token(
        self, compute: int, *, rank: int = 0, row_length: int = 0, recomputes: bool = False, is_fused: bool = False
    ) -> int:
        """Return the memory of activations that a forward pass keeps for the backward pass, in bytes per token.

        Args:
            compute: bytes per number in the compute data type.
            rank: rank of LoRA adapters on a frozen base model of the compute type. 0: all weights are trained, float32.
            row_length: length of rows with an attention mask, which is also kept. 0: no mask.
            recomputes: True for gradient checkpointing.
            is_fused: True if one kernel computes each RMSNorm and SwiGLU, as on CPUs.
        """
        last_norm = FLOAT32 * (1 if rank else 2) * self.hidden
        if recomputes:
            return self.num_layers * (compute if rank else FLOAT32) * self.hidden + last_norm
        return (
            self.num_layers * self.kept_per_layer(compute, rank=rank, row_length=row_length, is_fused=is_fused)
            + last_norm
        )

    def kept_per_layer(self, compute: int, *, rank: int = 0, row_length: int = 0, is_fused: bool = False) -> int:
        """Return the memory of kept activations in bytes per token and layer. Arguments: see `kept_per_token`."""
        d, q, k, f = self.hidden, self.query, self.key, self.feed_forward
        is_cast = compute != FLOAT32
        inner = self.num_products - 1  # feed-forward matrices whose input is the residual stream
        # Inputs of the layer's 2 norms, and outputs if they are trained by several operations
        norms = FLOAT32 * (2 * d if rank or is_fused else 4 * d)
        # Autocast keeps one input per matrix, float32 one input per norm. q: the input of attention's output matrix.
        inputs = compute * ((3 + inner) * d + q if is_cast else 2 * d + q)
        attention = compute * (3 * q if row_length else q + 2 * k) + FLOAT32 * self.num_heads
        if rank:
            attention += compute * q if is_cast else 0  # attention output, in addition to the adapter's input
            inputs += compute * rank * (5 + inner)
        if self.has_head_norms:
            attention += (q + k) * (FLOAT32 + (0 if rank else compute))
            attention += FLOAT32 * (self.num_heads + self.num_key_heads)
        return norms + 2 * FLOAT32 + inputs + attention + compute * ((2 * inner - is_fused) * f + row_length)


_SHAPES: dict[str, ModelShape] = {}  # of configurations


def empty_model(config: PreTrainedConfig) -> Any:
    """Build a model without weights, with an output head if possible. Raise `UserError` if a setting is invalid."""
    kind: Any = AutoModelForCausalLM if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING else AutoModel
    try:
        with torch.device("meta"):
            # The weights' type in the files may be one without operations, such as float8.
            return kind.from_config(deepcopy(config), dtype=torch.float32, trust_remote_code=False)
    except Exception as error:  # transformers can raise any exception for invalid settings
        raise UserError(f"config.json of the model {config.name_or_path!r} has a fault: {reason(error)}") from error


def _shape(config: PreTrainedConfig) -> ModelShape:
    model = empty_model(config)
    text = config.get_text_config(decoder=True)
    head = model.get_output_embeddings() if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING else None
    linear = {name: layer for name, layer in model.named_modules() if isinstance(layer, nn.Linear)}
    inside = [layer for layer in linear.values() if layer is not head]
    num_heads = _largest(text, "num_attention_heads") or 1  # 1 for state-space models
    num_key_heads = _largest(text, "num_key_value_heads") or num_heads
    head_dim = _largest(text, "head_dim") or text.hidden_size // num_heads
    widest = _largest(text, "intermediate_size") or 4 * text.hidden_size
    names = {name.rsplit(".", 1)[-1] for name, _ in model.named_modules()}
    return ModelShape(
        num_weights=sum(weight.numel() for weight in model.parameters()),
        num_pinned=sum(_power_of_two(weight.numel()) for weight in model.parameters()),
        # A model without output matrix is treated as tied, so that `backbone` returns the right sizes.
        num_linear=sum(layer.weight.numel() for layer in inside) + text.vocab_size * text.hidden_size,
        num_rows=sum(layer.in_features + layer.out_features for layer in inside),
        num_layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        query=num_heads * head_dim,
        key=num_key_heads * head_dim,
        num_heads=num_heads,
        num_key_heads=num_key_heads,
        feed_forward=widest,
        num_products=3 if "gate_proj" in names else 2,
        vocabulary=text.vocab_size,
        is_tied=head is None or head.weight is model.get_input_embeddings().weight,
        has_head_norms="q_norm" in names,
    )


def _largest(config: PreTrainedConfig, name: str) -> int | None:
    """Return the largest value of a setting in all layers. None: the model does not have this setting."""
    layers: Any = config.per_layer_config if getattr(config, "is_heterogeneous", False) else [config]
    values = [getattr(layer, name, None) for layer in layers]
    flat = [value for each in values for value in (each if isinstance(each, list) else [each])]
    return max((value for value in flat if value is not None), default=None)


def _power_of_two(size: int) -> int:
    """Round a positive size up to a power of two."""
    return 1 << (size - 1).bit_length()


def small_config(vocab_size: int, *, hidden_dim: int, num_layers: int, max_tokens: int) -> LlamaConfig:
    """Return the configuration of a small Llama, for critics and reward models."""
    return LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=hidden_dim,
        intermediate_size=2 * hidden_dim,
        num_hidden_layers=num_layers,
        num_attention_heads=max(1, hidden_dim // 32),
        max_position_embeddings=max_tokens,
    )
