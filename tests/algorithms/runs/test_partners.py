"""Partners that do not learn, and defaults that depend on the environment or the models."""

import pickle
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from transformers import AutoTokenizer

import collm
from collm.agents.config import ModelConfig
from collm.agents.tiny import TINY_DIRECTORY
from collm.algorithms import IAC
from collm.algorithms.config import IACConfig
from collm.algorithms.runs.api import train
from collm.algorithms.runs.assembly import experiment as experiments
from collm.algorithms.runs.assembly.experiment import Experiment, with_partners
from collm.algorithms.runs.run import default_rates, long_warmup
from collm.envs import ProcessVector, SyncVector

BUILD = Experiment(algorithm="iac", config=IACConfig(), env="collm/MiniBuild-v0")


def test_partners_are_scripted_or_frozen_also_in_the_python_call(monkeypatch):
    model = ModelConfig(model="a,b")
    mixed = with_partners(replace(BUILD, model=model), {"builder_1": "some/model"})
    assert mixed.model.model == "a,some/model" and mixed.config.agent_learning_rates == {"builder_1": 0.0}
    scripted = with_partners(replace(BUILD, model=model), {"builder_0": "empty"})
    assert scripted.env_kwargs["partners"] == {"builder_0": "empty"} and scripted.model.model == "b"
    assert scripted.make_env().possible_agents == ["builder_1"]
    started = []
    monkeypatch.setattr("collm.algorithms.runs.api.train_experiment", lambda *args, **options: started.append(args[0]))
    judges, prompts = ["own", "builtins:len"], {"prompt": "Build: {default}"}
    train("iac", "collm/MiniBuild-v0", partners={"builder_1": "random"}, prompts=prompts, reward_funcs=judges)
    assert started[0].env_kwargs == {"partners": {"builder_1": "random"}, "prompts": prompts, "reward_funcs": judges}


@pytest.mark.parametrize(("env", "limit"), [("MiniBuild-v0", 8), ("MiniWriting-v2", 48), ("TLDR-v2", None)])
def test_the_environment_says_how_long_replies_are_where_the_settings_do_not(env, limit):
    experiment = replace(BUILD, env=f"collm/{env}")
    assert experiment.team_model.max_new_tokens == limit
    longer = replace(experiment, model=ModelConfig(max_new_tokens=300))
    assert longer.team_model.max_new_tokens == 300


def test_every_reference_reply_fits_into_the_length_that_its_environment_declares():
    tokenizer = AutoTokenizer.from_pretrained(TINY_DIRECTORY)
    for id in ("collm/MiniBuild-v0", "collm/MiniWriting-v2", "collm/MiniCode-v1"):
        env, limit = collm.make(id), replace(BUILD, env=id).team_model.max_new_tokens
        for seed in range(5):
            env.reset(seed=seed)
            replies = {agent: env.unwrapped.reference_reply(agent) for agent in env.agents}
            assert max(len(tokenizer(reply).input_ids) for reply in replies.values()) < limit


def test_learning_rates_that_the_models_decide_are_told_and_others_not():
    def trainer(rate, named, **by_agent):
        config = IACConfig(agent_learning_rate=named, agent_learning_rates=by_agent)
        learner = SimpleNamespace(optimizer=SimpleNamespace(learning_rate=rate))
        return SimpleNamespace(config=config, learners={"fox_0": learner, "stone_0": learner})

    (line,) = default_rates(trainer(1e-6, None))
    assert line.startswith("learning rate of fox_0, stone_0: 1e-06, the default")
    assert default_rates(trainer(1e-6, 1e-6)) == default_rates(trainer(5e-4, None)) == []
    assert default_rates(trainer(1e-4, None, fox_0=1e-4))[0].startswith("learning rate of stone_0: 0.0001")


def test_a_long_default_warmup_of_the_critics_is_reported():
    def trainer(num_updates, critic_warmup=None, critics=("critic",)):
        config = IACConfig(num_updates=num_updates, critic_warmup=critic_warmup)
        return SimpleNamespace(config=config, algorithm=IAC(config), unique_critics=critics)

    assert "first 5 of 8 updates" in long_warmup(trainer(8))[0]
    assert long_warmup(trainer(21)) == long_warmup(trainer(8, 5)) == long_warmup(trainer(8, critics=())) == []


def test_copies_step_in_as_many_workers_as_are_set():
    workers = replace(BUILD, config=IACConfig(num_workers=2))
    with BUILD.make_vector("train", 3) as here, workers.make_vector("train", 3) as there:
        assert isinstance(here, SyncVector) and isinstance(there, ProcessVector)
        assert there.num_workers == 2
        assert here.reset(1, seed=4) == there.reset(1, seed=4)


def test_worker_processes_start_without_torch(monkeypatch):
    built = []
    monkeypatch.setattr(experiments, "ProcessVector", lambda build, *sizes, **options: built.append(build))
    replace(BUILD, config=IACConfig(num_workers=2)).make_vector("train", 3, has_shares=True)
    code = "import pickle, sys; pickle.load(sys.stdin.buffer)().reset(seed=0); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(*built), capture_output=True)
    assert done.stdout == b"False\n", done.stderr
