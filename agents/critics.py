"""Critics of text: a head on the actor, or a model of their own on any history, an agent's or the joint one.

Neither makes a logit: a value is one linear layer on one hidden state.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer, LlamaConfig, LlamaModel, PreTrainedModel, PreTrainedTokenizerBase

from ..envs.core import Message, messages_of
from .core import Critic, View
from .encoding import Encoder
from .language import LanguagePolicy, value_head_of
from .scoring import padded

HEAD_FILE = "critic_head.safetensors"


class TextCritic(Critic):
    """V(h), and Q(h, a) where asked for, by a transformer of its own with its own tokenizer, on the histories' text.

    One forward pass over an episode values all its turns, where each history extends the one before it. V is read where
    a history ends, Q where what was done (`View.actions`, the messages to append) ends after it.

    Args:
        backbone: a causal transformer without a language-model head.
        tokenizer: need not be the actors'.
        head_hidden_dim: of a tanh layer before the output; None: one linear layer.
    """

    def __init__(
        self,
        backbone: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        head_hidden_dim: int | None = None,
    ):
        self.backbone = backbone.eval()
        self.encoder = Encoder(tokenizer)
        self.head = value_head_of(backbone, head_hidden_dim)
        self._head_hidden_dim = head_hidden_dim

    @classmethod
    def small(
        cls,
        tokenizer: PreTrainedTokenizerBase,
        *,
        hidden_dim: int = 64,
        num_layers: int = 2,
        max_tokens: int = 4096,
        head_hidden_dim: int | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> TextCritic:
        """A small one from random weights: on small tasks it learns faster than one made from the actor's weights."""
        config = LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=hidden_dim,
            intermediate_size=2 * hidden_dim,
            num_hidden_layers=num_layers,
            num_attention_heads=max(1, hidden_dim // 32),
            max_position_embeddings=max_tokens,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            backbone = LlamaModel(config).to(device)  # type: ignore[arg-type]
            return cls(backbone, tokenizer, head_hidden_dim=head_hidden_dim)

    @classmethod
    def load(cls, directory: Path) -> TextCritic:
        """Read what `save` wrote."""
        settings = json.loads((directory / "collm_critic.json").read_text())
        critic = cls(
            AutoModel.from_pretrained(directory, dtype=torch.float32),
            AutoTokenizer.from_pretrained(directory),
            head_hidden_dim=settings["head_hidden_dim"],
        )
        critic.head.load_state_dict(load_file(directory / HEAD_FILE))
        return critic

    def values(self, views: Sequence[View]) -> Tensor:
        rows: list[NDArray[np.int64]] = []
        row_of: list[int] = []
        position: list[int] = []
        order: list[int] = []
        for view in views:
            readings, places = _readings(view)
            order += [len(order) + place for place in places]
            for chain in _chains(readings):
                ids, ends = self._row(chain)
                row_of += [len(rows)] * len(ends)
                position += ends
                rows.append(ids)
        longest = max(len(row) for row in rows)
        limit = self.backbone.config.get_text_config().max_position_embeddings
        if longest > limit:
            raise ValueError(
                f"a history of {longest} tokens is longer than the critic's {limit}; "
                "give a critic with a longer context, or shorten the texts"
            )
        device = self.backbone.device
        hidden = self.backbone(input_ids=padded(rows, device), use_cache=False).last_hidden_state
        index = torch.tensor([row_of, position], device=device)[:, order]
        values: Tensor = self.head(hidden[index[0], index[1]].float())
        return values[:, 0]

    def num_tokens(self, view: View) -> int:
        return sum(len(self._row(chain)[0]) for chain in _chains(_readings(view)[0]))

    def parameters(self) -> list[nn.Parameter]:
        return [*self.backbone.parameters(), *self.head.parameters()]

    def state_dict(self) -> dict[str, Tensor]:
        body = {f"backbone.{name}": weight for name, weight in self.backbone.state_dict().items()}
        return body | {f"head.{name}": weight for name, weight in self.head.state_dict().items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for prefix, module in (("backbone.", self.backbone), ("head.", self.head)):
            module.load_state_dict({n.removeprefix(prefix): w for n, w in state.items() if n.startswith(prefix)})

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.backbone.save_pretrained(directory)
        self.encoder.tokenizer.save_pretrained(directory)
        save_file(self.head.state_dict(), directory / HEAD_FILE)
        (directory / "collm_critic.json").write_text(json.dumps({"head_hidden_dim": self._head_hidden_dim}) + "\n")

    def _row(self, chain: Sequence[tuple[Message, ...]]) -> tuple[NDArray[np.int64], list[int]]:
        """The ids of the longest history of a chain, and the last position of each of them."""
        ids: list[int] = [self.encoder.end_id]  # an empty history must have a token to be read at
        ends = [0]
        for message in chain[-1]:
            ids += self.encoder.content(f"{message.content}\n")
            ends.append(len(ids) - 1)
        return np.asarray(ids), [ends[len(history)] for history in chain]


class ActorHead(Critic):
    """V(h) by the actor's own value head, on the very tokens that it read and sampled."""

    def __init__(self, policy: LanguagePolicy):
        if policy.value_head is None:
            raise ValueError("the policy has no value head; make it with has_value_head=True")
        self.policy = policy

    def values(self, views: Sequence[View]) -> Tensor:
        tracks = []
        for view in views:
            has_last = len(view.histories) > len(view.completions)
            last = (self.policy.unanswered(view.histories[-1], view.completions[-1]),) if has_last else ()
            tracks.append(view.completions + last)
        return self.policy.prompt_values(tracks)

    def num_tokens(self, view: View) -> int:
        return self.policy.num_tokens(view.completions)

    def parameters(self) -> list[nn.Parameter]:
        return []  # the policy's optimizer changes them

    def state_dict(self) -> dict[str, Tensor]:
        return {}  # saved with the policy

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        pass

    def save(self, directory: Path) -> None:
        pass


def _readings(view: View) -> tuple[list[tuple[Message, ...]], list[int]]:
    """What is read, in order of time: each history, and it with what was done; and the place of each value there."""
    histories = [messages_of(history) for history in view.histories]
    readings: list[tuple[Message, ...]] = []
    of_histories, of_actions = [], []
    for turn, history in enumerate(histories):
        of_histories.append(len(readings))
        readings.append(history)
        if turn < len(view.actions):
            of_actions.append(len(readings))
            readings.append(history + tuple(view.actions[turn]))
    return readings, of_histories + of_actions


def _chains(readings: Sequence[tuple[Message, ...]]) -> list[list[tuple[Message, ...]]]:
    """Runs of histories each of which extends the one before: one row of a batch serves a whole run."""
    chains: list[list[tuple[Message, ...]]] = []
    for reading in readings:
        if chains and reading[: len(chains[-1][-1])] == chains[-1][-1]:
            chains[-1].append(reading)
        else:
            chains.append([reading])
    return chains
