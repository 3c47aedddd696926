"""Planned and measured peak memory (resident set) of a training run on the CPU, in a separate process."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SIZES: dict[str, dict[str, Any]] = {  # shapes of Qwen3 with a vocabulary of 32,000, by approximate number of weights
    "50M": {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 11},
    "80M": {"hidden_size": 640, "intermediate_size": 1920, "num_hidden_layers": 12},
    "120M": {"hidden_size": 768, "intermediate_size": 2304, "num_hidden_layers": 14},
}


def measured(size: str, settings: Sequence[str] = ()) -> dict[str, Any]:
    """Plan and measure a training run. Returns the number of weights, planned bytes by phase, and both peaks in bytes.

    Args:
        size: key of `SIZES`.
        settings: "own" for a model per agent, "critics" for a critic per agent; otherwise shared and joint.
    """
    command = [sys.executable, __file__, size, *settings]
    # malloc returns freed memory at once, so that the resident set is the memory in use.
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
    from collm.algorithms.config import IACConfig, MAACConfig
    from collm.algorithms.memory.fitting import members_of, work_of
    from collm.algorithms.memory.plan import plan
    from collm.algorithms.runs.assembly.experiment import Experiment

    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "tie_word_embeddings": True}
        config = Qwen3Config(vocab_size=32_000, max_position_embeddings=4096, **heads, **SIZES[size])
        Qwen3ForCausalLM(config).save_pretrained(folder)
        AutoTokenizer.from_pretrained(TINY_DIRECTORY, trust_remote_code=False).save_pretrained(folder)
        # The peaks of two models that learn concurrently coincide only if an update has several passes.
        episodes, weights = (16, "own") if "own" in settings else (4, "shared")
        sizes = {"rollout_buffer_size": episodes, "max_batch_tokens": 256, "critic_warmup": 0, "critic_steps": 1}
        algorithm, kind = ("iac", IACConfig) if "critics" in settings else ("maac", MAACConfig)
        experiment = Experiment(
            algorithm=algorithm,
            config=kind(critic_model_name_or_path="actor", **sizes),
            env="collm/MiniWriting-v2",
            model=ModelConfig(model=folder, weights=weights, max_new_tokens=24, device="cpu"),
        )
        task = experiment.task()
        algorithm = experiment.make_algorithm()
        team = members_of(algorithm, experiment.model, task)
        planned = plan(team["cpu"], work_of(algorithm, experiment.model, task, team, "cpu", False, 1))
        before = _resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM, the peak
        trainer = experiment.make_trainer()
        for _ in range(2):  # optimizer moments exist from the second update on
            trainer.step()
    return {
        "weights": team["cpu"][0].shape.num_weights,
        "planned": {phase.name: phase.total for phase in planned.phases},
        "planned_peak": planned.peak.total,
        "measured_peak": _resident("VmHWM") - before,
    }


def _resident(field: str) -> int:
    """Return a field of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1], sys.argv[2:])))
