"""Decoding beside transformers' `generate` and the roofline: the time to read weights, keys and values per step.

Our own decoder runs twice: kernel by kernel, and with its steps recorded as CUDA graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from transformers import GenerationConfig

from ....agents.decoding.samples import Generator, Prompt
from ....agents.decoding.sampling import Sampling
from ....agents.language.model import LanguageModel
from ..timing import Spread
from .machine import Limits, kernels_of, limits, seconds_of, wall_clock
from .results import Part, Row, Setting
from .shapes import LARGE, MIDDLE, SMALL, TINY, Shape, embedded_tokenizer, random_model, random_prompts

BATCHES: Mapping[Shape, tuple[int, ...]] = {SMALL: (1, 128), MIDDLE: (1, 32, 128, 256), LARGE: (128,)}
CAST = ", fp32 weights under autocast"
GRAPHS = ", CUDA graphs"
Decode: TypeAlias = Callable[[list[Any], int], None]
WAYS = ("own", f"own{GRAPHS}", f"own{CAST}", f"own{CAST}{GRAPHS}", "generate")


def part() -> Part:
    return Part("decode", "Decoding in bfloat16: steps without the prompt", measurements)


def measurements(setting: Setting) -> Mapping[str, Callable[[], Row]]:
    batches = {TINY: (1, 4)} if setting.is_tiny else BATCHES
    found: dict[str, Callable[[], Row]] = {"limits of the device": partial(_limits, setting)}
    for shape, counts in batches.items():
        for count in counts:
            for way in WAYS:
                found[f"{shape.name}, batch {count}, {way}"] = partial(_decode, setting, shape, count, way)
    return found


def _limits(setting: Setting) -> Row:
    found = _limits_of(setting)
    return {"copy, TB/s": found.bytes_per_s / 1e12, "bf16 product, TFLOP/s": found.operations_per_s / 1e12}


def _limits_of(setting: Setting) -> Limits:
    return limits(setting.device, side=setting.size(8192, 256))


def roofline(shape: Shape, count: int, context: int, limit: Limits) -> float:
    """Seconds of a step at least: weights, keys and values are read once, or the products are computed.

    Args:
        count: sequences of the batch.
        context: tokens of each sequence.
    """
    read = 2 * shape.num_weights() + count * context * shape.cache_bytes()
    return max(read / limit.bytes_per_s, 2.0 * shape.num_weights() * count / limit.operations_per_s)


def _decode(setting: Setting, shape: Shape, count: int, way: str) -> Row:
    context, new = setting.size(1024, 16), setting.size(64, 4)
    if GRAPHS in way and setting.device.type != "cuda":
        return {"outcome": "not available: CUDA graphs need a GPU"}
    is_cast = CAST in way
    model = random_model(shape, setting.device, torch.float32 if is_cast else torch.bfloat16)
    prompts = random_prompts(shape, count, context - new // 2)
    decode = _generate(model) if way == "generate" else _own(model, way, is_cast)
    row: dict[str, Any] = {}
    if GRAPHS in way:
        row |= _recording(decode, prompts, new, setting)
    # What a call with one token takes is the prompt's: the rest of a longer call is steps.
    one = seconds_of(lambda: decode(prompts, 1), setting.device, setting.num_rounds)
    all_ = seconds_of(lambda: decode(prompts, new), setting.device, setting.num_rounds)
    row |= {"prompt, ms": one.times(1e3)}
    if all_.minimum > one.median:  # else other work on the machine took longer than the steps
        step = Spread(*((each - one.median) / (new - 1) for each in (all_.minimum, all_.median, all_.maximum)))
        row |= {
            "tokens/s": Spread(*(count / each for each in (step.maximum, step.median, step.minimum))),
            "ms per step": step.times(1e3),
            "share of roofline": roofline(shape, count, context, _limits_of(setting)) / step.median,
        }
    profiled = kernels_of(lambda: decode(prompts, new), setting.device)
    if profiled is not None:
        row |= {"kernels per step": profiled[0] / new, "GPU busy": profiled[1]}
    return row


def _recording(decode: Decode, prompts: list[Any], new: int, setting: Setting) -> Row:
    """What the first call takes more than the second, which finds its steps recorded."""
    decode(prompts, 1)  # loads what the device needs of libraries
    now = wall_clock(setting.device)
    times = []
    for _ in range(2):
        start = now()
        decode(prompts, new)
        times.append(now() - start)
    return {"recording, s": times[0] - times[1]}


def _own(model: Any, way: str, is_cast: bool) -> Decode:
    compute_dtype = torch.bfloat16 if is_cast else None
    sampler = "graphs" if GRAPHS in way else "arena"
    language_model = LanguageModel(model, embedded_tokenizer(), compute_dtype=compute_dtype, sampler=sampler)
    generator: Generator = language_model.generator

    def decode(prompts: list[Any], new: int) -> None:
        requests = [Prompt(ids, (number,), new) for number, ids in enumerate(prompts)]
        with torch.no_grad(), language_model.autocast():
            generator.generate(requests, Sampling())

    return decode


def _generate(model: Any) -> Decode:
    def decode(prompts: list[Any], new: int) -> None:
        ids = torch.from_numpy(np.stack(prompts)).to(model.device)
        settings = GenerationConfig(
            max_new_tokens=new, min_new_tokens=new, do_sample=True, top_k=0, top_p=1.0, pad_token_id=0
        )
        model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)

    return decode
