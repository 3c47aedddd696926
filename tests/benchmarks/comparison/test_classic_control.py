"""The same trainer on what everybody knows: quick looks at the parts, and the marks it must reach, in minutes."""

import json
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

from collm.agents.core import Request
from collm.agents.numeric.policy import NumericPolicy
from collm.benchmarks.cli import main
from collm.benchmarks.comparison import classic_control
from collm.benchmarks.comparison.classic_control import EXPERIMENTS

ADAM = ("beta1", "beta2", "epsilon")
MARKS = {"cartpole": 475.0, "acrobot": -110.0, "pendulum": -200.0, "pendulum-squashed": -200.0}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_is_one_that_can_run(name):
    if name.startswith("spread"):
        pytest.importorskip("mpe2")
    EXPERIMENTS[name].check()


def test_a_run_is_written_down_and_drawn(tmp_path, monkeypatch, capsys):
    for name in ("cartpole", "pendulum"):
        config = replace(EXPERIMENTS[name].config, num_updates=2, num_envs=2, turns_per_update=210)
        monkeypatch.setitem(EXPERIMENTS, name, replace(EXPERIMENTS[name], config=config))
    monkeypatch.setattr(classic_control, "NUM_EVALUATION_EPISODES", 2)
    call = ["benchmark", "classic-control"]
    assert main([*call, "run", "cartpole", "pendulum", "--seeds", "0", "--out", str(tmp_path)]) == 0
    assert "pendulum, seed 0: return untrained -" in capsys.readouterr().out
    result = json.loads((tmp_path / "pendulum-0.json").read_text())
    assert result["environment_steps"] == 2 * 2 * 210
    assert len(result["curve"]) == 2 and result["greedy"]["low"] <= result["greedy"]["mean"]
    assert main([*call, "table", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[2].startswith("| cartpole | 840 |")
    assert main([*call, "plot", "--out", str(tmp_path)]) == 0
    assert all((tmp_path / f"{name}.png").stat().st_size > 5_000 for name in ("learning_curves", "pendulum"))


def test_the_shipped_pendulum_policy_swings_up(root):
    folder = root / "benchmarks" / "results" / "classic_control" / "policies" / "pendulum" / "agent_0"
    policy = NumericPolicy.load(folder)
    env = gymnasium.make("Pendulum-v1")
    returns = []
    for seed in range(5):
        observation, _ = env.reset(seed=seed)
        total, is_truncated = 0.0, False
        while not is_truncated:
            (answer,) = policy.act([Request("agent_0", observation, (seed,))], greedy=True)
            observation, reward, _, is_truncated, _ = env.step(answer.action)
            total += float(reward)
        returns.append(total)
    env.close()
    assert np.mean(returns) > -300


def has_reached(result):
    """True if a return is at its mark, or above the interval of the untrained team."""
    if result["name"] in MARKS:
        return result["greedy"]["mean"] >= MARKS[result["name"]]
    return result["sampled"]["low"] > result["untrained"]["high"]


def test_every_committed_seed_reached_its_mark_with_today_s_settings(root):
    results = classic_control.read_results(root / "benchmarks" / "results" / "classic_control")
    assert {result["name"] for result in results} == set(EXPERIMENTS)
    for result in results:
        assert has_reached(result), (result["name"], result["seed"])
        experiment, recorded = EXPERIMENTS[result["name"]], result["experiment"]
        reward = experiment.config.credited_reward or "team"  # these environments declare no interests
        config = replace(experiment.config, seed=result["seed"], credited_reward=reward)
        today = replace(experiment, config=config).to_json()
        today = json.loads(json.dumps(today))
        adam = {f"adam_{name}": value for name, value in zip(ADAM, today["config"]["adam"], strict=True)}
        gaussian = today["network"]["gaussian"]
        is_gaussian = {"is_squashed": gaussian == "squashed", "has_state_std": gaussian == "state"}
        for part, earlier in {"config": adam, "network": is_gaussian}.items():  # names that recorded runs have
            for name, value in {**today[part], **earlier}.items():
                if name in recorded.get(part, {}):
                    assert recorded[part][name] == value, (result["name"], name)
        for name in ("algorithm", "env", "env_kwargs"):
            assert recorded[name] == today[name], (result["name"], name)


def test_simple_spread_is_as_good_as_epymarl_in_either_unit(root):
    folder = root / "benchmarks" / "results" / "classic_control"
    published = classic_control.published_spread(folder)
    for result in classic_control.read_results(folder):
        if result["name"].startswith("spread"):
            theirs = np.interp(result["environment_steps"], list(published), list(published.values()))
            assert result["sampled"]["mean"] > theirs, (result["name"], result["seed"], theirs)
    for point in json.loads((folder / "epymarl.json").read_text())["curve"]:
        again = classic_control.spread_return_as_published(published[point["environment_steps"]])
        assert again == pytest.approx(point["sampled"] / 3)


def rewards_of_the_first_particle_world(world):
    """What openai/multiagent-particle-envs pays all agents of simple_spread for a step."""
    places = [agent.state.p_pos for agent in world.agents]
    missed = sum(min(np.linalg.norm(place - mark.state.p_pos) for place in places) for mark in world.landmarks)
    # Each agent is among those that it is compared with, so it always counts one collision: with itself.
    touching = [sum(np.linalg.norm(own - other) < 0.3 for other in places) for own in places]
    return sum(-missed - collisions for collisions in touching)


@pytest.mark.parametrize("seed", range(3))
def test_a_return_in_the_units_of_epymarl_is_what_the_first_particle_world_pays(seed):
    simple_spread = pytest.importorskip("mpe2.simple_spread_v3")
    env = simple_spread.parallel_env()
    env.reset(seed=seed)
    rng = np.random.default_rng(seed)
    ours = theirs = 0.0
    while env.agents:
        _, rewards, *_ = env.step({agent: int(rng.integers(5)) for agent in env.agents})
        ours += np.mean(list(rewards.values()))
        theirs += rewards_of_the_first_particle_world(env.unwrapped.world)
    env.close()
    assert classic_control.spread_return_as_published(ours) == pytest.approx(theirs)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MARKS, "spread-ippo", "spread-mappo"])
def test_the_trainer_reaches_the_mark(name, tmp_path):
    if name.startswith("spread"):
        pytest.importorskip("mpe2")
    assert has_reached(classic_control.run_seed(name, 0, tmp_path))
