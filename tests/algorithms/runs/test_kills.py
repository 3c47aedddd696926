"""Runs that are killed repeatedly at random moments end with the files of an undisturbed run."""

import json
import random
from collections import Counter

import pytest
from killed import FAILED, FINISHED, Kill, cpu_seconds, life, remains

from collm.agents.config import ModelConfig
from collm.agents.numeric.config import NetworkConfig
from collm.algorithms.registry import algorithm_spec
from collm.algorithms.runs.assembly.experiment import Experiment

NUM_KILLS = 20
KILLS_PER_RUN = 5
WRITING, BUILDING = "collm/MiniWriting-v2", "collm/MiniBuild-v0"
SMALL = {"num_updates": 4, "rollout_buffer_size": 4, "eval_interval": 2, "eval_num_samples": 1, "save_interval": 1}
ACTOR_CRITIC = {"critic_warmup": 1, "critic_batch_size": 4, "critic_steps": 1}
WORKERS = {"num_workers": 2, "num_envs": 4, "deterministic": True}  # else batches depend on timing
EPOCHS = {"num_generations": 2, "reference_kl_coef": 0.1, "ppo_epochs": 2, "clip_range": 0.2, "mini_batch_size": 2}
CARTPOLE = {**ACTOR_CRITIC, "turns_per_update": 12, "num_envs": 3, "mini_batch_size": 16}
SPREAD = {**ACTOR_CRITIC, "turns_per_update": 10, "num_envs": 3}
RUNS = {
    "iac": ("iac", WRITING, ACTOR_CRITIC, {}, {}),
    "iac-heads": ("iac", WRITING, {**ACTOR_CRITIC, "use_separate_critic": False}, {}, {}),
    "maac-turns": ("maac", BUILDING, {**ACTOR_CRITIC, "learning_rate_schedule": "cosine"}, {}, {}),
    "maac-bfloat16": ("maac", WRITING, ACTOR_CRITIC, {"weights": "shared", "compute_dtype": "bfloat16"}, {}),
    "magrpo-adapters": ("magrpo", WRITING, EPOCHS, {"weights": "adapters", "lora_rank": 4}, {}),
    "mappo-segments": ("mappo", BUILDING, {**ACTOR_CRITIC, "turns_per_update": 2, "num_envs": 3}, {}, {}),
    "mappo-workers": ("mappo", WRITING, {**ACTOR_CRITIC, **WORKERS}, {}, {}),
    "ippo-cartpole": ("ippo", "gymnasium/CartPole-v1", CARTPOLE, {}, {"normalizes_observations": True}),
    "mappo-spread": ("mappo", "mpe2.simple_spread_v3:parallel_env", SPREAD, {"weights": "shared"}, {}),
}
"""Algorithm, environment, and settings of training, of language models and of perceptrons."""


def experiment(name):
    algorithm, env, config, model, network = RUNS[name]
    return Experiment(
        algorithm=algorithm,
        config=algorithm_spec(algorithm).config(**{**SMALL, **config}),
        env=env,
        model=ModelConfig(max_new_tokens=6, device="cpu", **model),
        network=NetworkConfig(hidden_dims=(8,), **network),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_is_killed_again_and_again_ends_as_if_left_in_peace(tmp_path, name):
    chosen = experiment(name)
    sinks = ("tensorboard",) if name == "maac-bfloat16" else ()
    rng = random.Random(name)
    before = cpu_seconds()
    assert life(chosen, tmp_path / "peace", None, rng, sinks) == FINISHED
    expected = remains(tmp_path / "peace")
    facts = json.loads((tmp_path / "peace.facts").read_text())
    kills, num_runs, num_kept, moments = 0, 0, 0, Counter()
    while kills < NUM_KILLS:
        directory = tmp_path / f"war{num_runs}"
        num_runs += 1
        struck = 0
        code = None
        while code != FINISHED:
            kill = Kill.drawn(rng, facts["seen"], facts["seconds"]) if struck < KILLS_PER_RUN else None
            code = life(chosen, directory, kill, rng, sinks)
            where = f"{name}, run {num_runs}, after {moments}, at {kill}"
            assert code != FAILED, f"an error: {where}"
            if code != FINISHED:
                struck += 1
                moments[f"{kill.moment} {kill.signal.name}{' group' if kill.is_group else ''}"] += 1
                kept = whole_episodes(directory)
                assert expected["episodes"].startswith(kept), f"an episode is lost or another one: {where}"
                num_kept += kept.count("\n")
        kills += struck
        found = remains(directory)
        for part in expected:
            assert found[part] == expected[part], f"{part} differs: {where}"
    print(
        f"\n| {name} | {kills} kills | {num_runs} of {num_runs} runs identical | 0 dead ends | 0 of {num_kept} "
        f"recorded episodes lost | {(cpu_seconds() - before) / 60:.2f} CPU minutes | {dict(sorted(moments.items()))} |"
    )


def whole_episodes(directory):
    """Lines of episodes.jsonl that a killed process left; the last may be cut off."""
    file = directory / "episodes.jsonl"
    text = file.read_bytes() if file.exists() else b""
    return text[: text.rfind(b"\n") + 1].decode()
