"""LoRA adapters: weights, files, and selection for a whole forward pass or for each row of a batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

import torch
from peft import PeftModel, get_peft_model_state_dict
from peft.tuners.lora import Linear as LoraLinear
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils import SAFETENSORS_WEIGHTS_NAME
from peft.utils.other import AuxiliaryTrainingWrapper
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from ..batching import sent

REFERENCE = "collm_reference"  # name of the frozen copy of a saved adapter that training continues


def check_adapter(model: PreTrainedModel | PeftModel, name: str | None) -> None:
    if name is None:
        return
    if not isinstance(model, PeftModel):
        raise ValueError(f"the model has no adapters, so it cannot use adapter {name!r}; wrap the model with peft")
    if name not in model.peft_config:
        raise ValueError(f"the model has no adapter {name!r}; use one of its adapters {sorted(model.peft_config)}")


@contextmanager
def active_adapter(model: PreTrainedModel | PeftModel, name: str | None) -> Iterator[None]:
    """Context manager in which one adapter is active. None: no adapter."""
    if not isinstance(model, PeftModel):
        yield
        return
    previous = model.active_adapter
    is_trained = [(weight, weight.requires_grad) for weight in model.parameters()]  # `set_adapter` changes the flags
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


def adapter_weights(model: nn.Module, name: str) -> dict[str, nn.Parameter]:
    """Return an adapter's weights. The keys are those of peft's files, which do not contain the adapter's name."""
    weights: dict[str, nn.Parameter] = get_peft_model_state_dict(
        model, dict(model.named_parameters()), name, save_embedding_layers=False
    )
    return weights


def save_adapter(model: PeftModel, name: str, folder: Path) -> None:
    """Write an adapter into a folder in peft's format. `PeftModel.save_pretrained` needs a folder of the same name."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {key: weight.detach().cpu().contiguous() for key, weight in adapter_weights(model, name).items()}
    num_own = sum(f".{name}." in f"{path}." for path, _ in model.named_parameters())
    assert len(weights) == num_own, f"{len(weights)} of {num_own} weights of the adapter {name!r} would be saved"
    save_file(weights, folder / SAFETENSORS_WEIGHTS_NAME, metadata={"format": "pt"})
    settings = copy.copy(model.peft_config[name])
    settings.inference_mode = True
    settings.save_pretrained(str(folder))


class AdapterBank:
    """LoRA adapters (arXiv:2106.09685) for a batch in which each row uses its own adapter.

        y = W x + B (m * A x)

    A and B are the concatenated matrices of all adapters. The mask m of a row is 1 for the ranks of its adapter and 0
    elsewhere. Adapters are small, so computing all of them for each row costs less than sorting the rows. The name None
    is the model without adapters.
    """

    def __init__(self, model: PeftModel, names: Sequence[str | None]) -> None:
        self.numbers = {name: number for number, name in enumerate(names)}
        self._layers = [_BankLayer(layer, names) for layer in model.modules() if isinstance(layer, LoraLinear)]
        self._selected: Tensor | None = None

    @staticmethod
    def serves(model: PreTrainedModel | PeftModel) -> bool:
        """Return True if a bank supports the model's adapters: unmerged plain LoRA on linear layers only."""
        if not isinstance(model, PeftModel):
            return False
        layers = [layer for layer in model.modules() if isinstance(layer, BaseTunerLayer | AuxiliaryTrainingWrapper)]
        return bool(layers) and all(isinstance(layer, LoraLinear) and _is_plain(layer) for layer in layers)

    def select(self, numbers: Tensor) -> None:
        """Set the number of the adapter for each row of the next forward pass."""
        self._selected = numbers

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Context manager in which each row uses its selected adapter instead of peft's active adapter."""
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
        """Copy the adapters' current weights into the concatenated matrices, whose memory addresses stay the same."""
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
