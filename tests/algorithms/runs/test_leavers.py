"""Training with agents that leave early: they act and earn no more, and a run resumes in the middle of episodes."""

import pytest
import torch
from killed import changed, kill_after, traces
from leaving_worlds import SpokenHouse
from safetensors.torch import load_file

from collm.agents.config import ModelConfig
from collm.algorithms.registry import algorithm_spec
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.algorithms.runs.loggers import read_lines
from collm.algorithms.runs.run import run_experiment
from collm.envs import register

UPDATES = 3
SMALL = {"num_updates": UPDATES, "rollout_buffer_size": 8, "eval_num_samples": 2, "save_interval": 1}
SMALL |= {"agent_learning_rate": 2e-3}
ACTOR_CRITIC = {"critic_warmup": 0, "critic_batch_size": 8, "critic_steps": 2}
EPOCHS = {"ppo_epochs": 2, "clip_range": 0.2, "mini_batch_size": 16}
CASES = {
    "magrpo": ("magrpo", {"num_generations": 4}, "rebuilt"),
    "magrpo kept": ("magrpo", {"num_generations": 4, **EPOCHS}, "kept"),
    "maac": ("maac", ACTOR_CRITIC, "rebuilt"),
    "maac turns": ("maac", {**ACTOR_CRITIC, "turns_per_update": 3, "num_envs": 6}, "kept"),
}
"""Algorithm, settings, and kind of world. In the last case, checkpoints are in the middle of episodes."""


@pytest.fixture
def experiment(clean_registry, request):
    register("test/SpokenHouse-v0", SpokenHouse)
    algorithm, settings, world = CASES[request.param]
    return Experiment(
        algorithm=algorithm,
        config=algorithm_spec(algorithm).config(**{**SMALL, **settings}),
        env="test/SpokenHouse-v0",
        env_kwargs={"world": world},
        model=ModelConfig(max_new_tokens=6, device="cpu"),
    )


def weights(directory):
    return {
        f"{path.relative_to(directory)} {name}": weight
        for path in sorted(directory.rglob("*.safetensors"))
        for name, weight in load_file(path).items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("experiment", [name for name in CASES if "turns" not in name], indirect=True)
def test_who_left_is_asked_and_paid_no_more(experiment, tmp_path):
    run_experiment(experiment, tmp_path)
    env = SpokenHouse(**experiment.env_kwargs)
    rows = list(read_lines(tmp_path / "episodes.jsonl"))
    assert len(rows) == UPDATES * 8
    num_uneven = 0
    for row in rows:
        turns = {agent: list(own["turns"]) for agent, own in row["agents"].items()}
        num_uneven += len({len(own) for own in turns.values()}) > 1
        env.reset(seed=row["seed"])
        while env.agents:
            playing = {agent: turns[agent].pop(0) for agent in env.agents}
            rewards = env.step({agent: turn["wrote"] for agent, turn in playing.items()})[1]
            assert rewards == pytest.approx({agent: turn["reward"] for agent, turn in playing.items()}, abs=1e-6)
        assert not any(turns.values())
    assert num_uneven > len(rows) / 3


@pytest.mark.slow
@pytest.mark.parametrize("experiment", CASES, indirect=True)
def test_a_run_with_leavers_teaches_everybody_and_resumes_to_the_same_bytes(experiment, tmp_path):
    run_experiment(experiment, tmp_path / "whole")
    expected = weights(tmp_path / "whole")
    run_experiment(changed(experiment, num_updates=1), tmp_path / "one")
    for name, weight in weights(tmp_path / "one" / "agents").items():
        later = expected[f"agents/{name}"]
        assert torch.isfinite(later).all()
        assert "norm" in name or not torch.equal(weight, later), f"{name} learned nothing"
    kill_after(2, experiment, tmp_path / "resumed")
    run_experiment(experiment, tmp_path / "resumed", resume=True)
    found = weights(tmp_path / "resumed")
    assert found.keys() == expected.keys() and len(found) > 3
    assert [name for name in found if not torch.equal(found[name], expected[name])] == []
    assert traces(tmp_path / "resumed") == traces(tmp_path / "whole")
