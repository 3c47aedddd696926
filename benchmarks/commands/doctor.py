"""`collm doctor [train ALGORITHM …]`: show this machine, or the memory that a training needs by phase."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Column, Table

from ..._errors import UserError
from ..._extras import install_command
from ..._terminal import terminal
from ..errors import refusals
from .train import experiment_of, training

if TYPE_CHECKING:
    from ...algorithms.memory.plan import MemoryPlan
    from ...algorithms.runs.assembly.experiment import Experiment

PACKAGES = ("collm", "torch", "transformers", "peft", "tokenizers", "datasets", "numpy")
EXTRAS = {
    "wandb": "wandb",
    "tensorboard": "tensorboard",
    "torchrl": "torchrl",
    "trl": "trl",
    "sb3": "stable_baselines3",
    "rllib": "ray",
}
"""Optional extras with a module of each."""


def run(args: Sequence[str]) -> None:
    options, rest = _parser().parse_known_args(list(args))
    if rest in (["-h"], ["--help"]):
        _parser().print_help()
        return
    if not rest:
        if options.memory or options.gpu or options.ranks != 1:
            raise UserError(
                "--memory, --gpu and --ranks need a training; add it: collm doctor train ALGORITHM --env ID …"
            )
        _show_machine(options.json)
        return
    if rest[0] != "train" or len(rest) < 2:
        raise UserError(f"collm doctor {rest[0]!r} is not a training; use collm doctor train ALGORITHM --env ID …")
    _show_training(rest[1:], options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="collm doctor",
        description=__doc__,
        usage="collm doctor [options] [train ALGORITHM …]",
        allow_abbrev=False,
        add_help=False,
    )
    parser.add_argument("--memory", help="memory of the device, such as 80GB or 24GiB; default: that of this machine")
    parser.add_argument("--gpu", help="kind of GPU, such as h100; default: that of this machine")
    parser.add_argument("--ranks", type=int, default=1, help="number of processes of torchrun; the plan is per process")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser


def machine() -> dict[str, Any]:
    """Versions, devices, C++ compiler, missing extras and sandbox tier of this machine."""
    from ...agents.decoding.cpu import compiler
    from ...envs.sandbox import SandboxUnavailable, shared_sandbox

    try:
        tier = str(shared_sandbox().isolation)
    except SandboxUnavailable as error:
        tier = f"none: {error}"
    return {
        "versions": {"python": platform.python_version()}
        | {name: importlib.metadata.version(name) for name in PACKAGES},
        "devices": _devices(),
        "compiler": compiler(),
        "missing": [name for name, module in EXTRAS.items() if find_spec(module) is None],
        "sandbox": tier,
    }


def _devices() -> list[dict[str, Any]]:
    import torch

    from ...algorithms.memory.devices import capacity

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
    return found


def _show_machine(is_json: bool) -> None:
    found = machine()
    if is_json:
        print(json.dumps(found, indent=2))
        return
    table = Table(show_header=False)
    table.add_row("versions", ", ".join(f"{name} {version}" for name, version in found["versions"].items()))
    for device in found["devices"]:
        said = [f"{device['kind']}, {_gib(device['memory'])} GiB"]
        said += [f"{_gib(device['free'])} GiB free"] if "free" in device else []
        said += [f"compute capability {device['compute_capability']}"] if "compute_capability" in device else []
        said += [f"{device['cores']} cores"] if "cores" in device else []
        table.add_row(device["name"], ", ".join(said))
    if len(found["devices"]) == 1:
        table.add_row("GPU", "none for torch")
    table.add_row(
        "compiler",
        found["compiler"] or "no C++ compiler, or kernels disabled: decoding on a CPU is slower",
    )
    extras = ", ".join(found["missing"])
    table.add_row("missing extras", escape(f"{extras} ({install_command('NAME')})") if extras else "none")
    table.add_row("sandbox", f"tier {found['sandbox']}")
    terminal().print(table)


def _show_training(args: Sequence[str], options: argparse.Namespace) -> None:
    algorithm, arguments, given = training(list(args), "doctor train")
    with refusals():
        experiment = experiment_of(algorithm, arguments, given)
        report = examined(experiment, options.memory, options.gpu, options.ranks)
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        for device in report["devices"]:
            terminal().print(_table(device))
        print(report["verdict"])
    if not report["fits"]:
        raise SystemExit(2)


def examined(
    experiment: Experiment, memory: str | None = None, gpu: str | None = None, num_ranks: int = 1
) -> dict[str, Any]:
    """Memory plan of a training as data, without loading weights.

    Args:
        experiment: training.
        memory: memory of the device. None: that of this machine's device.
        gpu: kind of GPU. None: this machine's device.
        num_ranks: number of processes, each with its own device.
    """
    import torch

    from ...algorithms.memory import devices, fitting

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
    algorithm = experiment.make_algorithm()
    task = replace(experiment.task(), num_ranks=num_ranks)
    places = experiment.team_model.devices(len(task.agents))
    model = replace(experiment.team_model, device=",".join(_place(place, asked is not None) for place in places))
    problem = ""
    try:
        fit = fitting.check_fit(algorithm, model, task, capacity)
        plans = dict(fit.plans)
        chosen = [f"on each of {num_ranks} ranks"] if num_ranks > 1 else []
        chosen += [f"recompute activations: {'yes' if fit.recomputes else 'no'}"]
        chosen += [f"tokens per pass: {fit.max_tokens}"] if fit.max_tokens else []
        chosen += [f"keys and values: {fit.kv_memory:.1f} GiB per model"] if fit.kv_memory else []
        chosen += [f"longest row (estimated): {task.row_length(model)} tokens"]
        verdict = f"it fits ({', '.join(chosen)})"
    except fitting.NoRoom as error:
        plans = fitting.tightest(algorithm, model, task)
        problem = verdict = str(error)
    return {
        "fits": not problem,
        "verdict": verdict,
        "devices": [_told(name, found, capacity(name)) for name, found in plans.items()],
    }


def _place(device: str, is_asked: bool) -> str:
    from ...algorithms.memory.fitting import canonical

    return "cuda:0" if is_asked and device in ("auto", "cuda") else device if is_asked else canonical(device)


def _told(name: str, found: MemoryPlan, capacity: int) -> dict[str, Any]:
    phases = []
    for phase in found.phases:
        parts = {each.name: getattr(phase, each.name) for each in fields(phase)}
        phases.append({**parts, "total": phase.total})
    return {"device": name, "memory": capacity, "peak": found.peak.name, "phases": phases}


def _table(device: dict[str, Any]) -> Table:
    columns = [name for name in device["phases"][0] if name != "name"]
    table = Table(
        "GiB",
        *(Column(name, justify="right", no_wrap=True) for name in columns),
        title=f"{device['device']}: {_gib(device['memory'])} GiB usable",
        box=SIMPLE_HEAD,  # narrow enough for a terminal of 80 columns
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    for phase in device["phases"]:
        table.add_row(phase["name"], *(_gib(phase[name]) for name in columns))
    return table


def _gib(amount: int) -> str:
    return f"{amount / 2**30:.1f}"
