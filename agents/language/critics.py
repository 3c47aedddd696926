"""Text critics: a value head on the actor, or a separate transformer on an agent's or the joint history.

Neither computes logits: a value is one linear layer on one hidden state.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from peft import LoraConfig
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from transformers import AutoModel, AutoTokenizer, LlamaModel, PreTrainedModel, PreTrainedTokenizerBase

from ..._errors import UserError
from ..._json import read_json
from ...envs.core import Message, messages_of
from ..batching import padded
from ..core import Critic, CriticInput, HeadCritic, Workplace
from ..decoding.cpu import patch_layers
from ..encoding import MAX_KEPT_TOKENS, Encoder, Recent
from ..scoring.recomputing import recompute_layers
from ..scoring.scorer import at, at_once
from ..scoring.sharding import Shards, give
from .compact_tokenizer import NUM_OWN_WORDS, CompactTokenizer, PlainTokenizer
from .heads import value_head_of
from .policy import LanguagePolicy
from .shape import small_config

HEAD_FILE = "critic_head.safetensors"
SETTINGS_FILE = "collm_critic.json"


@dataclass(frozen=True, slots=True)
class TokenizedInput:
    """One critic input as token ids."""

    rows: tuple[NDArray[np.int64], ...]
    row_of: tuple[int, ...]  # of each value
    position: tuple[int, ...]  # of each value in its row
    num_tokens: int


class TextCritic(Critic):
    """V(h) and, if actions are given, Q(h, a), by a separate transformer with a tokenizer, on histories' text.

    If each history extends the one before it, one forward pass over an episode values all its turns. V is read at the
    end of a history, Q at the end of the actions after it (`CriticInput.actions`, the messages to append).

    Args:
        backbone: a causal transformer without a language-model head.
        tokenizer: need not be the actors'.
        head_hidden_dim: width of a tanh layer before the output; None: one linear layer.
        is_compact: the last `NUM_OWN_WORDS` of the backbone's vocabulary are its own, for shorter histories.
        compute_dtype: type of forward passes, by autocast; None: that of the weights. The head computes in fp32.
        recomputes_activations: run layers again in the backward pass, in place of keeping what they computed.
    """

    def __init__(
        self,
        backbone: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        head_hidden_dim: int | None = None,
        is_compact: bool = False,
        compute_dtype: torch.dtype | None = None,
        recomputes_activations: bool = False,
    ):
        if recomputes_activations:
            recompute_layers(backbone)
        self.backbone = backbone.eval()
        patch_layers(self.backbone)
        self._compute_dtype = compute_dtype
        self.encoder = Encoder(tokenizer)
        self.reader: PlainTokenizer | CompactTokenizer = PlainTokenizer(self.encoder)
        if is_compact:
            num_words = backbone.config.get_text_config().vocab_size
            self.reader = CompactTokenizer(self.encoder, num_words - NUM_OWN_WORDS)
        self.head = value_head_of(backbone, head_hidden_dim)
        self._settings = {"head_hidden_dim": head_hidden_dim, "is_compact": is_compact}
        self._plain = backbone
        self._shards: Shards | None = None
        self._inside: Callable[[Callable[[], Any]], Any] = at_once
        # A replay shows the same inputs in many updates.
        self._tokenized: Recent[TokenizedInput] = Recent(MAX_KEPT_TOKENS, lambda each: each.num_tokens)

    @classmethod
    def small(
        cls,
        tokenizer: PreTrainedTokenizerBase,
        *,
        hidden_dim: int = 64,
        num_layers: int = 1,
        max_tokens: int = 4096,
        head_hidden_dim: int | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
        compute_dtype: torch.dtype | None = None,
    ) -> TextCritic:
        """A small one from random weights: on small tasks it learns faster than one made from the actor's weights."""
        num_words = len(tokenizer) + NUM_OWN_WORDS
        config = small_config(num_words, hidden_dim=hidden_dim, num_layers=num_layers, max_tokens=max_tokens)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            backbone = LlamaModel(config).to(device)  # type: ignore[arg-type]
            return cls(
                backbone, tokenizer, head_hidden_dim=head_hidden_dim, is_compact=True, compute_dtype=compute_dtype
            )

    @property
    def compute_dtype(self) -> torch.dtype | None:
        return self._compute_dtype

    def workplace(self) -> Workplace:
        return Workplace(id(self._plain), self.backbone.device)

    @classmethod
    def load(cls, directory: Path) -> TextCritic:
        """Read what `save` wrote."""
        settings = read_json(directory / SETTINGS_FILE)
        critic = cls(
            AutoModel.from_pretrained(directory, dtype=torch.float32, trust_remote_code=False),
            AutoTokenizer.from_pretrained(directory, trust_remote_code=False),
            **settings,
        )
        critic.head.load_state_dict(load_file(directory / HEAD_FILE))
        if (directory / "adapter_config.json").is_file():
            _freeze_base(critic.backbone)
        return critic

    def values(self, inputs: Sequence[CriticInput]) -> Tensor:
        rows: list[NDArray[np.int64]] = []
        row_of: list[int] = []
        position: list[int] = []
        for item in inputs:
            tokenized = self._tokenize(item)
            row_of += [len(rows) + row for row in tokenized.row_of]
            position += tokenized.position
            rows += tokenized.rows
        longest = max(len(row) for row in rows)
        limit = self.backbone.config.get_text_config().max_position_embeddings
        if longest > limit:
            raise UserError(
                f"a history of {longest} tokens is longer than the critic's {limit}; "
                "give a critic with a longer context, or shorten the texts"
            )
        model_inputs = {"input_ids": padded(rows, self.backbone.device), "use_cache": False}
        computes = self._compute_dtype
        with torch.autocast(self.backbone.device.type, dtype=computes, enabled=computes is not None):
            wanted = np.array([row_of, position])
            hidden = self._inside(lambda: at(self.backbone(**model_inputs).last_hidden_state, wanted))
        values: Tensor = self.head(hidden)
        return values[:, 0]

    def num_tokens(self, item: CriticInput) -> int:
        return self._tokenize(item).num_tokens

    def parameters(self) -> list[nn.Parameter]:
        return [*(weight for weight in self.backbone.parameters() if weight.requires_grad), *self.head.parameters()]

    def state_dict(self) -> dict[str, Tensor]:
        frozen = self._frozen()
        kept = {name: weight for name, weight in self.backbone.state_dict().items() if name not in frozen}
        backbone = {f"backbone.{name}": weight for name, weight in kept.items()}
        return backbone | {f"head.{name}": weight for name, weight in self.head.state_dict().items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        learned = {name: weight for name, weight in self.backbone.named_parameters() if weight.requires_grad}
        give(learned, state, "backbone.")
        prefix = "head."
        self.head.load_state_dict({n.removeprefix(prefix): w for n, w in state.items() if n.startswith(prefix)})

    def shard(self, mesh: DeviceMesh) -> None:
        if self._shards is None:
            self._inside = self._shards = Shards(self.backbone, mesh, self._compute_dtype, keeps_copy=False)
            self.backbone = self._shards.module

    @contextmanager
    def whole(self) -> Iterator[None]:
        if self._shards is None:
            yield
            return
        with self._shards.whole():
            self.backbone = self._plain
            try:
                yield
            finally:
                self.backbone = self._shards.module

    def _frozen(self) -> set[str]:
        """Names of the backbone's weights below its adapters, which every checkpoint would only repeat."""
        return {name for name, weight in self.backbone.named_parameters() if not weight.requires_grad}

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.backbone.save_pretrained(directory)
        self.encoder.tokenizer.save_pretrained(directory)
        save_file(self.head.state_dict(), directory / HEAD_FILE)
        (directory / SETTINGS_FILE).write_text(json.dumps(self._settings) + "\n")

    def _tokenize(self, item: CriticInput) -> TokenizedInput:
        key = (item.histories, item.actions)
        return self._tokenized.get(key, lambda: self._read(item))

    def _read(self, item: CriticInput) -> TokenizedInput:
        readings, places = _read_texts(item)
        rows: list[NDArray[np.int64]] = []
        ends: list[tuple[int, int]] = []
        for chain in _chains(readings):
            ids: list[int] = [self.encoder.end_id]  # an empty history must have a token to be read at
            last = [0]
            for piece in self.reader.pieces(chain[-1]):
                ids += piece
                last.append(len(ids) - 1)
            ends += [(len(rows), last[len(history)]) for history in chain]
            rows.append(np.asarray(ids))
        row_of, position = zip(*(ends[place] for place in places), strict=True)
        return TokenizedInput(tuple(rows), row_of, position, sum(map(len, rows)))


def add_lora(backbone: PreTrainedModel, rank: int) -> None:
    """Put LoRA adapters (arXiv:2106.09685) on every linear layer of a critic's model and freeze the model's weights."""
    settings = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="FEATURE_EXTRACTION")
    backbone.add_adapter(settings)
    of_adapters: Any = backbone.peft_config  # transformers adds it with the adapter
    for each in of_adapters.values():
        if not isinstance(each.target_modules, str):
            each.target_modules = sorted(each.target_modules)  # a set, which would be saved in any order
    _freeze_base(backbone)


