"""Sharding of a model by FSDP2 (arXiv:2304.11277): matrices are sharded by rows and gathered per layer. Vectors, such
as the scales of norms, are replicated and not cast. Forward passes give bitwise the same result as without sharding."""

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
    """Sharded copy of a model.

    Args:
        model: the model, complete and equal on all ranks.
        mesh: one-dimensional mesh of the ranks.
        compute_dtype: autocast's dtype, in which layers are gathered. None: the dtype of the weights.
        keeps_copy: if True, `model` keeps all weights for decoding, in `compute_dtype`, and `refresh` updates them.
            If False, `model` has matrices only inside `whole`.

    Attributes:
        module: the sharded copy. To compute with it, call the `Shards` object with a function.
    """

    def __init__(
        self, model: PreTrainedModel, mesh: DeviceMesh, compute_dtype: torch.dtype | None, *, keeps_copy: bool
    ):
        super().__init__()
        self.keeps_copy = keeps_copy
        self._model = (model,)  # a tuple, so that torch does not register a submodule
        self._is_first = mesh.get_local_rank() == 0
        matrices = [weight for weight in model.parameters() if weight.ndim > 1]
        self.module: PreTrainedModel = copy.deepcopy(model, {id(weight): weight for weight in matrices})
        vectors = {weight for weight in self.module.parameters() if weight.ndim < 2}
        layers = [layer for layer in self.module.modules() if isinstance(layer, GradientCheckpointingLayer)]
        # FSDP does not cast inputs, because autocast does. No weights stay gathered after a pass, because they may
        # change, and decoding needs the memory.
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
        """Call a function that computes with `module`. It must return tensors, through which gradients flow back."""
        return compute()

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the gathered weights into the model for decoding, if `keeps_copy` (collective)."""
        if not self.keeps_copy:
            return
        (model,) = self._model
        own = dict(model.named_parameters())
        for name, weight in self.module.named_parameters():
            if weight.requires_grad:
                own[name].copy_(full(weight.to(own[name].dtype)))

    @torch.no_grad()
    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield all weights by name, gathered one by one (collective: all ranks must iterate to the end)."""
        for name, weight in self.module.named_parameters():
            yield name, full(weight.detach())

    @contextmanager
    def whole(self, *, on_all: bool = False) -> Iterator[None]:
        """Context manager in which the model of rank 0 (`on_all`: of all ranks) has all weights (collective)."""
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
    """All-gather a sharded tensor (collective). An unsharded tensor is returned unchanged."""
    return weight.full_tensor() if isinstance(weight, DTensor) else weight


def own_rows(weight: Tensor) -> Tensor:
    """Return a view of this rank's rows of a tensor, or of all rows of an unsharded tensor."""
    return weight.to_local().detach() if isinstance(weight, DTensor) else weight.detach()


def rows_for(tensor: Tensor, weight: Tensor) -> Tensor:
    """Return this rank's rows of an unsharded tensor with the shape of a weight."""
    if not isinstance(weight, DTensor):
        return tensor
    return distribute_tensor(tensor, weight.device_mesh, weight.placements, src_data_rank=None).to_local()


@torch.no_grad()
def give(weights: Mapping[str, Tensor], values: Mapping[str, Tensor], prefix: str) -> None:
    """Copy unsharded tensors `values[prefix + name]` into the weights with these names, sharded or not."""
    for name, weight in weights.items():
        own_rows(weight).copy_(rows_for(values[f"{prefix}{name}"], weight))
