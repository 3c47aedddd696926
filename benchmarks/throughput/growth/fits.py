"""What fits where, by the memory plan: tables by model, weights and critic for GPUs of two sizes, and by ranks.

    python -m collm.benchmarks.throughput.growth.fits

No weight is loaded. docs/gpu.md shows the first table, docs/scale.md the second.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Literal

from ....agents.config import ModelConfig
from ....algorithms.config import MAACConfig
from ....algorithms.memory.devices import GIB, gpu_memory, usable
from ....algorithms.memory.fitting import Task, fit, tightest
from ....algorithms.memory.plan import Offload
from ....algorithms.registry import algorithm_spec
from ...markdown import markdown_table

MODELS = ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-1.7B", "Qwen/Qwen3-4B", "Qwen/Qwen3-8B")
WEIGHTS: tuple[Literal["own", "shared", "adapters"], ...] = ("own", "shared", "adapters")
CRITICS = ("actor", "small")
GPUS = ("h100", "h200")
OFFLOADS: tuple[Offload, ...] = ("none", "moments", "learner")
NEW_TOKENS = 224
TASK = Task(agents=("writer_0", "writer_1"), prompt_letters=768, max_turns=4)
"""Two agents and rows of 2,048 tokens, of which 896 are sampled."""
NUM_ENVS = 64
RANKS = (1, 2, 4, 8, 16)


def table() -> str:
    """The table in Markdown: the peak of a MAAC update in GiB, and what it takes to fit."""
    header = ("model", "weights", "critic", *(f"{gpu.upper()}, {gpu_memory(gpu) / GIB:.0f} GiB" for gpu in GPUS))
    rows = [
        (model.removeprefix("Qwen/"), weights, critic, *(cell(model, weights, critic, gpu) for gpu in GPUS))
        for model, weights, critic in product(MODELS, WEIGHTS, CRITICS)
    ]
    return markdown_table(header, rows)


def cell(model: str, weights: Literal["own", "shared", "adapters"], critic: str, gpu: str) -> str:
    """Peak and settings of the first way to fit; "no" where there is none."""
    named = ModelConfig(
        model=model, weights=weights, compute_dtype="bfloat16", max_new_tokens=NEW_TOKENS, device="cuda:0"
    )
    config = MAACConfig(critic_model_name_or_path=critic, rollout_buffer_size=NUM_ENVS, num_envs=NUM_ENVS)
    for offload in OFFLOADS:
        algorithm = algorithm_spec("maac").make(replace(config, offload=offload))
        found = fit(algorithm, named, TASK, lambda _: usable(gpu_memory(gpu)))
        if found is not None:
            (planned,) = found.plans.values()
            said = [f"{planned.peak.total / GIB:.0f}"]
            said += ["recomputes"] if found.recomputes else []
            said += [f"{found.kv_memory:.0f} GiB of keys and values per model"] if found.kv_memory else []
            said += [f"--offload {offload}"] if offload != "none" else []
            return ", ".join(said)
    return "no"


def shared_table(gpu: str = "h100") -> str:
    """The same training on ranks with `fsdp`, in Markdown: GiB per rank that an update keeps, and the peak."""
    header = ("model", *(f"{ranks} rank{'s' if ranks > 1 else ''}" for ranks in RANKS))
    rows = [(model.removeprefix("Qwen/"), *(shared_cell(model, ranks, gpu) for ranks in RANKS)) for model in MODELS]
    return markdown_table(header, rows)


def shared_cell(model: str, num_ranks: int, gpu: str) -> str:
    """Weights, moments and gradient of an actor's update on each rank, and the plan's peak, if it fits."""
    named = ModelConfig(model=model, compute_dtype="bfloat16", max_new_tokens=NEW_TOKENS, device="cuda:0")
    config = MAACConfig(critic_model_name_or_path="actor", rollout_buffer_size=NUM_ENVS, num_envs=NUM_ENVS, fsdp=True)
    algorithm = algorithm_spec("maac").make(config)
    task = replace(TASK, num_ranks=num_ranks)
    found = fit(algorithm, named, task, lambda _: usable(gpu_memory(gpu)))
    (planned,) = (tightest(algorithm, named, task) if found is None else found.plans).values()
    update = next(phase for phase in planned.phases if phase.name.startswith("update"))
    kept = f"{(update.weights + update.moments + update.gradients) / GIB:.0f}"
    if found is None:
        return f"{kept}, does not fit"
    return f"{kept}, peak {planned.peak.total / GIB:.0f}{', recomputes' if found.recomputes else ''}"


if __name__ == "__main__":
    print(table())
    print()
    print(shared_table())