def _freeze_base(backbone: PreTrainedModel) -> None:
    """Let only the adapters learn."""
    for name, weight in backbone.named_parameters():
        weight.requires_grad_("lora_" in name)


class ActorHead(HeadCritic[LanguagePolicy]):
    """V(h) by the actor's own value head, on the very tokens that it read and sampled."""

    def values(self, inputs: Sequence[CriticInput]) -> Tensor:
        tracks = []
        for item in inputs:
            has_last = len(item.histories) > len(item.completions)
            last = (self.policy.unanswered(item.histories[-1], item.completions[-1]),) if has_last else ()
            tracks.append(item.completions + last)
        return self.policy.prompt_values(tracks)

    def num_tokens(self, item: CriticInput) -> int:
        return self.policy.num_tokens(item.completions)


def _read_texts(item: CriticInput) -> tuple[list[tuple[Message, ...]], list[int]]:
    """Message lists in temporal order, each history without and with its actions; and the place of each value."""
    histories = [messages_of(history) for history in item.histories]
    readings: list[tuple[Message, ...]] = []
    of_histories, of_actions = [], []
    for turn, history in enumerate(histories):
        of_histories.append(len(readings))
        readings.append(history)
        if turn < len(item.actions):
            of_actions.append(len(readings))
            readings.append(history + tuple(item.actions[turn]))
    return readings, of_histories + of_actions


def _chains(readings: Sequence[tuple[Message, ...]]) -> list[list[tuple[Message, ...]]]:
    """Runs of histories in which each extends the one before; one row of a batch serves a run."""
    chains: list[list[tuple[Message, ...]]] = []
    for reading in readings:
        if chains and reading[: len(chains[-1][-1])] == chains[-1][-1]:
            chains[-1].append(reading)
        else:
            chains.append([reading])
    return chains
