"""The memory plan beside what a training really takes of the CPU's memory: one process per model, peaks by phase.

Models have random weights; each plays and learns one update with a critic of its own size, in a process of its own.
Memory is the process's resident set (Linux): its peak in each phase, less what Python and its libraries take before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SIZES: dict[str, dict[str, Any]] = {
    "50M": {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 11},
    "80M": {"hidden_size": 640, "intermediate_size": 1920, "num_hidden_layers": 12},
    "120M": {"hidden_size": 768, "intermediate_size": 2304, "num_hidden_layers": 14},
}
"""Qwen3 shapes with a vocabulary of 32,000, in millions of weights, about."""
VOCABULARY = 32_000


def measured(size: str, settings: Sequence[str] = ()) -> dict[str, Any]:
    """Plan and peak of one training, measured in a process of its own.

    Args:
        size: key of `SIZES`.
        settings: "adapters", "bfloat16", "recompute", "own" (a model per agent, which learn side by side where there
            are cores), "critics" (a critic per agent, likewise, in place of a joint one), or none.

    Returns:
        Bytes by phase, planned and measured.

    Raises:
        RuntimeError: if the process fails, with what it said.
    """
    command = [sys.executable, __file__, size, *settings]
    # Freed memory goes back at once, so that the resident set is what is in use.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the measurement of {size} failed: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _measure(size: str, settings: Sequence[str]) -> dict[str, Any]:
    import torch
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    from collm.agents.config import ModelConfig
    from collm.agents.tiny import TINY_DIRECTORY
    from collm.algorithms.config import ActorCriticConfig, IACConfig, MAACConfig
    from collm.algorithms.memory.fitting import members_of, work_of
    from collm.algorithms.memory.plan import plan
    from collm.algorithms.runs.assembly.experiment import Experiment

    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        config = Qwen3Config(
            vocab_size=VOCABULARY,
            num_attention_heads=8,
            num_key_value_heads=4,
            head_dim=64,
            tie_word_embeddings=True,
            max_position_embeddings=4096,
            **SIZES[size],
        )
        Qwen3ForCausalLM(config).save_pretrained(folder)
        AutoTokenizer.from_pretrained(TINY_DIRECTORY, trust_remote_code=False).save_pretrained(folder)
        recomputes = "recompute" in settings
        settings_of: type[ActorCriticConfig]
        algorithm_name, settings_of = ("iac", IACConfig) if "critics" in settings else ("maac", MAACConfig)
        experiment = Experiment(
            algorithm=algorithm_name,
            config=settings_of(
                critic_model_name_or_path="actor",
                # Of two models that learn side by side the peaks meet where an update has several passes.
                rollout_buffer_size=16 if "own" in settings else 4,
                critic_warmup=0,
                max_batch_tokens=256,
                critic_steps=1,
            ),
            env="collm/MiniWriting-v2",
            model=ModelConfig(
                model=folder,
                weights=next((each for each in ("adapters", "own") if each in settings), "shared"),
                compute_dtype="bfloat16" if "bfloat16" in settings else "float32",
                recomputes_activations=recomputes,
                max_new_tokens=24,
                device="cpu",
            ),
        )
        task = experiment.task()
        algorithm = experiment.make_algorithm()
        team = members_of(algorithm, experiment.model, task)
        members = team["cpu"]
        planned = plan(members, work_of(algorithm, experiment.model, task, team, "cpu", recomputes, 1))
        peaks: dict[str, int] = {}
        before = _resident("VmRSS")

        def watched(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
            def run(*args: Any, **kwargs: Any) -> Any:
                with _peak(name, before, peaks):
                    return call(*args, **kwargs)

            return run

        with _peak("loading", before, peaks):
            trainer = experiment.make_trainer()
        trainer.source.next = watched("decoding", trainer.source.next)
        for learner in trainer.unique_learners:
            learner._update = watched("update", learner._update)
        for critic in trainer.unique_critics:
            critic._update = watched("critic", critic._update)
        for _ in range(2):  # moments are there from the second on
            _, metrics = trainer.step()
    totals = {phase.name: phase.total for phase in planned.phases}
    return {
        "size": size,
        "settings": list(settings),
        "weights": members[0].shape.num_weights,
        "tokens": metrics["sampled_tokens"],
        "planned": totals,
        "measured": peaks,
        "planned_peak": planned.peak.total,
        "measured_peak": max(peaks.values()),
    }


@contextmanager
def _peak(name: str, before: int, peaks: dict[str, int]) -> Iterator[None]:
    """Note the highest resident set inside the block, above what it was at first."""
    Path("/proc/self/clear_refs").write_text("5")
    try:
        yield
    finally:
        peaks[name] = max(peaks.get(name, 0), _resident("VmHWM") - before)


def _resident(field: str) -> int:
    """Bytes of a field of /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1], sys.argv[2:])))
