"""Learning: tokens per second and share of the device's arithmetic of an update, and the head beside bare products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from ....agents.scoring.token_scores import MAX_LOGITS, ON_GPU, TILE_LOGITS, token_scores
from ....algorithms.learning.policy_learner import PolicyLearner, TurnBatch
from ....algorithms.registry import algorithm_spec
from ..limit import operations
from ..timing import Spread
from .machine import GIB, forget_peak, limits, peak_bytes, seconds_of
from .results import Part, Row, Setting
from .shapes import LARGE, MIDDLE, SMALL, TINY, Shape, random_policy, random_prompts, tracks_of

PASSES = {True: 16_384, False: 4_096}
"""Tokens per pass, with and without activation recomputation."""


def part() -> Part:
    return Part("update", "One policy's update: bfloat16 under autocast, fp32 weights and moments", measurements)


def head_part() -> Part:
    return Part("head", "Log-probabilities of scored tokens, forward and backward, beside one matrix product", head)


def measurements(setting: Setting) -> Mapping[str, Callable[[], Row]]:
    return {
        f"{shape.name}, {'with' if recomputes else 'without'} recomputation": partial(
            _update, setting, shape, recomputes
        )
        for shape in ((TINY,) if setting.is_tiny else (SMALL, MIDDLE, LARGE))
        for recomputes in (False, True)
    }


def _update(setting: Setting, shape: Shape, recomputes: bool) -> Row:
    count, length = setting.size(16, 4), setting.size(512, 16)
    forget_peak(setting.device)
    policy = random_policy(shape, setting.device, compute_dtype=torch.bfloat16, recomputes=recomputes)
    spec = algorithm_spec("mareinforce")
    rule = spec.make(spec.config(agent_learning_rate=1e-6, max_batch_tokens=PASSES[recomputes]))
    learner = PolicyLearner(policy, rule, torch.Generator())
    prompts = random_prompts(shape, count, length)
    tracks = tracks_of(prompts, random_prompts(shape, count, length, seed=1))
    logprobs = [each.float().cpu().numpy() for each in learner.logprobs(policy, tracks)]
    tracks = [(replace(track[0], logprobs=each),) for track, each in zip(tracks, logprobs, strict=True)]
    batch = TurnBatch(tracks=tracks, advantages=torch.linspace(-1, 1, count))
    seconds = seconds_of(lambda: learner.update(batch), setting.device, setting.num_rounds)
    needed = 3 * operations(policy.language_model.base, [length] * count, new_tokens=length)
    peak = peak_bytes(setting.device)
    limit = limits(setting.device, side=setting.size(8192, 256)).operations_per_s
    return {
        "tokens per pass": PASSES[recomputes],
        "s per update": seconds,
        "tokens/s": Spread(*(2 * count * length / each for each in (seconds.maximum, seconds.median, seconds.minimum))),
        "TFLOP/s": needed / seconds.median / 1e12,
        "share of the measured limit": needed / seconds.median / limit,
        "peak, GiB": peak / GIB,
    }


def head(setting: Setting) -> Mapping[str, Callable[[], Row]]:
    kind = setting.device.type
    as_set = (MAX_LOGITS.get(kind, ON_GPU), TILE_LOGITS.get(kind, ON_GPU))
    tiles = {"one product": None, "tiles as set": as_set, "tiles of 2^23 logits": (2**23, 2**23)}
    return {what: partial(_head, setting, sizes) for what, sizes in tiles.items()}


def _head(setting: Setting, sizes: tuple[int, int] | None) -> Row:
    """Sizes: most logits at once, and logits per tile; None: the products alone, without a log-probability."""
    shape = TINY if setting.is_tiny else LARGE
    count = setting.size(8192, 64)
    linear = nn.Linear(shape.hidden_size, shape.vocab_size, bias=False, device=setting.device, dtype=torch.bfloat16)
    hidden = torch.randn(count, shape.hidden_size, device=setting.device, dtype=torch.bfloat16, requires_grad=True)
    targets = torch.randint(shape.vocab_size, (count,), device=setting.device)

    def bare() -> None:
        linear(hidden).backward(_ones_like_logits(hidden, shape))

    def scored() -> None:
        assert sizes is not None
        most, tile = sizes
        logprobs, _ = token_scores(hidden, linear, targets, 1.0, max_logits=most, tile_logits=tile)
        torch.autograd.backward(logprobs.sum())

    forget_peak(setting.device)
    seconds = seconds_of(bare if sizes is None else scored, setting.device, setting.num_rounds)
    return {
        "scored tokens": count,
        "vocabulary": shape.vocab_size,
        "ms": seconds.times(1e3),
        "peak, GiB": peak_bytes(setting.device) / GIB,
    }


def _ones_like_logits(hidden: torch.Tensor, shape: Shape) -> Any:
    return torch.ones(1, 1, device=hidden.device, dtype=hidden.dtype).expand(len(hidden), shape.vocab_size)
