"""Sampling by transformers' continuous batching: paged keys and values, and CUDA graphs where attention allows them.

    manager: admits requests as others end, in a thread of its own; draws with its own random numbers

Beside the arena it is another `Generator`. What it draws is scored by the model that learns, as what a server draws:
transformers gives log-probabilities after temperature and filters, no entropies and no values. Random numbers are those
of one generator for all requests: a sample follows the model's distribution, but another batch draws other samples, and
a resumed run draws others than an unbroken one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from peft import PeftModel
from torch import nn
from transformers import ContinuousBatchingConfig, GenerationConfig, PreTrainedModel

from ..decoding.adapters import active_adapter, check_adapter
from ..decoding.base import base_of
from ..decoding.samples import Prompt, Sample
from ..decoding.sampling import Sampling
from ..scoring.completions import scored_samples
from ..scoring.scorer import Scorer

PAGE = 64
"""Tokens of a page of keys and values; a row wastes half a page in the mean."""
MAX_ROWS = 256
"""Requests decoded at the same time; the others wait."""
MAX_TOKENS = {"cpu": 512, "cuda": 8_192}
"""Tokens per pass, those of prompts included; without flash attention a pass has a mask of all of them."""
_PAGE_FIELD = next(
    name  # transformers calls it block_size up to 5.17
    for name in ("page_size", "block_size")
    if name in {field.name for field in dataclasses.fields(ContinuousBatchingConfig)}
)


class ContinuousBatching:
    """A `Generator` that lets transformers decode.

    Args:
        model: what samples and learns; computes in the type of its weights.
        scorer: the same model's.
        stop_ids: tokens that end a completion.
        value_head: maps hidden states [N, d] at the ends of prompts to [N, 1].
        seed: of the random numbers.
    """

    def __init__(
        self,
        model: PreTrainedModel | PeftModel,
        scorer: Scorer,
        stop_ids: Collection[int],
        *,
        value_head: nn.Module | None = None,
        seed: int = 0,
    ):
        self._model = model
        self._base: Any = base_of(model)
        self._scorer = scorer
        self._stop_ids = sorted(stop_ids)
        self._value_head = value_head
        self._seed = seed
        self._kept: tuple[Sampling, int] | None = None  # what the manager that is kept was made for

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Sample]:
        """One sample for each prompt, in their order; greedy ones do not depend on the others but by rounding.

        Raises:
            ValueError: for an unknown adapter, or under an autocast that asks for another type than the weights'.
            RuntimeError: if transformers fails to complete a request.
        """
        if not prompts:
            return []
        self._check_type()
        completions: list[NDArray[np.int64] | None] = [None] * len(prompts)
        for adapter in dict.fromkeys(prompt.adapter for prompt in prompts):
            check_adapter(self._model, adapter)
            own = [number for number, prompt in enumerate(prompts) if prompt.adapter == adapter]
            with active_adapter(self._model, adapter):
                found = self._complete([prompts[number] for number in own], sampling)
            for number, ids in zip(own, found, strict=True):
                completions[number] = ids
        ids_of = [ids for ids in completions if ids is not None]
        return scored_samples(
            self._model, self._scorer, prompts, ids_of, sampling, self._stop_ids, value_head=self._value_head
        )

    def forget(self) -> None:
        """Give the pages back: they hold keys and values of old weights, and learning needs the memory."""
        self._base.destroy_cached_continuous_batching_manager()
        self._kept = None

    def rest(self) -> None:
        """As `forget`: the pages hold nothing that lasts longer than the weights."""
        self.forget()

    def fix_shapes(self) -> None:
        """Refused: requests share passes as they come.

        Raises:
            ValueError: always.
        """
        raise ValueError("deterministic=True needs sampler='arena': continuous batching rounds by what it batches")

    def _check_type(self) -> None:
        kind = self._base.device.type
        asked = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else self._base.dtype
        if asked != self._base.dtype:
            raise ValueError(
                f"sampler='continuous' computes in the type of the weights, {self._base.dtype}, as autocast to {asked} "
                "does not reach transformers' thread; use sampler='arena', compute_dtype='float32', or "
                "weights='adapters', whose base is loaded in compute_dtype"
            )

    def _complete(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[NDArray[np.int64]]:
        """Sampled tokens of each prompt, for the adapter that acts."""
        num_rows = min(len(prompts), MAX_ROWS)
        pages = num_rows * max(-(-(len(prompt.ids) + prompt.max_new_tokens) // PAGE) for prompt in prompts)
        if self._kept is None or self._kept[0] != sampling or self._kept[1] < pages:
            self.forget()
            self._kept = sampling, pages
        manager_of_call = self._base.continuous_batching_context_manager(
            generation_config=self._generation_config(sampling),
            continuous_batching_config=self._batching_config(self._kept[1]),
            persistent_manager=True,
            warmup=self._base.device.type == "cuda",
        )
        with manager_of_call as manager:
            names = [
                manager.add_request([int(token) for token in prompt.ids], max_new_tokens=prompt.max_new_tokens)
                for prompt in prompts
            ]
            found: dict[str, NDArray[np.int64]] = {}
            while len(found) < len(names):
                result = manager.get_result(timeout=1)
                if result is None and not manager.is_running():
                    raise RuntimeError(f"transformers' continuous batching stopped at {len(found)} of {len(names)}")
                if result is None or not result.is_finished():
                    continue
                if result.error is not None:
                    raise RuntimeError(f"transformers' continuous batching failed: {result.error}")
                found[result.request_id] = np.asarray(result.generated_tokens, np.int64)
        return [found[name] for name in names]

    def _generation_config(self, sampling: Sampling) -> GenerationConfig:
        drawn = {"temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p}
        return GenerationConfig(
            do_sample=not sampling.greedy,
            eos_token_id=self._stop_ids,
            pad_token_id=self._stop_ids[0] if self._stop_ids else 0,
            **({} if sampling.greedy else drawn),
        )

    def _batching_config(self, pages: int) -> ContinuousBatchingConfig:
        page: dict[str, Any] = {_PAGE_FIELD: PAGE}
        return ContinuousBatchingConfig(
            num_blocks=pages + 1,
            max_batch_tokens=MAX_TOKENS.get(self._base.device.type, MAX_TOKENS["cuda"]),
            allow_block_sharing=False,  # pages of one adapter are not another's
            seed=self._seed,
            **page,
        )
