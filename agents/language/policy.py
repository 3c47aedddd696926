"""Policies of causal language models, optionally with a value head."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from peft import PeftModel
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from transformers import GenerationConfig

from ..._errors import UserError
from ..batching import sent
from ..core import (
    SMALL_LEARNING_RATE,
    Completion,
    Divergence,
    Evaluation,
    Policy,
    Processes,
    Request,
    TrainablePolicy,
    Workplace,
    largest,
)
from ..decoding.adapters import REFERENCE, adapter_weights, save_adapter
from ..decoding.base import keep_in
from ..decoding.samples import Prompt
from ..decoding.sampling import Sampling
from ..encoding import TokenRecord
from ..scoring.packing import num_tokens, rows_of
from ..scoring.sharding import give
from ..vllm.server import VLLMServer
from .heads import value_head
from .model import LanguageModel

SETTINGS_FILE = "collm_policy.json"
VALUE_HEAD_FILE = "value_head.safetensors"
MAX_SMALL_WEIGHTS, MAX_MEDIUM_WEIGHTS = 10_000_000, 300_000_000  # of the default learning rates
MAX_SCORED_TOKENS = 16_384  # tokens per forward pass of `reply_logprobs`
ADAPTER_CONFIG_FILE = "adapter_config.json"


class LanguagePolicy(TrainablePolicy):
    """Policy of a causal language model.

    Args:
        language_model: model, which several policies may share.
        sampling: temperature and filters. Log-probabilities are computed after the temperature, and with
            `learns_filtered` also after the filters.
        max_new_tokens: maximum number of tokens per completion.
        adapter: name of the policy's adapter in a peft model. None: all weights are trained.
        has_value_head: add a head that estimates returns from the last hidden state of the prompt.
        value_head_hidden_dim: width of a tanh layer in the value head. None: linear head.
    """

    def __init__(
        self,
        language_model: LanguageModel,
        *,
        sampling: Sampling = Sampling(),  # noqa: B008  # frozen
        max_new_tokens: int = 256,
        adapter: str | None = None,
        has_value_head: bool = False,
        value_head_hidden_dim: int | None = None,
    ):
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {max_new_tokens}")
        self.language_model = language_model
        self.sampling = sampling
        self.max_new_tokens = max_new_tokens
        self.adapter = adapter
        head = value_head(language_model.hidden_size, value_head_hidden_dim) if has_value_head else None
        self.value_head = None if head is None else head.to(language_model.device)
        # Policies without a value head share the generator and its KV cache.
        self._generator = language_model.generator
        if self.value_head is not None:
            self._generator = language_model.generator_with(self.value_head)

    @property
    def default_learning_rate(self) -> float:
        """Learning rate: 5e-4 below 10 million weights. For larger models: 1e-4 for adapters, and for all weights 1e-5
        below 300 million weights, else 1e-6.

        AdamW changes each weight by about the rate, so the change of an output grows with the width of the model
        (arXiv:2203.03466). 1e-6 is the default of TRL and verl for models of billions of weights.
        """
        num_weights = self.language_model.num_weights
        if num_weights < MAX_SMALL_WEIGHTS:
            return SMALL_LEARNING_RATE
        if self.adapter is not None:
            return 1e-4
        return 1e-5 if num_weights < MAX_MEDIUM_WEIGHTS else 1e-6

    @property
    def compute_dtype(self) -> torch.dtype | None:
        return self.language_model.compute_dtype

    @property
    def max_tokens_per_turn(self) -> int:
        return self.max_new_tokens

    @property
    def is_sampled_elsewhere(self) -> bool:
        serving = self.language_model.serving
        return serving is not None and serving.keeps_logprobs

    @property
    def is_scored_later(self) -> bool:
        return isinstance(self._generator, VLLMServer) and self.language_model.shards is not None

    def scored(
        self,
        tracks: Sequence[Sequence[Completion]],
        logprobs: Sequence[NDArray[np.float32]],
        entropies: Sequence[NDArray[np.float32]],
    ) -> list[tuple[Completion, ...]]:
        theirs = [np.concatenate([turn.logprobs for turn in track]) for track in tracks]
        if isinstance(self._generator, VLLMServer):
            self._generator.compare(theirs, logprobs, self.sampling)
        return super().scored(tracks, theirs if self.is_sampled_elsewhere else logprobs, entropies)

    def make_ready(self, processes: Processes) -> None:
        if isinstance(self._generator, VLLMServer):
            self._generator.make_ready(processes, self.adapter, self.language_model.shards)

    def workplace(self) -> Workplace:
        return Workplace(id(self.language_model), self.language_model.device)

    def batch_key(self) -> object:
        """Batch key, which is equal for adapters of one base model with the same `sampling` and no value heads."""
        if self.adapter is None or self.value_head is not None:
            return id(self)
        return (id(self.language_model), self.sampling)

    def act(self, requests: Sequence[Request], *, greedy: bool = False) -> list[Completion]:
        return self.act_together([(self, request) for request in requests], greedy=greedy)

    def act_together(self, requests: Sequence[tuple[Policy, Request]], *, greedy: bool = False) -> list[Completion]:
        encoder = self.language_model.encoder
        prompts, extensions = [], []
        for policy, request in requests:
            assert isinstance(policy, LanguagePolicy)
            ids, is_extension = encoder.prompt(request.observation, request.previous)
            policy._check_context(request, len(ids))
            episode = request.stream[:-1]
            prompts.append(Prompt(ids, request.stream, policy.max_new_tokens, parked=episode, adapter=policy.adapter))
            extensions.append(is_extension)
        sampling = replace(self.sampling, greedy=True) if greedy else self.sampling
        try:
            with torch.no_grad(), self.language_model.autocast():
                samples = self._generator.generate(prompts, sampling)
        except Divergence as divergence:
            _explain(divergence, [(requests[row][0], requests[row][1].agent) for row in divergence.rows])
            raise
        return [
            Completion(
                action=encoder.text(sample.ids, prompt.ids),
                logprobs=sample.logprobs,
                entropies=sample.entropies,
                is_cut=sample.is_cut,
                tokens=TokenRecord(np.asarray(prompt.ids), sample.ids, is_extension, request.observation),
                value=sample.value,
            )
            for prompt, sample, is_extension, (_, request) in zip(prompts, samples, extensions, requests, strict=True)
        ]

    def _check_context(self, request: Request, num_tokens: int) -> None:
        limit = self.language_model.context
        if limit is not None and num_tokens + self.max_new_tokens > limit:
            seed, _, _, turn = request.stream[:4]
            raise UserError(
                f"{request.agent}, turn {turn + 1} of the episode with seed {seed}: the history has {num_tokens} "
                f"tokens and max_new_tokens={self.max_new_tokens}, but the model's context has {limit} tokens; lower "
                "max_new_tokens, or the environment's max_turns or max_observation_length, or wrap the environment in "
                "collm.envs.wrappers.LastTurns"
            )

    def forget(self) -> None:
        if self.language_model.shards is not None:
            self.language_model.shards.refresh()
        self._generator.forget()

    def rest(self) -> None:
        self._generator.rest()

    def fix_shapes(self) -> None:
        with self.language_model.autocast():
            self._generator.fix_shapes()

    def parameters(self) -> list[nn.Parameter]:
        return [*self._weights().values(), *(self.value_head.parameters() if self.value_head is not None else ())]

    def _weights(self) -> dict[str, nn.Parameter]:
        return self._own(self.language_model.learned)

    def _own(self, model: nn.Module) -> dict[str, nn.Parameter]:
        """Return the weights of a model that belong to this policy: all weights, or the adapter's weights."""
        return dict(model.named_parameters()) if self.adapter is None else adapter_weights(model, self.adapter)

    def evaluate(self, tracks: Sequence[Sequence[Completion]]) -> Evaluation:
        rows = [row for track in tracks for row in rows_of(track)]
        model = self.language_model
        with model.passing(self.adapter):
            filters = self.sampling if self.sampling.learns_filtered else None
            logprobs, entropies, prompt_ends = model.scorer.scores(rows, self.sampling.temperature, filters)
            values = None if self.value_head is None else self.value_head(prompt_ends)[:, 0]
        lengths = [len(turn.completion_ids) for row in rows for turn in row.turns]
        turn_of_token = sent(np.repeat(np.arange(len(lengths)), lengths), logprobs.device)
        return Evaluation(logprobs, entropies, turn_of_token, values)

    @torch.no_grad()
    def reply_logprobs(self, requests: Sequence[tuple[Completion, str]]) -> NDArray[np.float64]:
        """Return the log-probabilities [N] of N given replies, in nats.

        The token that ends a reply is included, except after `max_new_tokens` tokens. Longer replies are impossible.
        Only the usual tokenization of a reply counts.

        Args:
            requests: N pairs of a completion, and another reply to the prompt of this completion.
        """
        tracks = [[self.answered(completion, reply)] for completion, reply in requests]
        logprobs = np.full(len(tracks), -np.inf)
        possible = [i for i, (turn,) in enumerate(tracks) if len(turn.logprobs) <= self.max_new_tokens]
        for batch in self.batches(tracks, possible, MAX_SCORED_TOKENS):
            scores = self.evaluate([tracks[i] for i in batch])
            sums = torch.zeros(len(batch), dtype=torch.float64, device=scores.logprobs.device)
            logprobs[batch] = sums.index_add_(0, scores.turn_of_token, scores.logprobs.double()).cpu().numpy()
        return logprobs

    def answered(self, completion: Completion, reply: str) -> Completion:
        """Return a completion with the usual tokens of another reply to the same prompt, without log-probabilities.

        The tokens that end the reply are included within `max_new_tokens` tokens.
        """
        record: TokenRecord = completion.tokens
        words, ending = self.language_model.encoder.reply_ids(reply, record.prompt_ids)
        ids = np.asarray([*words, *ending][: max(self.max_new_tokens, len(words))], dtype=np.int64)
        return Completion(reply, np.zeros(len(ids), np.float32), tokens=replace(record, completion_ids=ids))

    def prompt_values(self, tracks: Sequence[Sequence[Completion]]) -> Tensor:
        """Return [N] values, which the value head estimates from the last prompt token of each turn."""
        assert self.value_head is not None
        model = self.language_model
        with model.passing(self.adapter):
            hidden = model.scorer.prompt_states([row for track in tracks for row in rows_of(track)])
            values: Tensor = self.value_head(hidden)[:, 0]
        return values

    def unanswered(self, observation: str, previous: Completion | None) -> Completion:
        """Return an empty completion after a history, to evaluate the history or replies to it."""
        ids, is_extension = self.language_model.encoder.prompt(observation, previous)
        return Completion("", tokens=TokenRecord(ids, np.zeros(0, dtype=np.int64), is_extension, observation))

    def num_tokens(self, track: Sequence[Completion]) -> int:
        return num_tokens(track)

    def batches(self, tracks: Sequence[Sequence[Completion]], items: Sequence[int], max_tokens: int) -> list[list[int]]:
        return self.language_model.scorer.batches(tracks, items, max_tokens)

    def reference(self, device: torch.device | None = None) -> LanguagePolicy:
        twin = copy.copy(self)
        twin.value_head = None
        twin.sampling = replace(self.sampling, learns_filtered=False)  # unfiltered: no probability is 0
        if self.adapter is not None:
            twin.adapter = REFERENCE if REFERENCE in self.language_model.model.peft_config else None
            return twin
        # With sharded weights and vLLM servers, no rank has all weights, so every rank gathers them.
        shards = self.language_model.shards
        with nullcontext() if shards is None or shards.keeps_copy else self.language_model.whole(on_all=True):
            model = copy.deepcopy(self.language_model.model).requires_grad_(False)
        keep_in(model, self.language_model.compute_dtype)  # saves memory, and does not change log-probabilities
        twin.language_model = self.language_model.of(model.to(device or self.language_model.device))
        return twin

    def shard(self, mesh: DeviceMesh) -> None:
        self.language_model.shard(mesh)

    @contextmanager
    def whole(self) -> Iterator[None]:
        with self.language_model.whole():
            yield

    def state_dict(self) -> dict[str, Tensor]:
        state = {f"model.{name}": weight.detach() for name, weight in self._weights().items()}
        if self.value_head is not None:
            state |= {f"value_head.{name}": weight for name, weight in self.value_head.state_dict().items()}
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        if self.adapter is not None:  # older checkpoints have the agent's name in the names of weights
            state = {re.sub(r"(\.lora_(?:A|B))\..+(\.weight)$", r"\1\2", name): value for name, value in state.items()}
        give(self._weights(), state, "model.")
        if self.value_head is not None:
            prefix = "value_head."
            self.value_head.load_state_dict(
                {name.removeprefix(prefix): weight for name, weight in state.items() if name.startswith(prefix)}
            )
        self.forget()

    def save(self, directory: Path) -> None:
        """Write model, tokenizer and settings into a folder, for `AutoModelForCausalLM.from_pretrained`."""
        directory.mkdir(parents=True, exist_ok=True)
        model = self.language_model.model
        if self.adapter is not None:
            assert isinstance(model, PeftModel)
            save_adapter(model, self.adapter, directory)
        else:
            model.save_pretrained(str(directory))
        # The checkpoint's penalties are left out. top_k=0 is needed, because transformers would otherwise use 50.
        checkpoint, ends = self.language_model.base.generation_config, sorted(self.language_model.encoder.stop_ids)
        ids = {"bos_token_id": checkpoint.bos_token_id, "pad_token_id": checkpoint.pad_token_id, "eos_token_id": ends}
        sampling = {name: getattr(self.sampling, name) for name in ("temperature", "top_k", "top_p")}
        generation = GenerationConfig(do_sample=True, max_new_tokens=self.max_new_tokens, **sampling, **ids)
        generation.save_pretrained(directory)
        self.language_model.encoder.tokenizer.save_pretrained(directory)
        if self.value_head is not None:
            save_file(self.value_head.state_dict(), directory / VALUE_HEAD_FILE)
        settings = {
            "is_chat": self.language_model.encoder.is_chat,
            "template_kwargs": self.language_model.encoder.template_kwargs,
            "history_tokens": self.language_model.encoder.history_tokens,
            "max_new_tokens": self.max_new_tokens,
            "sampling": asdict(self.sampling),
            "compute_dtype": str(self.language_model.compute_dtype or torch.float32).removeprefix("torch."),
            "has_value_head": self.value_head is not None,
        }
        (directory / SETTINGS_FILE).write_text(json.dumps(settings, indent=2) + "\n")

    def load_value_head(self, directory: Path) -> None:
        file = directory / VALUE_HEAD_FILE
        if self.value_head is not None and file.is_file():
            self.value_head.load_state_dict(load_file(file))


def _explain(divergence: Divergence, diverged: Sequence[tuple[Policy, str]]) -> None:
    divergence.agents = tuple(dict.fromkeys(agent for _, agent in diverged))
    policies = {id(policy): policy for policy, _ in diverged if isinstance(policy, LanguagePolicy)}
    weights = [each._own(each.language_model.model).values() for each in policies.values()]  # not sharded
    divergence.largest_weight = largest(chain.from_iterable(weights))
