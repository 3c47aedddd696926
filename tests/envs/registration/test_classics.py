"""Environments of lbforaging, rware and MiniGrid pass the checks and train."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fences import fenced

from collm.algorithms import IPPOConfig, MAPPOConfig
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.algorithms.runs.run import run_experiment
from collm.benchmarks.cli import main
from collm.benchmarks.comparison.suite import jobs, read_suite
from collm.envs import make
from collm.envs.checks.play import difference
from collm.envs.views import TupleTeam

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # warnings of others' making
PAGES = Path(__file__).resolve().parents[3] / "docs" / "use_with"
(BLOCK,) = fenced((PAGES / "classics.md").read_text(), "console")
GAMES = {
    "gymnasium/lbforaging:Foraging-8x8-2p-2f-v3": ("lbforaging", 2, {}),
    "gymnasium/lbforaging:Foraging-10x10-3p-3f-v3": ("lbforaging", 3, {}),
    "gymnasium/rware:rware-tiny-2ag-v2": ("rware", 2, {}),
    "gymnasium/minigrid:MiniGrid-Empty-5x5-v0": ("minigrid", 1, {"observed": "image"}),
}


@pytest.mark.parametrize("id", GAMES)
def test_a_classic_plays_and_trains_as_a_team_and_an_episode_follows_from_its_seed(id):
    package, num_agents, kwargs = GAMES[id]
    pytest.importorskip(package)
    env = make(id, **kwargs)
    assert len(env.possible_agents) == num_agents and isinstance(env, TupleTeam) == (num_agents > 1)
    first, second = (env.reset(seed=seed)[0] for seed in range(2))
    assert first.keys() == second.keys() == set(env.agents)
    config = MAPPOConfig(num_updates=1, num_envs=2, turns_per_update=20, critic_warmup=0)
    _, metrics = Experiment(algorithm="mappo", config=config, env=id, env_kwargs=kwargs).make_trainer().step()
    assert metrics["environment_steps"] == 40 and np.isfinite(metrics["policy_loss"])
    used = make(id, **kwargs)
    for seed in range(20):
        played(used, 100 + seed)  # and left in the middle
        assert difference(played(used, seed), played(make(id, **kwargs), seed)) is None, seed


@pytest.mark.parametrize("id", GAMES)
def test_a_training_on_a_classic_goes_on_where_it_was_stopped(id, tmp_path):
    package, _, kwargs = GAMES[id]
    pytest.importorskip(package)
    # 70 turns end in the middle of episodes, which the resumed run plays again from their seeds.
    config = IPPOConfig(num_updates=2, num_envs=4, turns_per_update=70, critic_warmup=0, save_interval=1)
    config = replace(config, eval_num_samples=2)
    experiment = Experiment(algorithm="ippo", config=config, env=id, env_kwargs=kwargs)
    run_experiment(experiment, tmp_path / "whole")
    stopped = replace(experiment, config=replace(config, num_updates=1))
    run_experiment(stopped, tmp_path / "run")
    run_experiment(experiment, tmp_path / "run", resume=True)
    whole, run = (json.loads(last(tmp_path / name / "metrics.jsonl")) for name in ("whole", "run"))
    assert whole["policy_loss"] == run["policy_loss"] and whole.get("return") == run.get("return")


@pytest.mark.parametrize("command", BLOCK.splitlines())
def test_a_suite_that_the_page_shows_runs_with_a_small_budget(command, tmp_path):
    for package in ("lbforaging", "rware", "minigrid"):
        pytest.importorskip(package)
    _, *call = shlex.split(command)
    small = "--seeds 0 --workers 1 --environment-steps 40 --config num_envs=2 turns_per_update=20 eval_num_samples=1"
    assert main([*call, *small.split(), "--out", str(tmp_path)]) == 0
    suite = read_suite(PAGES.parents[1] / "benchmarks" / "suites" / f"{call[-1]}.toml")
    assert len([*tmp_path.glob("runs/*/*/seed-0/finished.json")]) == len(jobs(replace(suite, seeds=(0,))))


def played(env, seed, num_turns=30):
    rng = np.random.default_rng(seed)
    observations, _ = env.reset(seed=seed)
    course = [observations]
    while env.agents and len(course) <= num_turns:
        actions = {agent: rng.integers(env.action_space(agent).n) for agent in env.agents}
        course.append(env.step(actions)[:4])
    return course


def last(file):
    return file.read_text().splitlines()[-1]
