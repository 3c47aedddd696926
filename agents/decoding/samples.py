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
from .sampling import Draw, Sampling, uniforms


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

    def rest(self) -> None:
        """Nothing is asked for until the weights have changed: give memory back that only sampling needs."""

    def fix_shapes(self) -> None:
        """From here on, no sample depends on the others by a single bit.

        Raises:
            ValueError: if that cannot be had.
        """


class DrawRecorder:
    """Records one row of draws per step and cuts the record into samples, one for each request."""

    def __init__(self, prompts: Sequence[Prompt], sampling: Sampling) -> None:
        longest = max(prompt.max_new_tokens for prompt in prompts)
        self.noise = np.zeros((len(prompts), longest)) if not sampling.greedy else None
        """Random numbers [prompts, steps] of every request; None when greedy."""
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
        """Keep the draws of a step, by request; a draw whose owner is -1 is nobody's."""
        self._owners.append(owners)
        self._tokens.append(tokens)
        self._logprobs.append(drawn.logprobs)
        self._entropies.append(drawn.entropies)

    def record_values(self, owners: NDArray[np.int64], values: Tensor) -> None:
        """Keep what the value head says [N] before the completions of these requests; NaN where there is no head."""
        self._valued.append(owners)
        self._values.append(values)

    def samples(self, is_stop: NDArray[np.bool_]) -> list[Sample]:
        """The completions in the order of the prompts.

        Raises:
            Divergence: naming the prompts for which the model computed something that is not a number.
        """
        owners = np.concatenate(self._owners)
        read = torch.cat([*self._logprobs, *self._entropies, *self._values]).cpu().numpy()  # the host waits once
        recorded, entropies, values = np.split(read, [len(owners), 2 * len(owners)])
        wrong = np.isnan(recorded) & (owners >= 0)
        if wrong.any():
            raise Divergence("the model's logits are not numbers", rows=np.unique(owners[wrong]).tolist())
        order = np.argsort(owners, kind="stable")
        order = order[np.count_nonzero(owners < 0) :]
        cuts = np.cumsum(np.bincount(owners[order], minlength=self._num_prompts))[:-1]
        parts = (np.split(each[order], cuts) for each in (np.concatenate(self._tokens), recorded, entropies))
        return [
            Sample(tokens, logprob, entropy, not is_stop[tokens[-1]], value)
            for tokens, logprob, entropy, value in zip(*parts, self._value_of_each(values), strict=True)
        ]

    def _value_of_each(self, recorded: NDArray[np.float32]) -> list[float | None]:
        values: list[float | None] = [None] * self._num_prompts
        if self._valued:
            for owner, value in zip(np.concatenate(self._valued).tolist(), recorded.tolist(), strict=True):
                values[owner] = None if math.isnan(value) else value
        return values
