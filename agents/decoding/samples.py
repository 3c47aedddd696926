"""Prompts, samples, the protocol of completion generators, and the recorder of sampled tokens."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core import Divergence
from .sampling import Draw, Sampling, uniforms


@dataclass(frozen=True, slots=True)
class Prompt:
    """Request for one completion."""

    ids: Sequence[int] | NDArray[np.int64]  # token ids of the agent's whole history, at least one
    stream: tuple[int, ...]  # key of the random stream: (seed, episode, agent, turn)
    max_new_tokens: int  # maximum number of tokens in the completion, >= 1
    parked: Hashable | None = None
    """Handle under which keys and values stay in the KV cache. If the next prompt with this handle starts with this
    prompt and its completion, only the new tokens are computed. None: nothing stays cached."""
    adapter: str | None = None  # None: the model without adapters

    @property
    def key(self) -> Hashable | None:
        """Cache key: the adapter and the handle. None: nothing stays cached."""
        return None if self.parked is None else (self.adapter, self.parked)


@dataclass(frozen=True, slots=True)
class Sample:
    """Completion of T tokens, with log-probabilities and entropies of softmax(logits / temperature) before filters."""

    ids: NDArray[np.int64]  # [T] sampled tokens, including the stop token
    logprobs: NDArray[np.float32]  # [T]
    entropies: NDArray[np.float32]  # [T], nats
    is_cut: bool  # True if max_new_tokens ended the completion; False: a stop token ended it
    value: float | None  # output of the value head at the last prompt token; None without a value head


class Generator(Protocol):
    """Interface of completion samplers: a decoder in this process, or a client of vLLM servers."""

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Sample]:
        """Return one sample per prompt, in the order of the prompts. No sample depends on the other prompts."""

    def forget(self) -> None:
        """Clear caches after the weights have changed, and use the new weights."""

    def rest(self) -> None:
        """Release memory that only sampling needs, before the weights change."""

    def fix_shapes(self) -> None:
        """Use fixed batch shapes, so that no sample depends on other prompts. Raise `ValueError` if impossible."""


class DrawRecorder:
    """Recorder of the tokens sampled in all decoding steps, which are then split into one sample per prompt."""

    def __init__(self, prompts: Sequence[Prompt], sampling: Sampling) -> None:
        longest = max(prompt.max_new_tokens for prompt in prompts)
        # Uniform random numbers [prompts, decoding steps].
        self.noise = np.zeros((len(prompts), longest)) if not sampling.greedy else None
        if self.noise is not None:
            for row, prompt in zip(self.noise, prompts, strict=True):
                row[: prompt.max_new_tokens] = uniforms(prompt.stream, prompt.max_new_tokens)
        self._num_prompts = len(prompts)
        self._valued: list[NDArray[np.int64]] = []
        self._values: list[Tensor] = []
        self._owners: list[NDArray[np.int64]] = []
        self._tokens: list[NDArray[np.int64]] = []
        self._logprobs: list[Tensor] = []
        self._entropies: list[Tensor] = []

    def record(self, owners: NDArray[np.int64], tokens: NDArray[np.int64], drawn: Draw) -> None:
        """Store the tokens sampled in one step. `owners`: index of each token's prompt, or -1 to discard the token."""
        self._owners.append(owners)
        self._tokens.append(tokens)
        self._logprobs.append(drawn.logprobs)
        self._entropies.append(drawn.entropies)

    def record_values(self, owners: NDArray[np.int64], values: Tensor) -> None:
        """Store the values [N] or [N, 1] that the value head predicts for the prompts with indices `owners`."""
        self._valued.append(owners)
        self._values.append(values.float().flatten())

    def samples(self, is_stop: NDArray[np.bool_]) -> list[Sample]:
        """Return one sample per prompt, in order. Raise `Divergence` with the prompts whose logits are NaN."""
        owners = np.concatenate(self._owners)
        read = torch.cat([*self._logprobs, *self._entropies, *self._values]).cpu().numpy()  # one copy to the host
        recorded, entropies, values = np.split(read, [len(owners), 2 * len(owners)])
        wrong = np.isnan(recorded) & (owners >= 0)
        if wrong.any():
            raise Divergence("the model's logits are not numbers (NaN)", rows=np.unique(owners[wrong]).tolist())
        order = np.argsort(owners, kind="stable")
        order = order[np.count_nonzero(owners < 0) :]
        cuts = np.cumsum(np.bincount(owners[order], minlength=self._num_prompts))[:-1]
        value_of: list[float | None] = [None] * self._num_prompts
        if self._valued:
            for owner, value in zip(np.concatenate(self._valued).tolist(), values.tolist(), strict=True):
                value_of[owner] = value
        parts = (np.split(each[order], cuts) for each in (np.concatenate(self._tokens), recorded, entropies))
        return [
            Sample(tokens, logprob, entropy, not is_stop[tokens[-1]], value)
            for tokens, logprob, entropy, value in zip(*parts, value_of, strict=True)
        ]
