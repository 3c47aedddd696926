"""Access to parts of a transformers model: base model, compute dtype, attention window, logits and hidden states."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from peft import PeftModel
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from ..._errors import UserError
from .cpu import is_plain_linear

WINDOW_NAMES = ("window_size", "attention_window_size")  # settings of models whose cache ignores windows (GPT-Neo)


def base_of(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """Return the transformers model without peft's wrapper. The layers still contain the adapters."""
    base = model.get_base_model() if isinstance(model, PeftModel) else model
    if not isinstance(base, PreTrainedModel):
        raise ValueError(f"{type(base).__name__} is not a transformers model: load it with AutoModelForCausalLM")
    return base


def backbone_of(base: PreTrainedModel) -> PreTrainedModel:
    """Return the submodule that computes the hidden states. Raise `UserError` if the model has none."""
    # Not `base_model`, which is the whole model if its class names an attribute that does not exist (Llama 4).
    models = [module for module in base.modules() if isinstance(module, PreTrainedModel)]
    if len(models) == 1:
        raise UserError(f"{type(base).__name__} has no submodule for hidden states; give a causal language model")
    return models[1]


def computing_type(base: PreTrainedModel) -> torch.dtype:
    """Return the dtype of the model's matmuls: autocast's dtype if autocast is on, else the dtype of the weights."""
    kind = base.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else base.dtype


def context_of(config: PreTrainedConfig) -> int | None:
    """Return the maximum number of tokens of a prompt with its completion. None: unlimited."""
    limit: int | None = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    return limit if limit is not None and limit > 0 else None  # XLNet and others write -1 for no limit


def window_of(base: PreTrainedModel) -> int | None:
    """Return the shortest attention window of the model's layers, in tokens. None: all layers have full attention."""
    config = base.config.get_text_config(decoder=True)
    windows = [window for name in WINDOW_NAMES if (window := getattr(config, name, None)) is not None]
    layers = DynamicCache(config=base.config).layers
    windows += [layer.sliding_window for layer in layers if isinstance(layer, DynamicSlidingWindowLayer)]
    return min(windows, default=None)


def check_layers(base: PreTrainedModel) -> None:
    """Raise `ValueError` if a layer of the model remembers more than the keys and values of attention."""
    for layer in DynamicCache(config=base.config).layers:
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer):
            raise ValueError(f"the cache layer {type(layer).__name__} stores more than one key and value per token")


def next_logits(base: PreTrainedModel, ids: Tensor, cache: DynamicCache | None) -> Tensor:
    """Return logits [N, V] of the token that follows the ids [N, T]. The ids continue the sequences in the cache."""
    kept = {} if cache is None else {"past_key_values": cache}
    logits: Tensor = base(input_ids=ids, use_cache=cache is not None, **kept).logits[:, -1]
    return logits


@contextmanager
def hidden_states_of(base: PreTrainedModel) -> Iterator[list[Tensor]]:
    """Context manager that yields a list of one element: the last hidden states [N, T, d] of the last forward pass."""
    newest: list[Tensor] = []

    def keep(module: nn.Module, args: object, output: object) -> None:
        newest[:] = [output[0]]  # type: ignore[index]

    # Some models (OPT, BART) call only a part of their backbone. The outermost module that runs calls its hook last.
    models = [module for module in base.modules() if isinstance(module, PreTrainedModel)]
    with ExitStack() as stack:
        for module in models[1:] or models:
            stack.callback(module.register_forward_hook(keep).remove)
        stack.callback(newest.clear)
        yield newest


def keep_in(model: nn.Module, dtype: torch.dtype | None) -> None:
    """Convert the weights of linear layers to `dtype`, so that autocast need not cast them in each forward pass."""
    if dtype is None:
        return
    # Weights that are tied to an embedding stay in fp32, because embeddings are added in fp32.
    embeddings = {id(layer.weight) for layer in model.modules() if isinstance(layer, nn.Embedding)}
    for layer in model.modules():
        if isinstance(layer, nn.Linear) and id(layer.weight) not in embeddings:
            layer.to(dtype)


class CastWeights:
    """Copies of linear layers' weights in autocast's dtype, at fixed memory addresses.

    In inference mode, autocast casts all weights in each pass, which takes several times as long as reading the copies.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._layers = [
            (layer, layer.weight.to(dtype), None if layer.bias is None else layer.bias.to(dtype))
            for layer in model.modules()
            if is_plain_linear(layer) and layer.weight.dtype != dtype and "forward" not in vars(layer)
        ]

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Context manager that updates the copies, and in which the layers compute with the copies."""
        with ExitStack() as stack:
            for layer, weight, bias in self._layers:
                weight.copy_(layer.weight)
                if bias is not None:
                    bias.copy_(layer.bias)
                vars(layer)["forward"] = partial(functional.linear, weight=weight, bias=bias)
                stack.callback(vars(layer).pop, "forward")
            yield
