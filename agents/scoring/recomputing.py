"""Activation checkpointing (arXiv:1604.06174): layers store only their inputs and run again in the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer


def recompute_layers(model: nn.Module) -> None:
    """Turn on activation checkpointing for the layers of a model. Raise `ValueError` if no layer supports it."""
    # transformers' `gradient_checkpointing_enable` works only in training mode, in which dropout would change the
    # distribution from which tokens were sampled.
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise ValueError(f"{type(model).__name__} lacks gradient checkpointing; use recomputes_activations=False")
    for layer in layers:
        vars(layer)["forward"] = partial(_recomputed, layer.forward)


def _recomputed(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)
