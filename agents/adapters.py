"""Which adapter of a model is at work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from peft import PeftModel
from transformers import PreTrainedModel


@contextmanager
def active_adapter(model: PreTrainedModel | PeftModel, name: str | None) -> Iterator[None]:
    """Let the adapter of this name act inside the block, or none of them; afterwards all is as it was.

    Peft marks the adapter that it activates as trainable and the others as frozen; that is undone too.

    Raises:
        ValueError: if the model has no adapter of this name.
    """
    if not isinstance(model, PeftModel):
        if name is not None:
            raise ValueError(f"adapter {name!r} is asked for, but the model has no adapters: wrap it with peft")
        with nullcontext():
            yield
    elif name is None:
        with model.disable_adapter():
            yield
    elif name not in model.peft_config:
        raise ValueError(f"the model has no adapter {name!r}; it has {sorted(model.peft_config)}")
    else:
        previous = model.active_adapter
        is_trained = [(weight, weight.requires_grad) for weight in model.parameters()]
        try:
            model.set_adapter(name)
            yield
        finally:
            model.set_adapter(previous)
            for weight, flag in is_trained:
                weight.requires_grad_(flag)


def core_of(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """The transformers model inside; adapters act in its layers all the same."""
    core = model.get_base_model() if isinstance(model, PeftModel) else model
    if not isinstance(core, PreTrainedModel):
        raise ValueError(f"{type(core).__name__} is not a transformers model: load it with AutoModelForCausalLM")
    return core
