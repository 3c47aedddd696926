"""Shapes of published models, filled with random weights: nothing is downloaded, and speed asks for no others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, Qwen3Config

from ....agents.core import Completion
from ....agents.decoding.sampling import Sampling
from ....agents.encoding import TokenRecord
from ....agents.language.model import LanguageModel
from ....agents.language.policy import LanguagePolicy
from ....agents.scoring.recomputing import recompute_layers
from ....agents.tiny import TINY_DIRECTORY

SPREAD = 0.04
"""Standard deviation of the random weights: logits are then neither equal nor settled."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a Qwen3 model."""

    name: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int = 151_936

    def config(self) -> Qwen3Config:
        return Qwen3Config(
            hidden_size=self.hidden_size,
            intermediate_size=self.intermediate_size,
            num_hidden_layers=self.num_layers,
            num_attention_heads=self.num_heads,
            num_key_value_heads=self.num_key_value_heads,
            head_dim=self.head_dim,
            vocab_size=self.vocab_size,
            max_position_embeddings=32_768,
            tie_word_embeddings=True,
            initializer_range=SPREAD,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        )

    def num_weights(self) -> int:
        """Weights of the model; embeddings and head are tied."""
        attention = self.hidden_size * self.head_dim * 2 * (self.num_heads + self.num_key_value_heads)
        norms = 2 * self.hidden_size + 2 * self.head_dim
        layer = attention + 3 * self.hidden_size * self.intermediate_size + norms
        return self.num_layers * layer + self.vocab_size * self.hidden_size + self.hidden_size

    def cache_bytes(self, width: int = 2) -> int:
        """Bytes of keys and values per position.

        Args:
            width: bytes per number; 2 in bfloat16.
        """
        return 2 * self.num_layers * self.num_key_value_heads * self.head_dim * width


SMALL = Shape("Qwen3-0.6B", 1024, 3072, 28, 16, 8, 128)
MIDDLE = Shape("Qwen3-1.7B", 2048, 6144, 28, 16, 8, 128)
LARGE = Shape("Qwen3-4B", 2560, 9728, 36, 32, 8, 128)
TINY = Shape("tiny", 64, 128, 2, 4, 2, 16, vocab_size=2048)


def random_model(shape: Shape, device: torch.device, dtype: torch.dtype = torch.float32, seed: int = 0) -> Any:
    """A causal model of the shape, made where it is to be."""
    torch.manual_seed(seed)
    with torch.device(device):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(shape.config(), dtype=dtype)
    return model.eval()


def embedded_tokenizer() -> PreTrainedTokenizerBase:
    """The tokenizer of the embedded model, which is at hand without a download."""
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(TINY_DIRECTORY, trust_remote_code=False)
    return tokenizer


def random_policy(
    shape: Shape,
    device: torch.device,
    *,
    compute_dtype: torch.dtype | None = None,
    recomputes: bool = False,
    max_new_tokens: int = 64,
    seed: int = 0,
) -> LanguagePolicy:
    """A policy with fp32 weights of its own. Most of its words have no text, so that its replies say little."""
    model = random_model(shape, device, seed=seed)
    if recomputes:
        recompute_layers(model)
    language_model = LanguageModel(model, embedded_tokenizer(), compute_dtype=compute_dtype)
    return LanguagePolicy(language_model, sampling=Sampling(), max_new_tokens=max_new_tokens)


def random_prompts(shape: Shape, count: int, length: int, *, is_ragged: bool = False, seed: int = 0) -> list[Any]:
    """Prompts of random tokens: all of one length, or of half of it and more."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(length // 2, length + 1, count) if is_ragged else np.full(count, length)
    return [rng.integers(1, shape.vocab_size, int(each)) for each in lengths]


def tracks_of(prompts: list[NDArray[np.int64]], replies: list[NDArray[np.int64]]) -> list[tuple[Completion, ...]]:
    """One track of one turn for each prompt and reply; zeros stand for the sampler's log-probabilities."""
    return [
        (Completion("", np.zeros(len(reply), np.float32), tokens=TokenRecord(prompt, reply, False, "")),)
        for prompt, reply in zip(prompts, replies, strict=True)
    ]
