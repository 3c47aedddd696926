"""Reward model: a sequence classifier with one output, which scores texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForSequenceClassification,
    LlamaForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from ..decoding.base import context_of
from .heads import keep_head_precise
from .model_files import tokenizer_of
from .pretrained import load_model
from .shape import small_config


class RewardModel:
    """Reward model that scores texts. `algorithms/learning/preferences.py` trains it on preferences.

    Args:
        model: a `...ForSequenceClassification` of transformers with `num_labels=1`.
        tokenizer: the model's tokenizer. Long texts are truncated at the beginning.
        compute_dtype: data type of autocast in forward passes. None: the weights' data type. Scores are fp32.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, compute_dtype: torch.dtype | None = None
    ):
        if model.config.num_labels != 1:
            raise ValueError(
                f"a reward is one number, but {type(model).__name__} has {model.config.num_labels} outputs; "
                "load the model with num_labels=1"
            )
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        tokenizer.padding_side = "right"
        tokenizer.truncation_side = "left"  # the end of a text matters most
        model.config.pad_token_id = tokenizer.pad_token_id  # the model needs it to find the last token of each row
        keep_head_precise(model)
        self.model = model.eval()
        self.compute_dtype = compute_dtype
        self.tokenizer = tokenizer
        self.max_tokens = min(context_of(model.config) or tokenizer.model_max_length, tokenizer.model_max_length)

    @classmethod
    def load(
        cls, name: str | Path, device: torch.device | str = "cpu", compute_dtype: torch.dtype | None = None
    ) -> RewardModel:
        """Load a reward model with fp32 weights from a folder, or by a name on the Hugging Face hub."""
        loaded = load_model(name, AutoModelForSequenceClassification, num_labels=1)
        return cls(loaded.to(device), tokenizer_of(name, loaded.config), compute_dtype)

    @classmethod
    def small(
        cls,
        tokenizer: PreTrainedTokenizerBase,
        *,
        hidden_dim: int = 64,
        num_layers: int = 2,
        max_tokens: int = 4096,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> RewardModel:
        """Build a small reward model with random weights."""
        config = small_config(len(tokenizer), hidden_dim=hidden_dim, num_layers=num_layers, max_tokens=max_tokens)
        config.num_labels = 1
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = LlamaForSequenceClassification(config)
        return cls(model.to(device), tokenizer)  # type: ignore[arg-type]

    def scores(self, texts: Sequence[str]) -> Tensor:
        """Return the scores [N] of N texts, with gradients for training."""
        batch = self.tokenizer(
            list(texts), padding=True, truncation=True, max_length=self.max_tokens, return_tensors="pt"
        ).to(self.model.device)
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        computes = self.compute_dtype
        with torch.autocast(self.model.device.type, dtype=computes, enabled=computes is not None):
            logits: Tensor = self.model(**inputs).logits
        return logits[:, 0].float()

    @torch.no_grad()
    def rewards(self, texts: Sequence[str], *, batch_size: int = 32) -> list[float]:
        """Return the scores of texts as floats, computed in batches without gradients."""
        found: list[float] = []
        for start in range(0, len(texts), batch_size):
            found += self.scores(texts[start : start + batch_size]).tolist()
        return found

    def parameters(self) -> list[nn.Parameter]:
        return list(self.model.parameters())

    def save(self, directory: str | Path) -> None:
        """Write model and tokenizer into a folder, for `load` and `from_pretrained`."""
        Path(directory).mkdir(parents=True, exist_ok=True)
        self.model.save_pretrained(directory)
        self.tokenizer.save_pretrained(directory)
