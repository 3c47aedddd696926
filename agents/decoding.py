"""Batched decoding: many prompts in, one sample each out, whatever else is in the batch.

    decoder = Decoder(model, stop_ids=[tokenizer.eos_token_id])
    samples = decoder.generate([Prompt(ids, stream=(seed, episode, agent, turn), max_new_tokens=64)], Sampling())

Rows leave the batch when they end and new ones take their place; rows parked between turns are extended by what was
appended. A sample depends on its prompt, its stream and the weights alone.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel

from .adapters import active_adapter, core_of
from .engine import Engine, hidden_states_of
from .plain_decoding import decode_plainly
from .samples import Prompt, Sample, Tape
from .sampling import Sampling, draw
from .slots import Claim, SlotTable
from .soundness import check_arena, window_of

__all__ = ["Decoder", "Prompt", "Sample"]

PREFILL_TOKENS = {"cpu": 1536, "cuda": 8192}  # a pass that fills the second-level cache, or the GPU


class Decoder:
    """Samples completions from one causal language model, with or without adapters on it."""

    def __init__(
        self,
        model: PreTrainedModel | PeftModel,
        stop_ids: Collection[int],
        *,
        max_slots: int = 128,
        max_parked: int | None = None,
        prefill_tokens: int | None = None,
        value_head: nn.Module | Mapping[str | None, nn.Module] | None = None,
    ) -> None:
        """Check on the model itself whether the fast path is exact for it, and warn once if it is not.

        Args:
            model: any causal language model of transformers, bare or wrapped by peft.
            stop_ids: tokens that end a completion; the token itself belongs to it.
            max_slots: sequences decoded at the same time.
            max_parked: sequences kept between calls beyond that, the oldest leaving first; None is `max_slots`.
            prefill_tokens: most tokens in one pass over prompts; None chooses by device.
            value_head: maps the hidden state [N, d] at the last prompt token to [N] or [N, 1]; or one for each adapter.

        Raises:
            ValueError: if a limit is below 1, or a stop token outside the vocabulary.
        """
        if max_slots < 1:
            raise ValueError(f"max_slots {max_slots} leaves no room for a sequence: use at least 1")
        self._model = model
        self._core = core_of(model)
        self._heads = value_head
        self._max_slots = max_slots
        self._is_stop = self._stop_table(stop_ids)
        self._prefill_tokens = prefill_tokens or PREFILL_TOKENS.get(self._core.device.type, PREFILL_TOKENS["cuda"])
        self._engine = Engine(self._core, self._prefill_tokens)
        self._table = SlotTable(max_slots + (max_slots if max_parked is None else max_parked))
        self._reason = self._why_not_served()
        self._window = None if self._reason else window_of(self._core)
        self._has_warned = False

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Sample]:
        """One sample for each prompt, in their order.

        Raises:
            ValueError: for an empty prompt, a limit below 1, two prompts with one handle, an unknown adapter, or more
                tokens than the model has positions.
        """
        if not prompts:
            return []
        self._check(prompts)
        tape = Tape(prompts, sampling)
        with torch.inference_mode(), self._evaluation():
            for adapter in dict.fromkeys(prompt.adapter for prompt in prompts):
                owners = [number for number, prompt in enumerate(prompts) if prompt.adapter == adapter]
                with active_adapter(self._model, adapter):
                    self._complete([prompts[owner] for owner in owners], owners, sampling, tape, self._head(adapter))
        samples = tape.samples(self._is_stop)
        for prompt, sample in zip(prompts, samples, strict=True):
            if prompt.parked is not None:
                ids = np.concatenate([np.asarray(prompt.ids, np.int64), sample.ids[:-1]])
                self._table.remember((prompt.adapter, prompt.parked), ids)
        return samples

    def forget(self) -> None:
        """Drop what is parked; necessary after every change of weights."""
        self._table.clear()

    def _complete(
        self,
        prompts: Sequence[Prompt],
        owners: Sequence[int],
        sampling: Sampling,
        tape: Tape,
        head: nn.Module | None,
    ) -> None:
        longest = max(len(prompt.ids) + prompt.max_new_tokens for prompt in prompts)
        reason = self._reason
        if reason is None and self._window is not None and longest > self._window:
            reason = f"{longest} tokens exceed its attention window of {self._window}"
        if reason is not None:
            self._warn(reason)
            decode_plainly(self._core, prompts, owners, sampling, self._is_stop, tape, self._prefill_tokens, head)
            return
        claims = [
            Claim(
                owner,
                np.asarray(prompt.ids, np.int64),
                prompt.max_new_tokens,
                None if prompt.parked is None else (prompt.adapter, prompt.parked),
            )
            for owner, prompt in zip(owners, prompts, strict=True)
        ]
        try:
            self._decode(claims, longest, sampling, tape, head)
        except BaseException:
            self._table.clear()
            raise

    def _decode(
        self, claims: Sequence[Claim], longest: int, sampling: Sampling, tape: Tape, head: nn.Module | None
    ) -> None:
        table, engine = self._table, self._engine
        # Rows of similar length side by side waste the least padding and the fewest masked columns.
        queue = deque(sorted(claims, key=lambda claim: len(claim.ids), reverse=True))
        least_free = max(1, self._max_slots // 8)
        with hidden_states_of(self._core) as hidden:
            while queue or table.num_active:
                if queue and (self._max_slots - table.num_active >= min(least_free, len(queue))):
                    self._admit(queue, longest)
                count = table.num_active
                owners, columns = table.owner[:count].copy(), table.column[:count].copy()
                steps = columns - table.start[:count]
                logits = engine.step(table.token[:count].copy(), columns)
                if head is not None and (steps == 0).any():
                    rows = np.flatnonzero(steps == 0)
                    tape.record_values(owners[rows], head(hidden[0][torch.from_numpy(rows).to(logits.device), -1]))
                noise = tape.noise(owners, steps)
                drawn = draw(logits, sampling, None if noise is None else noise.to(logits.device))
                tokens = drawn.tokens.cpu().numpy()
                tape.record(owners, tokens, drawn)
                table.token[:count] = tokens
                table.column[:count] += 1
                done = np.flatnonzero(self._is_stop[tokens] | (table.column[:count] == table.end[:count]))
                if len(done):
                    table.retire(done.tolist())
                    engine.move(table.take_moves())

    def _admit(self, queue: deque[Claim], longest: int) -> None:
        table, engine = self._table, self._engine
        claims = [queue.popleft() for _ in range(min(len(queue), self._max_slots - table.num_active))]
        wanted: set[Hashable] = {claim.key for claim in queue}
        seats = table.admit(claims, wanted)
        engine.arena.reserve(table.num_used, longest)
        engine.move(table.take_moves())
        engine.prefill(seats)

    def _check(self, prompts: Sequence[Prompt]) -> None:
        config = self._core.config.get_text_config(decoder=True)
        limit = getattr(config, "max_position_embeddings", None)
        handles: set[Hashable] = set()
        for number, prompt in enumerate(prompts):
            if len(prompt.ids) == 0:
                raise ValueError(f"prompt {number} has no tokens: a completion needs at least one to follow")
            if prompt.max_new_tokens < 1:
                raise ValueError(f"prompt {number} has max_new_tokens {prompt.max_new_tokens}: use at least 1")
            total = len(prompt.ids) + prompt.max_new_tokens
            if limit is not None and total > limit:
                raise ValueError(
                    f"prompt {number} has {len(prompt.ids)} tokens, which with max_new_tokens {prompt.max_new_tokens} "
                    f"makes {total}, above the model's max_position_embeddings {limit}: "
                    "shorten the prompt or lower max_new_tokens"
                )
            if prompt.parked is not None:
                handle = (prompt.adapter, prompt.parked)
                if handle in handles:
                    raise ValueError(f"two prompts of one call share the handle {prompt.parked!r}: use one for each")
                handles.add(handle)

    def _stop_table(self, stop_ids: Collection[int]) -> NDArray[np.bool_]:
        size = self._core.config.get_text_config(decoder=True).vocab_size
        table = np.zeros(size, np.bool_)
        for token in stop_ids:
            if not 0 <= token < size:
                raise ValueError(f"stop token {token} is outside the vocabulary of {size} tokens")
            table[token] = True
        return table

    def _why_not_served(self) -> str | None:
        try:
            with torch.inference_mode(), self._evaluation():
                check_arena(self._core)
        except ValueError as error:
            return str(error)
        return None

    def _warn(self, reason: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            name = type(self._core).__name__
            warnings.warn(f"{name} is decoded by the slower plain loop: {reason}", stacklevel=4)

    def _head(self, adapter: str | None) -> nn.Module | None:
        return self._heads.get(adapter) if isinstance(self._heads, Mapping) else self._heads

    @contextmanager
    def _evaluation(self) -> Iterator[None]:
        """Dropout off inside the block; every module's mode is restored."""
        roots: list[nn.Module] = [self._model]
        if isinstance(self._heads, Mapping):
            roots += self._heads.values()
        elif self._heads is not None:
            roots.append(self._heads)
        with ExitStack() as stack:
            for module in (module for root in roots for module in root.modules() if module.training):
                module.training = False
                stack.callback(setattr, module, "training", True)
            yield
