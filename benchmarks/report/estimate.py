"""Estimates of the memory and the time of a comparison's runs, from their settings."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from ..._errors import UserError
from ...agents.loading import model_folder
from ...algorithms.memory.fitting import tightest
from ..comparison.suite import Job
from .tables import NONE, TableOfText

GIB = 2**30
GPU_BYTES_PER_S = 3.35e12  # memory bandwidth of an H100 SXM (data sheet); a decoding step reads all weights once
GPU_FLOPS = 0.3 * 989e12  # 30 % of an H100's dense bfloat16 operations per second, which is usual for training
BYTES_PER_WEIGHT = 2
BYTES_PER_LEARNING_WEIGHT = 16  # a weight in float32, its gradient, and two moments of AdamW
OPS_PER_TOKEN = 2 + 6  # per weight: a forward pass of the prompt, then a forward and a backward pass


def estimates(jobs: Sequence[Job]) -> TableOfText:
    """Table of the memory plan and the estimated hours per method and environment, for one H100."""
    cells = {(job.environment, job.algorithm): job for job in reversed(jobs)}  # the first seed of each
    rows = []
    for job in reversed(cells.values()):
        model = job.experiment.model.model.rpartition("/")[2]
        num_updates = 0 if job.is_prompted else job.experiment.config.num_updates
        length = job.experiment.team_model.max_new_tokens
        rows.append([job.environment, job.algorithm, model, f"{num_updates:,}", str(length), _memory(job), _hours(job)])
    hours = [float(row[-1]) for row in rows if row[-1] != NONE]
    num_seeds = len({job.seed for job in jobs})
    return TableOfText(
        "Estimates per run, for one H100",
        "Memory: the memory plan, with weights, optimizer, activations and KV cache. Hours: upper estimate from the "
        "model's size. Replies have the maximum length, decoding is limited by memory bandwidth, and learning reaches "
        f"30 % of the peak operations. All runs: {num_seeds * math.fsum(hours):.0f} hours with {num_seeds} seeds. "
        f"{NONE}: the model is not on this machine, and its name has no size.",
        ["task", "method", "model", "updates", "tokens per reply", "memory", "hours"],
        rows,
    )


def _memory(job: Job) -> str:
    """Peak memory of the memory plan. For a model that is not on this machine: the memory of its weights."""
    experiment = job.experiment
    try:
        if model_folder(experiment.model.model) is None:  # do not ask the hub
            return _least_memory(job)
        works = tightest(experiment.make_algorithm(), experiment.team_model, experiment.task())
    except (OSError, UserError, ValueError):
        return _least_memory(job)
    return f"{max(work.peak.total for work in works.values()) / GIB:.1f} GiB"


def _least_memory(job: Job) -> str:
    weights, num_agents = _num_weights(job), _num_agents(job)
    if weights is None:
        return NONE
    if job.is_prompted:
        return f"over {weights * num_agents * BYTES_PER_WEIGHT / GIB:.0f} GiB"
    experiment = job.experiment
    num_critics = {"joint": 1, "own": num_agents}.get(experiment.make_algorithm().critic_reads, 0)
    learning, frozen = BYTES_PER_LEARNING_WEIGHT, BYTES_PER_WEIGHT
    policies = {"own": num_agents * learning, "shared": learning, "adapters": frozen}
    has_frozen_critic = getattr(experiment.config, "critic_lora_rank", None) is not None
    critics = num_critics * (frozen if has_frozen_critic else learning)
    return f"over {weights * (policies[experiment.model.weights] + critics) / GIB:.0f} GiB"


def _num_weights(job: Job) -> float | None:
    """Number of weights from the model's name, such as 1.7B. None: the name has no size."""
    billions = re.findall(r"(\d+(?:\.\d+)?)[bB]\b", job.experiment.model.model)
    return 1e9 * float(billions[-1]) if billions else None


def _num_agents(job: Job) -> int:
    return 1 if job.experiment.env_kwargs.get("single_model") else 2


def _hours(job: Job) -> str:
    experiment, weights, num_agents = job.experiment, _num_weights(job), _num_agents(job)
    if weights is None:
        return NONE
    config, length = experiment.config, experiment.team_model.max_new_tokens or 0
    num_rounds = 2 if experiment.model.protocol == "discussion" else 1
    num_turns = 0 if job.is_prompted else job.budget.amount
    batch = config.rollout_buffer_size
    evaluated = 4 if not job.is_prompted else 2  # sampled and greedy, before and after training
    steps = num_turns / batch + evaluated * math.ceil((config.eval_num_samples or 64) / 64)
    decoding = steps * num_agents * num_rounds * length * weights * BYTES_PER_WEIGHT / GPU_BYTES_PER_S
    learning = num_turns * num_agents * 2 * length * OPS_PER_TOKEN * weights / GPU_FLOPS
    return f"{(decoding + learning) / 3600:.2f}"
