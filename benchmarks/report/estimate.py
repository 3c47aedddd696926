"""Estimates of the memory and the time of a comparison's runs, from their settings."""

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
        num_agents, max_turns = _size(job)
        steps = max_turns * job.experiment.config.rollout_buffer_size
        num_updates = 0 if job.is_prompted else math.ceil(_num_turns(job, num_agents) / steps)
        length = job.experiment.team_model.max_new_tokens
        rows.append([job.environment, job.algorithm, model, f"{num_updates:,}", str(length), _memory(job), _hours(job)])
    hours = [float(row[-1]) for row in rows if row[-1] != NONE]
    num_seeds = len({job.seed for job in jobs})
    return TableOfText(
        "Estimates per run, for one H100",
        "Memory: the memory plan, with weights, optimizer, activations and KV cache. Hours: upper estimate from the "
        "model's size. Replies have the maximum length, and episodes the maximum number of turns. Decoding is limited "
        "by memory bandwidth, and learning reaches 30 % of the peak operations. All runs: "
        f"{num_seeds * math.fsum(hours):.0f} hours with {num_seeds} seeds. {NONE}: the size of the model is unknown.",
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


def _num_turns(job: Job, num_agents: int) -> float:
    """Number of joint turns in the budget of a run."""
    tokens = num_agents * (job.experiment.team_model.max_new_tokens or MAX_NEW_TOKENS)
    return job.budget.amount / (1 if job.budget.unit == "environment_steps" else tokens)


def _hours(job: Job) -> str:
    experiment, weights, num_agents = job.experiment, _num_weights(job), _size(job)[0]
    if weights is None:
        return NONE
    config, length = experiment.config, experiment.team_model.max_new_tokens or MAX_NEW_TOKENS
    num_rounds = 2 if experiment.model.protocol == "discussion" else 1
    num_turns = 0 if job.is_prompted else _num_turns(job, num_agents)
    batch = config.rollout_buffer_size
    evaluated = 4 if not job.is_prompted else 2  # sampled and greedy, before and after training
    steps = num_turns / batch + evaluated * math.ceil((config.eval_num_samples or 64) / 64)
    decoding = steps * num_agents * num_rounds * length * weights * BYTES_PER_WEIGHT / GPU_BYTES_PER_S
    # A joint critic reads the texts of all agents, so one joint critic costs as much as one critic per agent.
    num_passes = 1 + (_num_critics(job, num_agents) > 0)
    learning = num_turns * num_agents * 2 * length * num_passes * OPS_PER_TOKEN * weights / GPU_FLOPS
    return f"{(decoding + learning) / 3600:.2f}"
