"""FSDP2 (arXiv:2304.11277): ranks share a model's matrices out by rows, and have a layer whole while it is computed.

Vectors, such as the scales of norms, stay whole on every rank: they are small, and are not multiplied in half precision
as matrices are. So a pass computes what it computes with whole weights, rounding by rounding.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from ..decoding.base import keep_in

Result = TypeVar("Result")


class Shards(nn.Module):
    """A model's twin that ranks share.

    Args:
        model: the model, whole and alike on all ranks. It stays a model of its own, which no pass goes through.
        mesh: the ranks, along one dimension.
        compute_dtype: type that autocast multiplies matrices in, in which layers are then gathered; None: the weights'.
        keeps_copy: leave the model its weights, in the type that they are multiplied in, to decode with; they are
            those of the last `refresh`. False: it has none, but for a `whole` moment.

    Attributes:
        module: the twin. What computes with it must be given to a call of this.
    """

    def __init__(
        self, model: PreTrainedModel, mesh: DeviceMesh, compute_dtype: torch.dtype | None, *, keeps_copy: bool
    ):
        super().__init__()
        self.keeps_copy = keeps_copy
        self._model = (model,)  # not a part of this module
        self._is_first = mesh.get_local_rank() == 0
        matrices = [weight for weight in model.parameters() if weight.ndim > 1]
        self.module: PreTrainedModel = copy.deepcopy(model, {id(weight): weight for weight in matrices})
        vectors = {weight for weight in self.module.parameters() if weight.ndim < 2}
        layers = [layer for layer in self.module.modules() if isinstance(layer, GradientCheckpointingLayer)]
        # Inputs are left as they are, as autocast knows what is to be cast; and nothing stays gathered between a pass
        # and the next, as weights may change and decoding needs the memory.
        outer = MixedPrecisionPolicy(cast_forward_inputs=False)
        inner = MixedPrecisionPolicy(param_dtype=compute_dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
        for layer in reversed(layers):
            fully_shard(layer, mesh=mesh, mp_policy=inner, ignored_params=vectors, reshard_after_forward=True)
        fully_shard(self, mesh=mesh, mp_policy=outer, ignored_params=vectors, reshard_after_forward=True)
        if keeps_copy:
            model.requires_grad_(False)
            keep_in(model, compute_dtype)
        else:
            for weight in matrices:
                weight.data = weight.data.new_empty(0)

    def forward(self, compute: Callable[[], Result]) -> Result:
        """What a function that computes with the twin returns: tensors, from which the gradient comes back."""
        return compute()

    @torch.no_grad()
    def refresh(self) -> None:
        """Bring the model's own weights up to date, where it has them. All ranks call it."""
        if not self.keeps_copy:
            return
        (model,) = self._model
        own = dict(model.named_parameters())
        for name, weight in self.module.named_parameters():
            if weight.requires_grad:
                own[name].copy_(full(weight.to(own[name].dtype)))

    @torch.no_grad()
    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """The model's weights by name, gathered one after the other. All ranks go through all of them."""
        for name, weight in self.module.named_parameters():
            yield name, full(weight.detach())

    @contextmanager
    def whole(self, *, on_all: bool = False) -> Iterator[None]:
        """Let the first rank's model have all weights, in host memory, inside the block. All ranks enter it.

        Args:
            on_all: let those of all ranks have them.
        """
        (model,) = self._model
        own = dict(model.named_parameters())
        kept: dict[str, Tensor] = {}
        try:
            for name, found in self.weights():
                if self._is_first or on_all:
                    kept[name], own[name].data = own[name].data, found.cpu()
            yield
        finally:
            for name, data in kept.items():
                own[name].data = data


def full(weight: Tensor) -> Tensor:
    """A tensor with the rows of all ranks, who call it together; one that is whole as it is."""
    return weight.full_tensor() if isinstance(weight, DTensor) else weight


def own_rows(weight: Tensor) -> Tensor:
    """This rank's rows of a tensor, in the same memory; all of one that is whole."""
    return weight.to_local().detach() if isinstance(weight, DTensor) else weight.detach()


def rows_for(tensor: Tensor, weight: Tensor) -> Tensor:
    """The rows of a whole tensor that this rank keeps of a weight of its shape."""
    if not isinstance(weight, DTensor):
        return tensor
    return distribute_tensor(tensor, weight.device_mesh, weight.placements, src_data_rank=None).to_local()


@torch.no_grad()
def give(weights: Mapping[str, Tensor], values: Mapping[str, Tensor], prefix: str) -> None:
    """Let weights have the values of whole tensors, whose names have the prefix before theirs."""
    for name, weight in weights.items():
        own_rows(weight).copy_(rows_for(values[f"{prefix}{name}"], weight))
