"""Policies for vector observations. Each action is treated as one token with the action's log-probability."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from ..._json import explained_content
from ...envs.spaces import flat_mask
from ..batching import sent
from ..core import Completion, Divergence, Evaluation, Request, TrainablePolicy
from ..decoding.sampling import uniforms
from .action_heads import HEADS, ActionHead, CategoricalHead, head_for
from .config import Activation, Images
from .features import Features
from .networks import Normalizer, NumericNetwork, linear, trunk_for

FIXED_ROWS = 64  # batch size of `act` after `fix_shapes`
SETTINGS_FILE = "collm_numeric_policy.json"


@dataclass(frozen=True, slots=True)
class NumericRecord:
    """Observation, raw action and mask of a completion, for `evaluate`."""

    features: NDArray[np.float32] | NDArray[np.uint8]  # [F] before normalization; uint8 images, to save memory
    raw: NDArray[Any]  # [R] sampled action before clipping or squashing
    legal: NDArray[np.bool_] | None = None  # [O] True for legal options; None: no mask


class NumericPolicy(NumericNetwork, TrainablePolicy):
    """Policy: a network from an observation to the parameters of an action distribution.

    Args:
        observation: features of the observations.
        head: action distribution.
        has_value_head: estimate V(observation) from the last hidden layer.
        seed: seed of the initial weights. Other arguments: see `NetworkConfig`.
    """

    reads_turns_alone = True
    settings_file = SETTINGS_FILE
    weights_file = "numeric_policy.safetensors"

    def __init__(
        self,
        observation: Features,
        head: ActionHead,
        *,
        hidden_dims: Sequence[int] = (64, 64),
        activation: Activation = "tanh",
        images: Images = "flat",
        has_value_head: bool = False,
        normalizes_observations: bool = False,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ):
        generator = torch.Generator().manual_seed(seed)
        self.observation = observation
        self.head = head
        self._num_fixed = 0  # batch size of `act`; 0: the number of requests
        self.trunk = trunk_for(observation, 0, hidden_dims, activation, images, generator)
        # Gain 0.01: the initial policy is nearly uniform.
        self.output = linear(self.trunk.width, head.num_outputs, 0.01, generator)
        self.value_head = linear(self.trunk.width, 1, 1.0, generator) if has_value_head else None
        self.normalizer = Normalizer(observation.size) if normalizes_observations else None
        settings = {
            "observation": asdict(observation),
            "head": {"kind": head.kind, **head.settings},
            "hidden_dims": list(hidden_dims),
            "activation": activation,
            "images": images,
            "has_value_head": has_value_head,
            "normalizes_observations": normalizes_observations,
        }
        parts = {
            "trunk": self.trunk,
            "output": self.output,
            "head": head,
            "value_head": self.value_head,
            "normalizer": self.normalizer,
        }
        super().__init__(parts, settings, device)

    @classmethod
    def for_spaces(
        cls,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        *,
        is_squashed: bool = False,
        has_state_std: bool = False,
        **settings: Any,
    ) -> NumericPolicy:
        """Build a policy for an environment's spaces.

        Args:
            observation_space: Box, Discrete, MultiDiscrete or MultiBinary, or one of these with an action mask.
            action_space: Discrete, MultiDiscrete or Box.
            is_squashed: use a `SquashedGaussianHead` for a Box. False: a `GaussianHead`.
            has_state_std: standard deviations depend on the observation; see `GaussianHead`.
            settings: arguments of the constructor.
        """
        head = head_for(action_space, is_squashed=is_squashed, has_state_std=has_state_std)
        observation = Features.of(observation_space)
        if observation.is_masked and not isinstance(head, CategoricalHead):
            raise ValueError(f"action masks need Discrete or MultiDiscrete actions, got {action_space}")
        return cls(observation, head, **settings)

    @classmethod
    def load(cls, directory: Path, device: torch.device | str = "cpu") -> NumericPolicy:
        settings = cls.saved_settings(directory)
        with explained_content(directory):
            head = dict(settings.pop("head"))
            make_head = HEADS[head.pop("kind")]
            policy = cls(Features.from_dict(settings.pop("observation")), make_head(**head), device=device, **settings)
            policy.load_weights(directory)
        return policy

    def act(self, requests: Sequence[Request], *, greedy: bool = False) -> list[Completion]:
        if not requests:
            return []
        observed = [self.observation.compact(request.observation) for request in requests]
        features = _stacked_floats(observed)
        noise = None
        if not greedy:
            numbers = [uniforms(request.stream, self.head.num_uniforms) for request in requests]
            noise = sent(np.stack(numbers), self._device)
        legal = [self._legal(request) for request in requests]
        raw, logprobs, entropies, *values = self._decisions(features, noise, self._stacked(legal))
        wrong = np.flatnonzero(np.isnan(logprobs[:, 0]))
        if len(wrong):
            divergence = Divergence("the network's outputs are not numbers (NaN)", self.parameters())
            divergence.agents = tuple(dict.fromkeys(requests[row].agent for row in wrong.tolist()))
            raise divergence
        return [
            Completion(
                action=self.head.action(drawn),
                logprobs=logprobs[i],
                entropies=entropies[i],
                tokens=NumericRecord(observed[i], drawn, legal[i]),
                value=float(values[0][i]) if values else None,
            )
            for i, drawn in enumerate(raw)
        ]

    def observe(self, completions: Sequence[Completion]) -> None:
        if self.normalizer is not None:
            features = _stacked_floats([completion.tokens.features for completion in completions])
            self.normalizer.observe(sent(features, self._device))

    def fix_shapes(self) -> None:
        self._num_fixed = FIXED_ROWS

    def evaluate(self, tracks: Sequence[Sequence[Completion]]) -> Evaluation:
        records: list[NumericRecord] = [completion.tokens for track in tracks for completion in track]
        features, legal = _stacked_floats([record.features for record in records]), [each.legal for each in records]
        outputs, values = self._outputs(features, self._stacked(legal))
        raw = sent(np.stack([record.raw for record in records]), self._device)
        return Evaluation(
            logprobs=self.head.logprobs(outputs, raw),
            entropies=self.head.entropies(outputs),
            turn_of_token=torch.arange(len(records), device=self._device),
            values=values,
        )

    def values(self, observations: Sequence[Any]) -> Tensor:
        """Return [N] values that the value head estimates for observations."""
        _, values = self._outputs(np.stack([self.observation.vector(each) for each in observations]))
        assert values is not None, "make the policy with has_value_head=True"
        return values

    def num_tokens(self, track: Sequence[Completion]) -> int:
        return len(track)

    def forget(self) -> None:
        """Apply the normalization statistics of `observe`. They must not change between `act` and `evaluate`."""
        if self.normalizer is not None:
            self.normalizer.commit()

    def reference(self, device: torch.device | None = None) -> NumericPolicy:
        twin = copy.deepcopy(self)
        twin._network.requires_grad_(False).to(device or self._device)
        twin._device = device or self._device
        return twin

    @torch.no_grad()
    def _decisions(
        self, features: NDArray[np.float32], noise: Tensor | None, legal: NDArray[np.bool_] | None
    ) -> tuple[NDArray[Any], ...]:
        """Return raw actions [N, R], log-probabilities [N, 1], entropies [N, 1], and with a value head values [N]."""
        count, size = len(features), self._num_fixed
        if size and count != size:
            parts = []
            for first in range(0, count, size):
                rows = slice(first, min(first + size, count))
                missing = size - (rows.stop - rows.start)
                own = None if noise is None else functional.pad(noise[rows], (0, 0, 0, missing), value=0.5)
                padding = (0, missing), (0, 0)
                allowed = None if legal is None else np.pad(legal[rows], padding, constant_values=True)
                found = self._decisions(np.pad(features[rows], padding), own, allowed)
                parts.append([each[: size - missing] for each in found])
            return tuple(np.concatenate(each) for each in zip(*parts, strict=True))
        outputs, values = self._outputs(features, legal)
        raw = self.head.drawn(outputs, noise)
        logprobs, entropies = self.head.logprobs(outputs, raw)[:, None], self.head.entropies(outputs)[:, None]
        tensors = [raw, logprobs, entropies] + ([] if values is None else [values])
        return tuple(each.cpu().numpy() for each in tensors)

    def _legal(self, request: Request) -> NDArray[np.bool_] | None:
        """Return the conjunction of the action masks in the observation and the info dict. None: no mask."""
        masks = [self.observation.mask(request.observation)]
        masks += [None if request.action_mask is None else flat_mask(request.action_mask)]
        given = [mask for mask in masks if mask is not None]
        return np.logical_and.reduce(given) if given else None

    def _stacked(self, legal: Sequence[NDArray[np.bool_] | None]) -> NDArray[np.bool_] | None:
        """Stack masks of legal options to [N, O]. None: no row has a mask."""
        if all(row is None for row in legal):
            return None
        free = np.ones(self.head.num_outputs, dtype=np.bool_)
        return np.stack([free if row is None else row for row in legal])

    def _outputs(
        self, features: NDArray[np.float32], legal: NDArray[np.bool_] | None = None
    ) -> tuple[Tensor, Tensor | None]:
        inputs = sent(features, self._device)
        if self.normalizer is not None:
            inputs = self.normalizer(inputs)
        hidden = self.trunk(inputs)
        values = None if self.value_head is None else self.value_head(hidden)[:, 0]
        outputs = self.output(hidden)
        return outputs if legal is None else self.head.masked(outputs, sent(legal, self._device)), values


def _stacked_floats(rows: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
    return np.stack(rows).astype(np.float32, copy=False)
