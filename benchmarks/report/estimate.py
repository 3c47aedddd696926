"""Estimates of the size and the memory of a comparison's runs, from their settings."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from ..._errors import UserError
from ...agents.config import MAX_NEW_TOKENS
from ...agents.loading import model_folder
from ...algorithms.memory.fitting import shape_of, tightest
from ..comparison.suite import Job
from .tables import NONE, TableOfText

GIB = 2**30
BYTES_PER_WEIGHT = 2
BYTES_PER_LEARNING_WEIGHT = 16  # a weight in float32, its gradient, and two moments of AdamW


def estimates(jobs: Sequence[Job]) -> TableOfText:
    """Table of the updates, the generated tokens and the memory plan per method and environment."""
    cells = {(job.environment, job.algorithm): job for job in reversed(jobs)}  # the first seed of each
    rows = []
    for job in reversed(cells.values()):
        model = job.experiment.model.model.rpartition("/")[2]
        num_agents, max_turns = _size(job)
        length = job.experiment.team_model.max_new_tokens or MAX_NEW_TOKENS
        is_in_turns = job.budget.unit == "environment_steps"
        num_turns = 0 if job.is_prompted else job.budget.amount / (1 if is_in_turns else num_agents * length)
        num_updates = math.ceil(num_turns / (max_turns * job.experiment.config.rollout_buffer_size))
        millions = f"{num_turns * num_agents * length / 1e6:.1f}"
        rows.append([job.environment, job.algorithm, model, f"{num_updates:,}", str(length), millions, _memory(job)])
    return TableOfText(
        "Estimates per run",
        "Replies have the maximum length, and episodes the maximum number of turns. Tokens: millions, generated for "
        "training. Memory: the memory plan, with weights, optimizer, activations and KV cache; over: of a model that "
        f"is not on this machine, the memory of its weights. {NONE}: the size of the model is unknown.",
        ["task", "method", "model", "updates", "tokens per reply", "tokens", "memory"],
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
    weights, num_agents = _num_weights(job), _size(job)[0]
    if weights is None:
        return NONE
    if job.is_prompted:
        return f"over {weights * num_agents * BYTES_PER_WEIGHT / GIB:.0f} GiB"
    experiment = job.experiment
    learning, frozen = BYTES_PER_LEARNING_WEIGHT, BYTES_PER_WEIGHT
    policies = {"own": num_agents * learning, "shared": learning, "adapters": frozen}
    has_frozen_critic = getattr(experiment.config, "critic_lora_rank", None) is not None
    critics = _num_critics(job, num_agents) * (frozen if has_frozen_critic else learning)
    return f"over {weights * (policies[experiment.model.weights] + critics) / GIB:.0f} GiB"


def _num_weights(job: Job) -> float | None:
    """Number of weights from the model's name, such as 1.7B, or from its folder. None: unknown."""
    name = job.experiment.team_model.model
    if billions := re.findall(r"(\d+(?:\.\d+)?)[bB]\b", name):
        return 1e9 * float(billions[-1])
    try:
        return None if model_folder(name) is None else shape_of(name).num_weights
    except OSError:  # neither a folder nor a model in the cache of the hub
        return None


def _num_critics(job: Job, num_agents: int) -> int:
    """Number of critics with the size of the agents' model. Small critics are not counted."""
    if job.is_prompted:
        return 0
    algorithm = job.experiment.make_algorithm()
    name = getattr(algorithm.config, "critic_model_name_or_path", None)
    has_size = name in ("actor", job.experiment.model.model) and not algorithm.has_actor_heads
    return {"joint": 1, "own": num_agents}.get(algorithm.critic_reads, 0) if has_size else 0


def _size(job: Job) -> tuple[int, int]:
    """Number of agents, and maximum number of turns per episode. Without the environment's data: from its arguments."""
    kwargs = job.experiment.env_kwargs
    try:
        task = job.experiment.task()
    except (OSError, UserError, ValueError):
        return 1 if kwargs.get("single_model") else 2, kwargs.get("max_turns", 1)
    return len(task.agents), task.max_turns
