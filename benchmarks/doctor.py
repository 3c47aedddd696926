"""Data of `collm doctor`: a description of this machine, and the memory plan of a training."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .._errors import UserError

if TYPE_CHECKING:
    from ..algorithms.runs.assembly.experiment import Experiment

PACKAGES = ("collm", "torch", "transformers", "peft", "tokenizers", "datasets", "numpy")
EXTRAS = {  # extras of collm, each with a module that it installs
    "train": "torch",
    "wandb": "wandb",
    "tensorboard": "tensorboard",
    "torchrl": "torchrl",
    "trl": "trl",
    "sb3": "stable_baselines3",
    "rllib": "ray",
}


def machine() -> dict[str, Any]:
    from ..envs.sandbox import SandboxUnavailable, shared_sandbox

    try:
        tier = str(shared_sandbox().isolation)
    except SandboxUnavailable as error:
        tier = f"none: {error}"
    missing = [name for name, module in EXTRAS.items() if find_spec(module) is None]
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    training = {"devices": [], "compiler": None} if "train" in missing else _for_training()
    return {"versions": versions, **training, "missing": missing, "sandbox": tier}


def _for_training() -> dict[str, Any]:
    import torch

    from ..agents.decoding.cpu import compiler
    from ..algorithms.memory.devices import capacity

    found: list[dict[str, Any]] = [
        {
            "name": "cpu",
            "kind": platform.processor() or platform.machine(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "memory": capacity(torch.device("cpu")),
        }
    ]
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        free, total = torch.cuda.mem_get_info(index)
        found.append(
            {
                "name": f"cuda:{index}",
                "kind": properties.name,
                "compute_capability": f"{properties.major}.{properties.minor}",
                "memory": total,
                "free": free,
            }
        )
    return {"devices": found, "compiler": compiler()}


def examined(
    experiment: Experiment, memory: str | None = None, gpu: str | None = None, num_ranks: int = 1
) -> dict[str, Any]:
    """Compute the memory plan of a training, without loading weights. Examples: memory="80GB", gpu="h100"."""
    import torch

    from ..algorithms.memory import devices, fitting
    from ..algorithms.runs.assembly.policies import writes_text

    if memory is not None and gpu is not None:
        raise UserError("--memory and --gpu both set the device; give one of them")
    if num_ranks < 1:
        raise UserError(f"--ranks {num_ranks} must be at least 1")
    asked = None if memory is None else devices.bytes_of(memory)
    asked = devices.gpu_memory(gpu) if gpu is not None else asked
    capacity: Callable[[str], int] = lambda name: devices.capacity(torch.device(name))  # noqa: E731
    if asked is not None:
        amount = devices.usable(asked)
        capacity = lambda name: amount  # noqa: E731
    with closing(experiment.make_env()) as env:
        if not writes_text(env):
            return {"fits": True, "verdict": "perceptrons need no memory plan", "devices": []}
    algorithm = experiment.make_algorithm()
    task = replace(experiment.task(), num_ranks=num_ranks)
    places = experiment.team_model.devices(len(task.agents))
    if asked is None:
        places = [fitting.canonical(place) for place in places]
    else:
        places = ["cuda:0" if place in ("auto", "cuda") else place for place in places]
    model = replace(experiment.team_model, device=",".join(places))
    problem = ""
    try:
        fit = fitting.check_fit(algorithm, model, task, capacity)
        plans = dict(fit.plans)
        chosen = [f"on each of {num_ranks} ranks"] if num_ranks > 1 else []
        chosen += [f"recompute activations: {'yes' if fit.recomputes else 'no'}"]
        chosen += [f"tokens per pass: {fit.max_tokens}"] if fit.max_tokens else []
        chosen += [f"keys and values: {fit.kv_memory:.1f} GiB per model"] if fit.kv_memory else []
        # The host memory of another machine is unknown.
        host = devices.capacity(torch.device("cpu")) // num_ranks if asked is None else sys.maxsize
        pinned = fitting.check_host(fit.plans, host)
        chosen += [f"pinned host memory: {pinned / devices.GIB:.1f} GiB"] if pinned else []
        chosen += [f"longest row (estimated): {task.row_length(model)} tokens"]
        verdict = f"it fits ({', '.join(chosen)})"
    except fitting.NoRoom as error:
        plans = fitting.tightest(algorithm, model, task)
        problem = verdict = str(error)
    return {
        "fits": not problem,
        "verdict": verdict,
        "devices": [
            {
                "device": name,
                "memory": capacity(name),
                "peak": plan.peak.name,
                "phases": [{**asdict(phase), "total": phase.total} for phase in plan.phases],
            }
            for name, plan in plans.items()
        ],
    }
