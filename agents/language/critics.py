"""Critics for text: a separate transformer, or a value head on the actor."""

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
from ..decoding.base import context_of
from ..decoding.cpu import patch_layers
from ..decoding.self_check import check_causal
from ..encoding import MAX_KEPT_TOKENS, Encoder, Recent
from ..scoring.recomputing import recompute_layers
from ..scoring.scorer import at_once
from ..scoring.sharding import Shards, give
from ..scoring.small_models import SelectiveLastLayer, selective_last_layer, states_at
from .compact_tokenizer import NUM_OWN_WORDS, CompactTokenizer
from .heads import value_head
from .model_files import reason
from .policy import LanguagePolicy
from .shape import small_config

HEAD_FILE = "critic_head.safetensors"
SETTINGS_FILE = "collm_critic.json"


@dataclass(frozen=True, slots=True)
class TokenizedInput:
    """Token ids of one `CriticInput`, as rows of a batch."""

    rows: tuple[NDArray[np.int64], ...]
    row_of: tuple[int, ...]  # for each value, the index of its row
    position: tuple[int, ...]  # for each value, the index of its token in the row
    num_tokens: int


class TextCritic(Critic):
    """Critic with its own transformer, which estimates V(h) and optionally Q(h, a) from text.

    V(h) is a head's output for the hidden state at the last token of the history h. Q(h, a) is the output at the last
    token of h followed by the action a. If each history extends the previous history, an episode is one batch row.

    Args:
        backbone: causal transformer without a language-model head.
        head_hidden_dim: width of a tanh layer in the head. None: linear head.
        num_agents: number of agents with an own value; `values` are then [N, num_agents]. None: [N].
        is_compact: use a `CompactTokenizer`. The backbone's vocabulary must contain this tokenizer's additional words.
        compute_dtype: data type of autocast in the backbone. None: the weights' data type. The head computes in fp32.
        recomputes_activations: use gradient checkpointing.
    """

    def __init__(
        self,
        backbone: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        head_hidden_dim: int | None = None,
        num_agents: int | None = None,
        is_compact: bool = False,
        compute_dtype: torch.dtype | None = None,
        recomputes_activations: bool = False,
    ):
        if recomputes_activations:
            recompute_layers(backbone)
        self.backbone = backbone.eval()
        patch_layers(self.backbone)
        self._compute_dtype = compute_dtype
        self.encoder = Encoder(tokenizer, is_chat=False)
        self._compact: CompactTokenizer | None = None
        if is_compact:
            num_words = backbone.config.get_text_config().vocab_size
            self._compact = CompactTokenizer(self.encoder, num_words - NUM_OWN_WORDS)
        self.head = value_head(check_causal(backbone), head_hidden_dim, num_agents or 1).to(backbone.device)
        self._settings = {"head_hidden_dim": head_hidden_dim, "num_agents": num_agents, "is_compact": is_compact}
        self._selective = selective_last_layer(backbone)
        self._plain = backbone
        self._shards: Shards | None = None
        self._inside: Callable[[Callable[[], Any]], Any] = at_once
        # Token ids are cached, because inputs stay in the replay buffer for several updates.
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
        num_agents: int | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
        compute_dtype: torch.dtype | None = None,
    ) -> TextCritic:
        """Build a small critic with random weights. On small tasks, it learns faster than the actor's model."""
        num_words = len(tokenizer) + NUM_OWN_WORDS
        config = small_config(num_words, hidden_dim=hidden_dim, num_layers=num_layers, max_tokens=max_tokens)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            backbone = LlamaModel(config).to(device)  # type: ignore[arg-type]
            return cls(
                backbone,
                tokenizer,
                head_hidden_dim=head_hidden_dim,
                num_agents=num_agents,
                is_compact=True,
                compute_dtype=compute_dtype,
            )

    @property
    def compute_dtype(self) -> torch.dtype | None:
        return self._compute_dtype

    def workplace(self) -> Workplace:
        return Workplace(id(self._plain), self.backbone.device)

    @classmethod
    def load(cls, directory: Path) -> TextCritic:
        settings = read_json(directory / SETTINGS_FILE)
        backbone = AutoModel.from_pretrained(directory, dtype=torch.float32, trust_remote_code=False)
        critic = cls(backbone, AutoTokenizer.from_pretrained(directory, trust_remote_code=False), **settings)
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
        limit = context_of(self.backbone.config)
        if limit is not None and longest > limit:
            raise UserError(
                f"a history of {longest} tokens is longer than the critic's context of {limit}; use a critic with a "
                "longer context, or shorten the texts"
            )
        model_inputs = {"input_ids": padded(rows, self.backbone.device), "use_cache": False}
        computes = self._compute_dtype
        with torch.autocast(self.backbone.device.type, dtype=computes, enabled=computes is not None):
            wanted = [np.array([row_of, position])]
            (hidden,) = self._inside(lambda: states_at(self.backbone, model_inputs, wanted, self._selective))
        values: Tensor = self.head(hidden)
        return values[:, 0] if self._settings["num_agents"] is None else values

    def num_tokens(self, item: CriticInput) -> int:
        return self._tokenize(item).num_tokens

    def parameters(self) -> list[nn.Parameter]:
        return [*(weight for weight in self.backbone.parameters() if weight.requires_grad), *self.head.parameters()]

    def state_dict(self) -> dict[str, Tensor]:
        # Frozen weights under adapters are excluded, because they are the same in every checkpoint.
        frozen = {name for name, weight in self.backbone.named_parameters() if not weight.requires_grad}
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
            self._selective = None if self._selective is None else SelectiveLastLayer(self.backbone)

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

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.backbone.save_pretrained(directory)
        self.encoder.tokenizer.save_pretrained(directory)
        save_file(self.head.state_dict(), directory / HEAD_FILE)
        (directory / SETTINGS_FILE).write_text(json.dumps(self._settings) + "\n")

    def _tokenize(self, item: CriticInput) -> TokenizedInput:
        return self._tokenized.get((item.histories, item.actions), lambda: self._encode(item))

    def _encode(self, item: CriticInput) -> TokenizedInput:
        texts, places = _texts(item)
        rows: list[NDArray[np.int64]] = []
        ends: list[tuple[int, int]] = []
        for chain in _chains(texts):
            ids: list[int] = [self.encoder.end_id]  # so that an empty history also has a token
            last = [0]
            if self._compact is not None:
                pieces = self._compact.pieces(chain[-1])
            else:
                pieces = [self.encoder.content(f"{message.content}\n") for message in chain[-1]]
            for piece in pieces:
                ids += piece
                last.append(len(ids) - 1)
            ends += [(len(rows), last[len(history)]) for history in chain]
            rows.append(np.asarray(ids))
        row_of, position = zip(*(ends[place] for place in places), strict=True)
        return TokenizedInput(tuple(rows), row_of, position, sum(map(len, rows)))


