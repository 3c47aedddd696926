"""The base: the model below peft's wrapper, the types it computes and is kept in, its window, logits, hidden states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from peft import PeftModel
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from .cpu import is_plain_linear

WINDOW_NAMES = ("window_size", "attention_window_size")  # of models whose cache does not tell, as GPT-Neo


def base_of(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """The transformers model below peft's wrapper, if there is one; adapters act in its layers all the same.

    Raises:
        ValueError: if there is none.
    """
    base = model.get_base_model() if isinstance(model, PeftModel) else model
    if not isinstance(base, PreTrainedModel):
        raise ValueError(f"{type(base).__name__} is not a transformers model: load it with AutoModelForCausalLM")
    return base


def computing_type(base: PreTrainedModel) -> torch.dtype:
    """The type of a model's matrix products here: autocast's where it is on, else that of the weights."""
    kind = base.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else base.dtype


def window_of(base: PreTrainedModel) -> int | None:
    """The shortest window of the model's attention layers in tokens; None if all of them see everything.

    Raises:
        ValueError: if a layer keeps something other than the keys and values of its tokens.
    """
    config = base.config.get_text_config(decoder=True)
    windows = [window for name in WINDOW_NAMES if (window := getattr(config, name, None)) is not None]
    for layer in DynamicCache(config=base.config).layers:
        if type(layer) is DynamicSlidingWindowLayer:
            windows.append(layer.sliding_window)
        elif type(layer) is not DynamicLayer:
            raise ValueError(f"its {type(layer).__name__} keeps more than one key and value per token")
    return min(windows, default=None)


def next_logits(base: PreTrainedModel, ids: Tensor, cache: DynamicCache | None) -> Tensor:
    """Logits [N, V] after the last of the ids [N, T], which follow what the cache holds."""
    kept = {} if cache is None else {"past_key_values": cache}
    logits: Tensor = base(input_ids=ids, use_cache=cache is not None, **kept).logits[:, -1]
    return logits


@contextmanager
def hidden_states_of(base: PreTrainedModel) -> Iterator[list[Tensor]]:
    """A list whose only element is always the last hidden states [N, T, d] of the newest pass through the model."""
    newest: list[Tensor] = []

    def keep(module: nn.Module, args: object, output: object) -> None:
        newest[:] = [output[0]]  # type: ignore[index]

    handle: RemovableHandle = base.base_model.register_forward_hook(keep)
    try:
        yield newest
    finally:
        handle.remove()


def keep_in(model: nn.Module, dtype: torch.dtype | None) -> None:
    """Keep the weights of linear layers, which autocast would make anew for each pass, in its type; not those that an
    embedding shares, which is added up in fp32."""
    if dtype is None:
        return
    looked_up = {id(layer.weight) for layer in model.modules() if isinstance(layer, nn.Embedding)}
    for layer in model.modules():
        if isinstance(layer, nn.Linear) and id(layer.weight) not in looked_up:
            layer.to(dtype)


class CastWeights:
    """Copies of linear layers' weights in the type that autocast multiplies in, at addresses that stay.

    In inference mode autocast casts every weight anew in each pass, which takes several times as long as to read the
    copies; else it keeps such copies, but only until its context ends. Layers that are no plain linear ones are left to
    it.

    Args:
        model: the model.
        dtype: what autocast casts to.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._layers = [
            (layer, layer.weight.to(dtype), None if layer.bias is None else layer.bias.to(dtype))
            for layer in model.modules()
            if is_plain_linear(layer) and layer.weight.dtype != dtype and "forward" not in vars(layer)
        ]

    @property
    def num_bytes(self) -> int:
        """Memory that the copies take."""
        return sum(weight.nbytes + (0 if bias is None else bias.nbytes) for _, weight, bias in self._layers)

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Bring the copies up to date, and let the layers multiply by them inside the block."""
        with ExitStack() as stack:
            for layer, weight, bias in self._layers:
                weight.copy_(layer.weight)
                if bias is not None:
                    bias.copy_(layer.bias)
                vars(layer)["forward"] = _product(weight, bias)
                stack.callback(vars(layer).pop, "forward")
            yield


def _product(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        return functional.linear(x, weight, bias)  # autocast casts x

    return forward
