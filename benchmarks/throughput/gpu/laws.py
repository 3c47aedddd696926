"""Laws of decoding and scoring on the device: what is equal by contract, and by how much it differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from peft import PeftModel

from ....agents.decoding.samples import Prompt, Sample
from ....agents.decoding.sampling import Sampling
from ....agents.language.model import LanguageModel
from ....agents.loading import with_adapters
from ....agents.scoring.scorer import row_of
from ..timing import Spread
from .results import Part, Row, Setting
from .shapes import SMALL, TINY, Shape, embedded_tokenizer, random_model, random_prompts

MAX_DIFFERENCE = 1e-4
"""Nats by which a log-probability may differ in fp32."""
MEAN_BF16, TAIL_BF16 = 5e-3, 0.1
"""Nats by which one may differ in bfloat16: in the mean, and in all but one of a thousand tokens."""
Floats: TypeAlias = NDArray[np.float32]


def part() -> Part:
    return Part("laws", "Laws in fp32 without TF32", measurements)


def bf16_part() -> Part:
    return Part("bf16", "Differences in bfloat16", bf16_measurements)


def measurements(setting: Setting) -> Mapping[str, Callable[[], Row]]:
    found = {
        "decoding = scoring": _decoding_is_scoring,
        "alone = in a batch": _alone_is_together,
        "resumed = read anew": _resumed_is_anew,
        "adapters in one batch = one by one": _adapters_together,
        "prompts shared in trees = rows apart": _trees_are_rows,
        "device = CPU": _device_is_cpu,
        "CUDA graphs = kernel by kernel": _graphs_are_eager,
    }
    return {what: partial(_law, setting, differences) for what, differences in found.items()}


def _law(setting: Setting, differences: Callable[[Setting], Floats]) -> Row:
    if differences is _graphs_are_eager and setting.device.type != "cuda":
        return {"outcome": "not available: CUDA graphs need a GPU"}
    with full_precision():
        found = differences(setting)
    worst = float(np.abs(found).max())
    return {"tokens": len(found), "max |Δ|, nats": worst, "allowed": MAX_DIFFERENCE, "holds": worst <= MAX_DIFFERENCE}


@contextmanager
def full_precision() -> Iterator[None]:
    """Without TF32, whatever is set otherwise."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def shape_of(setting: Setting) -> Shape:
    return TINY if setting.is_tiny else SMALL


def model_of(setting: Setting, compute_dtype: torch.dtype | None = None, sampler: str = "arena") -> LanguageModel:
    model = random_model(shape_of(setting), setting.device)
    return LanguageModel(model, embedded_tokenizer(), compute_dtype=compute_dtype, sampler=sampler)


def requests(setting: Setting, count: int, *, turn: int = 0) -> list[Prompt]:
    """Ragged prompts with streams of their own."""
    length, new = setting.size(256, 12), setting.size(64, 6)
    prompts = random_prompts(shape_of(setting), count, length, is_ragged=True, seed=turn)
    return [Prompt(ids, (turn, number), new) for number, ids in enumerate(prompts)]


def decoded(model: LanguageModel, prompts: Sequence[Prompt]) -> list[Sample]:
    with torch.no_grad(), model.autocast():
        return model.generator.generate(prompts, Sampling())


def scored(model: LanguageModel, prompts: Sequence[Prompt], samples: Sequence[Sample]) -> Floats:
    """Log-probabilities of the samples by the pass that learning makes, in one row."""
    rows = [row_of(prompt, sample.ids) for prompt, sample in zip(prompts, samples, strict=True)]
    found = []
    with torch.no_grad(), model.autocast():
        for first in range(0, len(rows), 8):
            found.append(model.scorer.scores(rows[first : first + 8], 1.0)[0].float().cpu().numpy())
    return np.concatenate(found)


def recorded(samples: Sequence[Sample]) -> Floats:
    return np.concatenate([sample.logprobs for sample in samples])


def _decoding_is_scoring(setting: Setting) -> Floats:
    model, prompts = model_of(setting), requests(setting, setting.size(64, 8))
    samples = decoded(model, prompts)
    return recorded(samples) - scored(model, prompts, samples)


def _alone_is_together(setting: Setting) -> Floats:
    model, prompts = model_of(setting), requests(setting, setting.size(64, 8))
    together = decoded(model, prompts)[:4]
    alone = [decoded(model, [prompt])[0] for prompt in prompts[:4]]
    return _same(together, alone)


def _resumed_is_anew(setting: Setting) -> Floats:
    model, first = model_of(setting), requests(setting, setting.size(32, 4))
    first = [replace(prompt, parked=number) for number, prompt in enumerate(first)]
    more = requests(setting, len(first), turn=1)
    samples = decoded(model, first)
    second = [
        replace(after, ids=np.concatenate([before.ids, sample.ids, after.ids]), parked=before.parked)
        for before, sample, after in zip(first, samples, more, strict=True)
    ]
    resumed = decoded(model, second)
    anew = decoded(model, [replace(prompt, parked=None) for prompt in second])
    return _same(resumed, anew)


