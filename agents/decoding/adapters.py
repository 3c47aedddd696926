"""Which adapters of a model are at work: one for everything, or one for each row of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import cast

import numpy as np
import torch
from peft import PeftModel
from peft.tuners.lora import Linear as LoraLinear
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import AuxiliaryTrainingWrapper
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from ..batching import sent

Valuer = Callable[[Tensor, Sequence[str | None]], Tensor]
"""Values [N] from the hidden states [N, d] at the ends of prompts and the names of their adapters."""


def check_adapter(model: PreTrainedModel | PeftModel, name: str | None) -> None:
    """Refuse an adapter that the model does not have.

    Raises:
        ValueError: naming those that it has.
    """
    if name is None:
        return
    if not isinstance(model, PeftModel):
        raise ValueError(f"adapter {name!r} is asked for, but the model has no adapters: wrap it with peft")
    if name not in model.peft_config:
        raise ValueError(f"the model has no adapter {name!r}; it has {sorted(model.peft_config)}")


@contextmanager
def active_adapter(model: PreTrainedModel | PeftModel, name: str | None) -> Iterator[None]:
    """Let the adapter of this name act inside the block, or none of them; afterwards all is as it was.

    Peft marks the adapter that it activates as trainable and the others as frozen; that is undone too.
    """
    if not isinstance(model, PeftModel):
        yield
        return
    previous = model.active_adapter
    is_trained = [(weight, weight.requires_grad) for weight in model.parameters()]
    try:
        if name is None:
            with model.disable_adapter():
                yield
        else:
            model.set_adapter(name)
            yield
    finally:
        model.set_adapter(previous)
        for weight, flag in is_trained:
            weight.requires_grad_(flag)


class AdapterBank:
    """LoRA adapters side by side: each row of a batch passes through its own, all rows in one product.

        y = W x + B (m * A x)

    A and B hold the adapters' matrices one below (beside) the other, and the mask m, which depends on the row, lets one
    adapter's share of the rank through. Adapters are small, so computing all of them for every row costs less than
    sorting the rows; and rows may stand in any order.
    """

    def __init__(self, model: PeftModel, names: Sequence[str | None]) -> None:
        """Say whose weights there will be copies of.

        Args:
            names: adapters by number; None is the model without adapters.
        """
        self._numbers = {name: number for number, name in enumerate(names)}
        self._layers = [_BankLayer(layer, names) for layer in model.modules() if isinstance(layer, LoraLinear)]
        self._selected: Tensor | None = None

    @staticmethod
    def serves(model: PreTrainedModel | PeftModel) -> bool:
        """Whether every adapted layer is plain LoRA on a linear layer, nothing merged, wrapped or traded."""
        if not isinstance(model, PeftModel):
            return False
        layers = [layer for layer in model.modules() if isinstance(layer, BaseTunerLayer | AuxiliaryTrainingWrapper)]
        return bool(layers) and all(isinstance(layer, LoraLinear) and _is_plain(layer) for layer in layers)

    def holds(self, names: Sequence[str | None]) -> bool:
        """Whether all of these adapters have numbers here."""
        return self._numbers.keys() >= set(names)

    def number(self, name: str | None) -> int:
        """The number of an adapter."""
        return self._numbers[name]

    def select(self, numbers: Tensor) -> None:
        """Say the number of the adapter of each row of the next pass."""
        self._selected = numbers

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Let the selected adapters act inside the block, as they are now, in place of whichever peft has active."""
        with ExitStack() as stack:
            for layer in self._layers:
                layer.copy_weights()
                vars(layer.module)["forward"] = layer.forward_of(self._rows)
                stack.callback(vars(layer.module).pop, "forward")
            yield

    def _rows(self) -> Tensor:
        assert self._selected is not None
        return self._selected


class _BankLayer:
    """One layer's adapters."""

    def __init__(self, module: LoraLinear, names: Sequence[str | None]) -> None:
        self.module = module
        self._own = [name for name in names if name is not None and name in module.lora_A]
        self._down: Tensor | None = None
        self._up: Tensor | None = None
        self._mask: Tensor | None = None
        if self._own:
            down = [cast(nn.Linear, module.lora_A[name]).weight for name in self._own]
            ranks = [len(cast(nn.Linear, module.lora_A[name]).weight) if name in self._own else 0 for name in names]
            mask = torch.block_diag(*[torch.ones(1, rank) for rank in ranks])
            self._mask = sent(mask.to(down[0].dtype), down[0].device)

    def copy_weights(self) -> None:
        """Take the adapters' weights as they are now, to where they were taken before."""
        if not self._own:
            return
        down = [cast(nn.Linear, self.module.lora_A[name]).weight for name in self._own]
        up = [cast(nn.Linear, self.module.lora_B[name]).weight * self.module.scaling[name] for name in self._own]
        if self._down is None or self._up is None:
            self._down, self._up = torch.cat(down), torch.cat(up, dim=1)
        else:
            torch.cat(down, out=self._down)
            torch.cat(up, dim=1, out=self._up)

    def forward_of(self, rows: Callable[[], Tensor]) -> Callable[..., Tensor]:
        layer, down, up, mask = self.module.get_base_layer(), self._down, self._up, self._mask

        def forward(x: Tensor, *args: object, **kwargs: object) -> Tensor:
            result: Tensor = layer(x, *args, **kwargs)
            if down is None or up is None or mask is None:
                return result
            inner = functional.linear(x.to(down.dtype), down)
            inner = inner * mask[rows()].view(len(inner), *[1] * (inner.ndim - 2), -1)
            return result + functional.linear(inner, up).to(result.dtype)

        return forward


def _is_plain(layer: LoraLinear) -> bool:
    is_vanilla = type(layer) is LoraLinear and not layer.lora_variant and not any(layer.lora_bias.values())
    return is_vanilla and not layer.merged and not layer.disable_adapters and "forward" not in vars(layer)


def values_of(heads: nn.Module | Mapping[str | None, nn.Module], hidden: Tensor, names: Sequence[str | None]) -> Tensor:
    """Each row's value by the head of its adapter: [N] from hidden states [N, d]; NaN where there is no head."""
    if not isinstance(heads, Mapping):
        values: Tensor = heads(hidden).float().flatten()
        return values
    values = torch.full((len(names),), torch.nan, device=hidden.device)
    for name in dict.fromkeys(names):
        head = heads.get(name)
        if head is not None:
            rows = sent(np.flatnonzero([own == name for own in names]), hidden.device)
            values[rows] = head(hidden[rows]).float().flatten()
    return values
