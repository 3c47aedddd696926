"""`load_team` and `Team`."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from peft import AutoPeftModelForCausalLM
from transformers import AutoModelForCausalLM

import collm
from collm._errors import UserError
from collm.agents import ModelConfig, fixed_policy
from collm.agents.language.pretrained import quiet_peft
from collm.algorithms.runs.api import untrained
from collm.envs import specs

SHIFT = "collm/MiniShift-v0"
SMALL = {"num_updates": 1, "num_generations": 2, "rollout_buffer_size": 2, "eval_num_samples": 2, "progress": False}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return collm.train("magrpo", env=SHIFT, out=tmp_path_factory.mktemp("runs") / "shift", **SMALL)


def test_a_team_is_a_mapping_of_policies(run):
    team = collm.load_team(run.directory)
    assert list(team) == ["builder_0", "builder_1"] and dict(team) == team.run.policies
    assert repr(team) == f"Team(builder_0, builder_1; {run!r})"


def test_a_team_acts_in_every_turn_of_an_episode_as_in_an_evaluation(run):
    team, env = collm.load_team(run.directory), run.experiment.make_env("test")
    (episode,) = team.evaluate(seeds=[7], greedy=True).episodes
    observations, infos = env.reset(seed=7)
    while env.agents:
        actions = team.act(observations, infos, greedy=True)
        observations, _, _, _, infos = env.step(actions)
    assert observations == episode.finals and episode.num_turns > 1


def test_samples_are_new_in_each_call_and_repeat_in_a_new_team_and_with_a_seed(run):
    observations, _ = run.experiment.make_env().reset(seed=0)
    team, again = collm.Team(run), collm.Team(run)
    samples = [team.act(observations) for _ in range(8)]
    assert samples == [again.act(observations) for _ in range(8)] and samples.count(samples[0]) < 8
    assert team.act(observations, seed=3) == again.act(observations, seed=3)
    alone = team.act({"builder_1": observations["builder_1"]}, seed=3)
    assert alone == {"builder_1": again.act(observations, seed=3)["builder_1"]}


@pytest.mark.parametrize(
    ("observations", "reason"), [(({}, {}), "observations must be a dict"), ({"fox_0": ""}, "no policy for 'fox_0'")]
)
def test_an_agent_without_a_policy_and_the_pair_of_reset_are_refused(run, observations, reason):
    with pytest.raises(UserError, match=reason):
        collm.Team(run).act(observations)


@pytest.mark.parametrize("id", [spec.id for spec in specs() if spec.id.startswith("collm/")])
def test_a_team_acts_in_every_environment_also_if_agents_wait(id, tmp_path):
    team = collm.Team(untrained(ModelConfig(max_new_tokens=2), id, tmp_path))
    env = collm.make(id)
    observations, infos = env.reset(seed=0)
    for _ in range(4):
        if env.agents:
            actions = team.act(observations, infos)
            assert list(actions) == env.movers
            observations, _, _, _, infos = env.step(actions)


def test_a_saved_team_acts_in_a_game_by_turns(tmp_path):
    out = collm.train("marloo", "collm/TinyHanabi-v0", max_new_tokens=2, out=tmp_path / "run", **SMALL).directory
    env = collm.make("collm/TinyHanabi-v0")
    observations, infos = env.reset(seed=0)
    assert list(collm.load_team(out).act(observations, infos)) == env.movers != list(observations)


def test_a_team_is_evaluated_in_another_environment(run):
    result = collm.Team(run).evaluate(collm.make(SHIFT, max_turns=2), num_episodes=3)
    assert [episode.num_turns for episode in result.episodes] == [2, 2, 2]


def test_saved_models_are_those_of_the_team_and_nothing_is_overwritten(run, tmp_path):
    team = collm.load_team(run.directory)
    folder = team.save(tmp_path / "models")
    for agent, policy in team.items():
        saved = AutoModelForCausalLM.from_pretrained(folder / agent).state_dict()
        assert all(saved[name].equal(weight) for name, weight in policy.language_model.model.state_dict().items())
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "thesis.txt").write_text("mine")
    for taken in (folder, tmp_path / "own", tmp_path / "own" / "thesis.txt"):
        with pytest.raises(UserError, match="not an empty folder"):
            team.save(taken)
    scripted = collm.Team(replace(run, policies={"builder_0": fixed_policy("wood")}))
    with pytest.raises(UserError, match="no weights"):
        scripted.save(tmp_path / "scripted")
    assert scripted.act({"builder_0": ""}) == {"builder_0": "wood"}
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["thesis.txt"]


def test_saved_adapters_are_those_of_the_team(tmp_path):
    run = collm.train("mareinforce", env=SHIFT, weights="adapters", out=tmp_path / "run", **SMALL)
    for name, team in {"trained": collm.Team(run), "loaded": collm.load_team(run.directory)}.items():
        folders = team.save(tmp_path / name) / "builder_1", run.directory / "agents" / "builder_1"
        weights = [(folder / "adapter_model.safetensors").read_bytes() for folder in folders]
        settings = [json.loads((folder / "adapter_config.json").read_text()) for folder in folders]
        assert weights[0] == weights[1]
        assert {**settings[0], "target_modules": sorted(settings[0]["target_modules"])} == settings[1]
        with quiet_peft():
            AutoPeftModelForCausalLM.from_pretrained(folders[0])
