"""Prompts and samples, the protocol of generators, and the recorder of draws."""

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

    ids: Sequence[int] | NDArray[np.int64]
    """Token ids of the whole history, at least one."""
    stream: tuple[int, ...]
    """Name of the random stream: (seed, episode, agent, turn)."""
    max_new_tokens: int
    """Most tokens of the completion, >= 1."""
    parked: Hashable | None = None
    """Handle under which keys and values stay cached for the next prompt with this handle. If that prompt starts with
    these tokens and this completion, only the rest is computed. None: no caching."""
    adapter: str | None = None
    """Name of the adapter. None: the model without adapters."""

    @property
    def key(self) -> Hashable | None:
        """Cache key of the handle, separate for each adapter. None: no caching."""
        return None if self.parked is None else (self.adapter, self.parked)


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion of T tokens, with facts of the distribution softmax(logits / temperature) before filters."""

    ids: NDArray[np.int64]  # [T] sampled tokens, including the stop token
    logprobs: NDArray[np.float32]  # [T]
    entropies: NDArray[np.float32]  # [T], nats
    is_cut: bool  # ended by max_new_tokens, not by a stop token
    value: float | None  # prediction of the value head at the last prompt token; None without a head


class Generator(Protocol):
    """Sampler of completions for a language policy: a decoder in this process, or a client of servers."""

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Sample]:
        """Return one sample per prompt, in the order of the prompts. No sample depends on the other prompts."""

    def forget(self) -> None:
        """Clear caches after a change of weights, and use the new weights."""

    def rest(self) -> None:
        """Release memory that only sampling needs. The weights change before the next call of `generate`."""

    def fix_shapes(self) -> None:
        """Make samples independent of the batch, bit for bit.

        Raises:
            ValueError: if that is not possible.
        """


class DrawRecorder:
    """Collects the draws of all steps and splits them into one sample per request."""

    def __init__(self, prompts: Sequence[Prompt], sampling: Sampling) -> None:
        longest = max(prompt.max_new_tokens for prompt in prompts)
        self.noise = np.zeros((len(prompts), longest)) if not sampling.greedy else None
        """Random numbers [prompts, steps]; None if greedy."""
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
        """Store the draws of a step with the numbers of their requests; -1 marks draws to discard."""
        self._owners.append(owners)
        self._tokens.append(tokens)
        self._logprobs.append(drawn.logprobs)
        self._entropies.append(drawn.entropies)

    def record_values(self, owners: NDArray[np.int64], values: Tensor) -> None:
        """Store predicted values [N] or [N, 1] of these requests' prompts."""
        self._valued.append(owners)
        self._values.append(values.float().flatten())

    def samples(self, is_stop: NDArray[np.bool_]) -> list[Sample]:
        """Return one sample per prompt, in the order of the prompts.

        Raises:
            Divergence: if log-probabilities are NaN. `rows` are the numbers of those prompts.
        """
        owners = np.concatenate(self._owners)
        read = torch.cat([*self._logprobs, *self._entropies, *self._values]).cpu().numpy()  # one synchronization
        recorded, entropies, values = np.split(read, [len(owners), 2 * len(owners)])
        wrong = np.isnan(recorded) & (owners >= 0)
        if wrong.any():
            raise Divergence("the model's logits are not numbers", rows=np.unique(owners[wrong]).tolist())
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