def _adapters_together(setting: Setting) -> Floats:
    names = ["first", "second", "third"]
    adapted: PeftModel = with_adapters(random_model(shape_of(setting), setting.device), names, 16)
    generator = torch.Generator(setting.device).manual_seed(1)
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:  # zero at first, so that a new adapter changes nothing
            weight.data.normal_(std=0.02, generator=generator)
    model = LanguageModel(adapted, embedded_tokenizer())
    prompts = [
        replace(prompt, adapter=names[number % 3])
        for number, prompt in enumerate(requests(setting, setting.size(30, 6)))
    ]
    together = decoded(model, prompts)
    apart: dict[int, Sample] = {}
    for name in names:
        own = [number for number, prompt in enumerate(prompts) if prompt.adapter == name]
        apart |= dict(zip(own, decoded(model, [prompts[number] for number in own]), strict=True))
    return _same(together, [apart[number] for number in range(len(prompts))])


def _trees_are_rows(setting: Setting) -> Floats:
    """Four rollouts of each prompt, scored with the prompt once and with a prompt each."""
    model = model_of(setting)
    prompts = [
        replace(prompt, stream=(number, rollout))
        for number, prompt in enumerate(requests(setting, setting.size(8, 2)))
        for rollout in range(4)
    ]
    samples = decoded(model, prompts)
    if not model.scorer.shares_prompts:
        raise ValueError("the model was found not to follow the mask of trees on this device")
    in_trees = scored(model, prompts, samples)
    model.scorer.shares_prompts = False
    return in_trees - scored(model, prompts, samples)


def _device_is_cpu(setting: Setting) -> Floats:
    """The same samples scored by the same weights on a CPU."""
    model, prompts = model_of(setting), requests(setting, 4)
    samples = decoded(model, prompts)
    ours = scored(model, prompts, samples)
    torch.nn.Module.to(model.base, "cpu")
    theirs = scored(LanguageModel(model.base, embedded_tokenizer()), prompts, samples)
    return ours - theirs


def _graphs_are_eager(setting: Setting) -> Floats:
    """Rows that come, go and return; steps are recorded, and recorded anew after the memory was given back."""
    eager, recording = model_of(setting), model_of(setting, sampler="graphs")
    prompts = [replace(prompt, parked=number) for number, prompt in enumerate(requests(setting, setting.size(150, 9)))]
    found = []
    for turn in range(3):
        said = decoded(recording, prompts)
        found.append(_same(said, decoded(eager, prompts)))
        if turn == 1:
            recording.generator.rest()
        prompts = [
            replace(prompt, ids=np.concatenate([prompt.ids, sample.ids, after.ids[:16]]), stream=after.stream)
            for prompt, sample, after in zip(prompts, said, requests(setting, len(prompts), turn=turn + 1), strict=True)
        ]
    return np.concatenate(found)


def _same(some: Sequence[Sample], others: Sequence[Sample]) -> Floats:
    """Differences of the log-probabilities.

    Raises:
        ValueError: if a token differs; the noise is the same, so that it should not.
    """
    unequal = [row for row, (a, b) in enumerate(zip(some, others, strict=True)) if not np.array_equal(a.ids, b.ids)]
    if unequal:
        raise ValueError(f"samples {unequal} of {len(some)} have other tokens")
    return recorded(some) - recorded(others)


def bf16_measurements(setting: Setting) -> Mapping[str, Callable[[], Row]]:
    return {
        "fp32 weights under autocast": partial(_bf16, setting, is_cast=False),
        "bf16 weights": partial(_bf16, setting, is_cast=True),
    }


def _bf16(setting: Setting, *, is_cast: bool) -> Row:
    if is_cast:
        model = LanguageModel(random_model(shape_of(setting), setting.device, torch.bfloat16), embedded_tokenizer())
    else:
        model = model_of(setting, torch.bfloat16)
    prompts = requests(setting, setting.size(64, 8))
    samples = decoded(model, prompts)
    differences = np.abs(recorded(samples) - scored(model, prompts, samples))
    alone = [decoded(model, [prompt])[0] for prompt in prompts[:8]]
    equal = [
        float((a.ids[: min(len(a.ids), len(b.ids))] == b.ids[: min(len(a.ids), len(b.ids))]).mean())
        for a, b in zip(alone, samples, strict=False)
    ]
    mean, tail = float(differences.mean()), float(np.quantile(differences, 0.999))
    return {
        "tokens": len(differences),
        "mean |Δ|, nats": mean,
        "99.9 % |Δ|, nats": tail,
        "holds": mean <= MEAN_BF16 and tail <= TAIL_BF16,
        "tokens equal alone and in a batch": Spread.of(equal),
    }
