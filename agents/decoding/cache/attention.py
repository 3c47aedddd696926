"""Attention to kept keys and values, which several query heads may share (grouped-query attention, GQA).

On a CPU one new token per row attends by a kernel of our own. Elsewhere, and to torch, the query heads of a group are
rows that look at the same keys. Where a pass comes with a mask, transformers repeats keys and values for every query
head instead (before 5.23 in decoding steps too, which made them take twice as long on a CPU).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from ..cpu import attend

NAME = "collm_sdpa"


def attention_to_kept(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """transformers' `sdpa` attention, faster on a CPU, and without a copy of keys and values where torch needs none.

    Axes: N rows, H query heads, K heads of keys and values, T new tokens, W columns, d numbers of a head.

    Args:
        query: [N, H, T, d].
        key: [N, K, W, d], as values.
        attention_mask: [N, 1, T, W], added to the scores; None, or one per head: all is left to transformers.
        kwargs: what else layers tell their attention.

    Returns:
        [N, T, H, d], and no attention weights.
    """
    num_rows, num_heads, num_tokens, width = query.shape
    num_kept = key.shape[1]
    if attention_mask is None or attention_mask.shape[1] != 1 or kwargs.get("position_bias") is not None:
        return _left(module, query, key, value, attention_mask, **kwargs)
    dropout, scale = kwargs.get("dropout", 0.0), kwargs.get("scaling")
    if dropout == 0:
        output = attend(query, key, value, attention_mask, width**-0.5 if scale is None else scale)
        if output is not None:
            return output, None
    # Elsewhere torch has only its plain attention for heads that share under a mask, which keeps all scores.
    if num_heads == num_kept or (num_tokens > 1 and query.device.type != "cpu"):
        return _left(module, query, key, value, attention_mask, **kwargs)
    options = {"dropout_p": dropout, "scale": scale}
    if num_tokens > 1:
        output = functional.scaled_dot_product_attention(query, key, value, attention_mask, enable_gqa=True, **options)
        return output.transpose(1, 2).contiguous(), None
    group = query.reshape(num_rows, num_kept, num_heads // num_kept, width)
    output = functional.scaled_dot_product_attention(group, key, value, attention_mask, **options)
    return output.reshape(num_rows, 1, num_heads, -1), None


def _left(*args: Any, **kwargs: Any) -> tuple[Tensor, None]:
    """What transformers does."""
    attended: tuple[Tensor, None] = sdpa_attention_forward(*args, **kwargs)
    return attended


AttentionInterface.register(NAME, attention_to_kept)


@contextmanager
def own_attention(base: PreTrainedModel) -> Iterator[None]:
    """Let a model attend to kept keys and values by `attention_to_kept` inside the block, where that is of use.

    For passes with a mask of their own alone: by this name transformers would make none. Passes of other threads
    meanwhile are right either way.
    """
    config = base.config.get_text_config(decoder=True)
    num_heads = getattr(config, "num_attention_heads", None)
    is_shared = getattr(config, "num_key_value_heads", None) not in (None, num_heads)
    if config._attn_implementation != "sdpa" or not (is_shared or base.device.type == "cpu"):
        yield
        return
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = "sdpa"
