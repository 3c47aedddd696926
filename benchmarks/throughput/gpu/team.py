"""Whole MAAC updates of two agents and a critic: seconds and memory by phase, how busy the GPU is, and the swap."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import AutoModel

from ....agents.decoding.decoder import PREFILL_TOKENS
from ....agents.language.critics import TextCritic
from ....agents.language.shape import ModelShape
from ....algorithms.learning.offloading import Turns
from ....algorithms.learning.passes import tokens_per_pass
from ....algorithms.learning.trainer import Trainer
from ....algorithms.memory.plan import Member, Plan, Work, plan
from ....algorithms.registry import algorithm_spec
from ....algorithms.rollout.episode import Episode
from ....algorithms.runs.assembly.trainers import make_trainer
from ....envs.vectors.vector import SyncVector
from ..timing import Spread, Stopwatch
from .machine import GIB, forget_peak, peak_bytes, usage_of, wall_clock
from .results import Part, Row, Setting
from .shapes import LARGE, MIDDLE, SMALL, TINY, Shape, embedded_tokenizer, random_policy

ENVS = {"MiniBuild": "collm/MiniBuild-v0", "MiniWriting": "collm/MiniWriting-v2"}
"""Six turns of growing histories, and one turn."""
PHASES = {"collect": "_collect", "value": "values", "critic": "_descend", "policies": "_update"}
PLANNED = {"loaded": "loading", "collect": "decoding", "critic": "update of critic", "policies": "update of "}
"""Phases of the memory plan by what is measured: the largest of those whose names begin so."""
TOLERANCE = 0.15


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
    """MAAC on an environment with random models: bfloat16 under autocast, activations recomputed, the critic's too."""
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
    critic = TextCritic(backbone, embedded_tokenizer(), compute_dtype=torch.bfloat16, recomputes_activations=True)
    return make_trainer(rule, vector, policies, critics=critic)


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
    before = peak_bytes(setting.device)
    trainer = team(setting, shape, ENVS["MiniBuild"])
    peaks = {"loaded": peak_bytes(setting.device)}
    trainer.step()
    for phase, owner, method in _phases(trainer):
        setattr(owner, method, partial(_peaking, setting.device, peaks, phase, getattr(owner, method)))
    episodes, _ = trainer.step()
    forget_peak(setting.device)
    peaks["after the update"] = peak_bytes(setting.device)
    planned = planned_for(setting, shape, trainer, episodes)
    row: dict[str, Any] = {}
    for phase, peak in peaks.items():
        row[f"{phase}, GiB"] = (peak - before) / GIB
        if phase in PLANNED:
            own = [each.total for each in planned.phases if each.name.startswith(PLANNED[phase])]
            row[f"{phase}, planned, GiB"] = max(own) / GIB
    ratio = planned.peak.total / max(max(peaks.values()) - before, 1)
    row["planned / measured at the peak"] = ratio
    # On a CPU the process is what is measured, and a tiny model is nothing beside its libraries.
    return row | ({"holds": abs(ratio - 1) <= TOLERANCE} if setting.device.type == "cuda" else {})


def planned_for(setting: Setting, shape: Shape, trainer: Trainer, episodes: Sequence[Episode]) -> Plan:
    """The memory plan of the team, with the longest row that these episodes have."""
    sizes = ModelShape.of(shape.config())
    members = [Member(name=agent, shape=sizes, compute=2) for agent in trainer.learners]
    members.append(Member(name="critic", shape=sizes.backbone(), compute=2, num_agents=0))
    turns = [turn.completion for episode in episodes for track in episode.tracks.values() for turn in track]
    records = [turn.tokens for turn in turns if turn.tokens is not None]
    config, kind = trainer.algorithm.config, setting.device.type
    work = Work(
        tokens=tokens_per_pass(config, setting.device),
        row_length=max(len(each.prompt_ids) + len(each.completion_ids) for each in records),
        num_rows=trainer.collector.vector.num_envs,
        shares_prompts=config.num_generations > 1,
        recomputes=True,
        prefill_tokens=PREFILL_TOKENS[kind],
        kind=kind,
    )
    return plan(members, work)


def _peaking(device: torch.device, peaks: dict[str, int], phase: str, call: Callable[..., Any], *args: Any) -> Any:
    forget_peak(device)
    found = call(*args)
    peaks[phase] = max(peaks.get(phase, 0), peak_bytes(device))
    return found


def _offload(setting: Setting, shape: Shape) -> Row:
    """Three tensors of fp32 per weight (master weight, two moments), in pieces of a gibibyte at most.

    On a CPU host memory is the device's, and nothing moves.
    """
    total = 3 * shape.num_weights()
    piece = min(total, GIB // 4)
    count = -(-total // piece)
    weights = [nn.Parameter(torch.empty(piece, device=setting.device), requires_grad=False) for _ in range(count)]
    turns = Turns({0: weights}, moves=True)
    now = wall_clock(setting.device)
    seconds = []
    for _ in range(1 + setting.num_rounds):
        start = now()
        turns.only([])
        left = now()
        turns.only([0])
        seconds.append((left - start, now() - left))
    out, back = (Spread.of(each) for each in zip(*seconds[1:], strict=True))  # the first pins host memory
    moved = 4 * count * piece
    return {
        "GB": moved / 1e9,
        "out, s": out,
        "back, s": back,
        "out, GB/s": moved / out.median / 1e9 if setting.device.type == "cuda" else None,
        "back, GB/s": moved / back.median / 1e9 if setting.device.type == "cuda" else None,
    }
