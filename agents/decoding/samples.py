"""Prompts in, samples out: what a generator of completions is asked and what it answers, and the recorder of draws."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core import Divergence
from .sampling import Draw, Sampling
from .streams import uniforms


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request for a completion."""

    ids: Sequence[int] | NDArray[np.int64]
    """All tokens so far, history included; at least one."""
    stream: tuple[int, ...]
    """Name of the request's own random numbers: (seed, episode, agent, turn)."""
    max_new_tokens: int
    """The completion is cut after this many tokens, >= 1."""
    parked: Hashable | None = None
    """Handle under which the keys and values stay for the next prompt with the same handle, which is expected to begin
    with these tokens and this completion; whatever does not agree is computed anew. None keeps nothing."""
    adapter: str | None = None
    """Name of the adapter that decides; None is the model without adapters."""

    @property
    def key(self) -> Hashable | None:
        """What its keys and values are parked under: the handle of one adapter is not another's. None keeps nothing."""
        return None if self.parked is None else (self.adapter, self.parked)


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion. T tokens; the distribution is softmax(logits / temperature) before any filter."""

    ids: NDArray[np.int64]  # [T] as sampled, the end token included when it was sampled
    logprobs: NDArray[np.float32]  # [T]
    entropies: NDArray[np.float32]  # [T], nats
    is_cut: bool  # stopped by max_new_tokens, not by an end token
    value: float | None  # what the value head says at the last prompt token; None without a head


class Generator(Protocol):
    """What samples completions for a language policy: the decoder in this process, or a server elsewhere."""

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Sample]:
        """One sample for each prompt, in their order; the sample of one does not depend on the others."""

    def forget(self) -> None:
        """The weights have changed: drop what was computed with old ones, and sample from the new from here on."""

    def fix_shapes(self) -> None:
        """From here on, no sample depends on the others by a single bit.

        Raises:
            ValueError: if that cannot be had.
        """


class DrawRecorder:
    """Records one row of draws per step and cuts the record into samples, one for each request."""

    def __init__(self, prompts: Sequence[Prompt], sampling: Sampling) -> None:
        longest = max(prompt.max_new_tokens for prompt in prompts)
        self._noise = np.zeros((len(prompts), longest if not sampling.greedy else 0))
        if not sampling.greedy:
            for row, prompt in zip(self._noise, prompts, strict=True):
                row[: prompt.max_new_tokens] = uniforms(prompt.stream, prompt.max_new_tokens)
        self._values: list[float | None] = [None] * len(prompts)
        self._owners: list[NDArray[np.int64]] = []
        self._tokens: list[NDArray[np.int64]] = []
        self._logprobs: list[Tensor] = []
        self._entropies: list[Tensor] = []

    def noise(self, owners: NDArray[np.int64], steps: NDArray[np.int64]) -> Tensor | None:
        """The random number of each request at its own step: float64 [N]; None when greedy."""
        return torch.from_numpy(self._noise[owners, steps]) if self._noise.size else None

    def record(self, owners: NDArray[np.int64], tokens: NDArray[np.int64], drawn: Draw) -> None:
        self._owners.append(owners)
        self._tokens.append(tokens)
        self._logprobs.append(drawn.logprobs)
        self._entropies.append(drawn.entropies)

    def record_values(self, owners: NDArray[np.int64], values: NDArray[np.float32]) -> None:
        for owner, value in zip(owners.tolist(), values.tolist(), strict=True):
            self._values[owner] = None if math.isnan(value) else value

    def samples(self, is_stop: NDArray[np.bool_]) -> list[Sample]:
        """The completions in the order of the prompts.

        Raises:
            Divergence: naming the prompts for which the model computed something that is not a number.
        """
        owners = np.concatenate(self._owners)
        order = np.argsort(owners, kind="stable")
        cuts = np.cumsum(np.bincount(owners, minlength=len(self._values)))[:-1]
        recorded = torch.cat(self._logprobs).cpu().numpy()
        wrong = np.isnan(recorded)
        if wrong.any():
            raise Divergence("the model's logits are not numbers", rows=np.unique(owners[wrong]).tolist())
        ids = np.split(np.concatenate(self._tokens)[order], cuts)
        logprobs = np.split(recorded[order], cuts)
        entropies = np.split(torch.cat(self._entropies).cpu().numpy()[order], cuts)
        return [
            Sample(tokens, logprob, entropy, not is_stop[tokens[-1]], value)
            for tokens, logprob, entropy, value in zip(ids, logprobs, entropies, self._values, strict=True)
        ]