def add_lora(backbone: PreTrainedModel, rank: int) -> None:
    """Freeze a critic's model and add LoRA adapters (arXiv:2106.09685) to every linear layer."""
    settings = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="FEATURE_EXTRACTION")
    try:
        backbone.add_adapter(settings)
    except ValueError as error:  # peft accepts only some layers of state-space models
        raise UserError(f"critic_lora_rank: {reason(error)}; train the whole critic") from error
    adapters: Any = backbone.peft_config  # `add_adapter` adds this attribute
    for each in adapters.values():
        if not isinstance(each.target_modules, str):
            each.target_modules = sorted(each.target_modules)  # peft saves a set, whose order varies
    _freeze_base(backbone)


def _freeze_base(backbone: PreTrainedModel) -> None:
    for name, weight in backbone.named_parameters():
        weight.requires_grad_("lora_" in name)


class ActorHead(HeadCritic[LanguagePolicy]):
    """Critic that computes V(h) with the actor's value head, at the last prompt token of each turn."""

    def values(self, inputs: Sequence[CriticInput]) -> Tensor:
        tracks = []
        for item in inputs:
            has_last = len(item.histories) > len(item.completions)
            last = (self.policy.unanswered(item.histories[-1], item.completions[-1]),) if has_last else ()
            tracks.append(item.completions + last)
        return self.policy.prompt_values(tracks)

    def num_tokens(self, item: CriticInput) -> int:
        return self.policy.num_tokens(item.completions)


def _texts(item: CriticInput) -> tuple[list[tuple[Message, ...]], list[int]]:
    """Return the texts h and h + a of all turns, and for each value (V of all h, then Q) the index of its text."""
    texts: list[tuple[Message, ...]] = []
    of_histories, of_actions = [], []
    for turn, history in enumerate(map(messages_of, item.histories)):
        of_histories.append(len(texts))
        texts.append(history)
        if turn < len(item.actions):
            of_actions.append(len(texts))
            texts.append(history + tuple(item.actions[turn]))
    return texts, of_histories + of_actions


def _chains(texts: Sequence[tuple[Message, ...]]) -> list[list[tuple[Message, ...]]]:
    """Split texts (sequences of messages) into chains, in which each text extends the previous text."""
    chains: list[list[tuple[Message, ...]]] = []
    for text in texts:
        if chains and text[: len(chains[-1][-1])] == chains[-1][-1]:
            chains[-1].append(text)
        else:
            chains.append([text])
    return chains
