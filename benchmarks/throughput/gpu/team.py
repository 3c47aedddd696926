"""Whole MAAC updates of two agents and a critic: seconds and memory by phase, how busy the GPU is, and the swap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from transformers import AutoModel

from ....agents.language.critics import TextCritic
from ....algorithms.learning.trainer import Trainer
from ....algorithms.registry import algorithm_spec
from ....algorithms.runs.teams import make_trainer
from ....envs.vectors.vector import SyncVector
from ..timing import Spread, Stopwatch
from .machine import GIB, forget_peak, peak_bytes, seconds_of, usage_of, wall_clock
from .results import Part, Row, Setting
from .shapes import LARGE, MIDDLE, SMALL, TINY, Shape, embedded_tokenizer, random_policy

ENVS = {"MiniBuild": "collm/MiniBuild-v0", "MiniWriting": "collm/MiniWriting-v1"}
"""Six turns of growing histories, and one turn."""
PHASES = {"collect": "_collect", "value": "values", "critic": "learn", "policies": "update"}


def part() -> Part:
    return Part("team", "Whole MAAC updates, two agents with weights of their own and a critic of their size", whole)


def memory_part() -> Part:
    return Part("memory", "Most memory held in each phase of a MAAC update, beside the plan", memory)


def offload_part() -> Part:
    return Part("offload", "Weights and moments of a learner to the host's pinned memory and back", offload)


def whole(setting: Setting) -> Mapping[str, Callable[[], Row]]:
    shapes = (TINY,) if setting.is_tiny else (SMALL, MIDDLE)
    return {
        f"2 x {shape.name} + critic, {name}": partial(_whole, setting, shape, env)
        for shape in shapes
        for name, env in ENVS.items()
    }


def memory(setting: Setting) -> Mapping[str, Callable[[], Row]]:
    shapes = (TINY,) if setting.is_tiny else (SMALL, MIDDLE)
    return {f"2 x {shape.name} + critic": partial(_memory, setting, shape) for shape in shapes}


def offload(setting: Setting) -> Mapping[str, Callable[[], Row]]:
    shapes = (TINY,) if setting.is_tiny else (MIDDLE, LARGE)
    return {shape.name: partial(_offload, setting, shape) for shape in shapes}


def team(setting: Setting, shape: Shape, env: str) -> Trainer:
    """MAAC on an environment with random models: bfloat16 under autocast, activations recomputed."""
    count, new = setting.size(64, 4), setting.size(64, 4)
    spec = algorithm_spec("maac")
    rates: dict[str, Any] = {"agent_learning_rate": 1e-6, "critic_learning_rate": 1e-6, "critic_warmup": 0}
    rule = spec.make(spec.config(rollout_buffer_size=count, **rates))
    vector = SyncVector(env, count)
    policies = {
        agent: random_policy(
            shape, setting.device, compute_dtype=torch.bfloat16, recomputes=True, max_new_tokens=new, seed=number
        )
        for number, agent in enumerate(vector.possible_agents)
    }
    torch.manual_seed(len(policies))
    with torch.device(setting.device):
        backbone: Any = AutoModel.from_config(shape.config(), dtype=torch.float32)
    return make_trainer(rule, vector, policies, critics=TextCritic(backbone, embedded_tokenizer()))


def _phases(trainer: Trainer) -> list[tuple[str, Any, str]]:
    """Phase, owner and method of every call that counts."""
    found: list[tuple[str, Any, str]] = [("collect", trainer, PHASES["collect"])]
    for critic in trainer.unique_critics().values():
        found += [("value", critic, PHASES["value"]), ("critic", critic, PHASES["critic"])]
    for learner in {id(learner): learner for learner in trainer.learners.values()}.values():
        found.append(("policies", learner, PHASES["policies"]))
    return found


def _whole(setting: Setting, shape: Shape, env: str) -> Row:
    trainer = team(setting, shape, env)
    trainer.step()  # moments and caches come into being
    stopwatch = Stopwatch(wall_clock(setting.device))
    for watched in _phases(trainer):
        stopwatch.watch(*watched)
    now = wall_clock(setting.device)
    seconds: dict[str, list[float]] = {phase: [] for phase in ("update", *PHASES)}
    tokens = []
    with usage_of(setting.device) as usage:
        for _ in range(setting.num_rounds):
            stopwatch.seconds.clear()
            before, start = trainer.num_tokens, now()
            trainer.step()
            seconds["update"].append(now() - start)
            tokens.append((trainer.num_tokens - before) / seconds["update"][-1])
            for phase in PHASES:
                seconds[phase].append(stopwatch.seconds[phase])
    row: dict[str, Any] = {f"{phase}, s": Spread.of(found) for phase, found in seconds.items()}
    return row | {
        "sampled tokens/s": Spread.of(tokens),
        "GPU busy": usage.busy_share,
        "watts": Spread.of(usage.watts) if usage.watts else None,
    }


def _memory(setting: Setting, shape: Shape) -> Row:
    forget_peak(setting.device)
    trainer = team(setting, shape, ENVS["MiniBuild"])
    peaks = {"loaded": peak_bytes(setting.device)}
    trainer.step()
    for phase, owner, method in _phases(trainer):
        setattr(owner, method, partial(_peaking, setting.device, peaks, phase, getattr(owner, method)))
    trainer.step()
    forget_peak(setting.device)
    peaks["after the update"] = peak_bytes(setting.device)
    weights = 3 * 4 * shape.num_weights()
    row: dict[str, Any] = {f"{phase}, GiB": peak / GIB for phase, peak in peaks.items()}
    return row | {
        "weights by arithmetic, GiB": weights / GIB,
        "weights, gradients and moments by arithmetic, GiB": 4 * weights / GIB,
    }


def _peaking(device: torch.device, peaks: dict[str, int], phase: str, call: Callable[..., Any], *args: Any) -> Any:
    forget_peak(device)
    found = call(*args)
    peaks[phase] = max(peaks.get(phase, 0), peak_bytes(device))
    return found


def _offload(setting: Setting, shape: Shape) -> Row:
    """Three tensors of fp32 per weight (master weight, two moments), in pieces of a gibibyte."""
    total = 12 * shape.num_weights()
    piece = min(total, GIB)
    count = -(-total // piece)
    is_pinned = setting.device.type == "cuda"
    here = [torch.empty(piece, dtype=torch.uint8, device=setting.device) for _ in range(count)]
    host = [torch.empty(piece, dtype=torch.uint8, pin_memory=is_pinned) for _ in range(count)]

    def move(sources: list[torch.Tensor], targets: list[torch.Tensor]) -> None:
        for source, target in zip(sources, targets, strict=True):
            target.copy_(source, non_blocking=True)

    out = seconds_of(lambda: move(here, host), setting.device, setting.num_rounds)
    back = seconds_of(lambda: move(host, here), setting.device, setting.num_rounds)
    moved = count * piece
    return {
        "GB": moved / 1e9,
        "out, s": out,
        "back, s": back,
        "out, GB/s": moved / out.median / 1e9,
        "back, GB/s": moved / back.median / 1e9,
    }
