"""Settings: each is explained, read by something, JSON, and refused where it contradicts another."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from collm._errors import UserError
from collm.agents.config import ModelConfig
from collm.agents.numeric.config import NetworkConfig
from collm.algorithms import (
    IAC,
    MAAC,
    MAGRPO,
    MAREINFORCE,
    IACConfig,
    MAACConfig,
    ReinforceConfig,
    algorithm_spec,
    algorithm_specs,
)
from collm.algorithms.published import PublishedConfig
from collm.algorithms.runs.assembly.experiment import Experiment

NAMES = [spec.name for spec in algorithm_specs()]
CONFIGS = sorted({spec.config for spec in algorithm_specs()} | {PublishedConfig, ModelConfig, NetworkConfig}, key=str)


def test_every_setting_of_training_is_read_somewhere(root):
    code = "\n".join(file.read_text() for file in (root / "algorithms").rglob("*.py") if file.name != "config.py")
    names = {field.name for config in CONFIGS[:-2] for field in dataclasses.fields(config)}
    names -= {field.name for config in (ModelConfig, NetworkConfig) for field in dataclasses.fields(config)}
    unread = [name for name in sorted(names) if not re.search(rf"(config|self\.config)\.{name}\b", code)]
    assert unread == []


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_survives_the_way_through_json(name):
    parts = {"model": ModelConfig(temperature=0.5), "network": NetworkConfig(hidden_dims=(8, 9))}
    config = {"seed": 3, "agent_learning_rates": {"writer_0": 1e-4}}
    made = experiment(name, config=config, env_kwargs={"split": "test"}, **parts)
    assert Experiment.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_an_unknown_stored_setting_is_refused():
    saved = experiment("maac").to_json()
    saved["config"]["num_env_hosts"] = 3
    with pytest.raises(UserError, match=r"num_env_hosts=3.*MAACConfig"):
        Experiment.from_json(saved)


def test_the_published_settings_are_those_of_the_paper():
    for name, has_separate_critic in (("collm-cc", None), ("collm-dc", True)):
        spec = algorithm_spec(name)
        config = spec.config()
        spec.make(config)
        assert (config.estimator, config.critic_target) == ("td", "td")
        assert (config.agent_learning_rate, config.critic_learning_rate) == (5e-6, 5e-6)
        assert (config.value_loss_coef, config.discount, config.ppo_epochs, config.clip_range) == (0.6, 1.0, 1, None)
        assert getattr(config, "use_separate_critic", None) == has_separate_critic


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: MAGRPO(ReinforceConfig(num_generations=1)), "num_generations=1"),
        (lambda: MAREINFORCE(ReinforceConfig(num_generations=1, divide_by_std=True)), "num_generations=1"),
        (lambda: MAGRPO(ReinforceConfig(num_generations=3)), "cannot be split into groups"),
        (lambda: MAGRPO(ReinforceConfig(turns_per_update=5)), "turns_per_update=5"),
        (lambda: MAGRPO(ReinforceConfig(num_generations=1, joint_mode="cross")), "joint_mode='cross'"),
        (lambda: IAC(IACConfig(ppo_epochs=2)), "set clip_range"),
        (lambda: MAGRPO(ReinforceConfig(clip_range_high=0.3)), "clip_range_high=0.3"),
        (lambda: MAAC(MAACConfig(critic_input="all")), "critic_input must be one of"),
        (lambda: IAC(IACConfig(use_separate_critic=False, critic_type="q")), "use_separate_critic=True"),
        (lambda: MAAC(MAACConfig(critic_warmup=100)), "critic_warmup=100"),
        (lambda: MAAC(MAACConfig(max_environment_steps=160)), "critic_warmup=5 updates use up max_environment_steps"),
        (lambda: IAC(IACConfig(max_sampled_tokens=160)), "updates use up max_sampled_tokens=160"),
        (lambda: MAAC(MAACConfig(turns_per_update=4, max_environment_steps=20)), "use up max_environment_steps=20"),
        (lambda: MAAC(MAACConfig(agent_learning_rates={"a_0": -1.0})), "agent_learning_rates['a_0'] must be a finite"),
        (lambda: MAAC(MAACConfig(reference_kl_estimator="k1")), "reference_kl_estimator='k1'"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_with_the_reason(make, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        make()


SERVED, KEPT = (ModelConfig(server="http://localhost:1", server_logprobs=of) for of in ("learner", "server"))


def experiment(algorithm="magrpo", env="collm/MiniWriting-v2", **parts):
    config = algorithm_spec(algorithm).config(**parts.pop("config", {}))
    return Experiment(algorithm=algorithm, config=config, env=env, **parts)


@pytest.mark.parametrize(
    ("parts", "error", "reason"),
    [
        ({"env": "collm/MiniWritin-v0"}, LookupError, "did you mean 'collm/MiniWriting-v2'"),
        ({"env_kwargs": {"turn": 3}}, TypeError, "argument 'turn'"),
        ({"model": ModelConfig(model="nowhere/at/all")}, FileNotFoundError, "there is no model folder"),
        ({"model": ModelConfig(is_chat=True)}, ValueError, "has no chat template"),
        ({"config": {"agent_learning_rates": {"nobody_0": 1.0}}}, ValueError, "the agents are"),
        ({"env": "collm/MiniBuild-v0", "config": {"joint_mode": "cross"}}, ValueError, "joint_mode='cross'"),
        ({"env": "gymnasium/CartPole-v1", "config": {"joint_mode": "cross"}}, ValueError, "any number of turns"),
        ({"env": "gymnasium/CartPole-v1", "model": ModelConfig(weights="adapters")}, ValueError, "language models"),
        ({"env": "gymnasium/Blackjack-v1"}, ValueError, "is not a space of vectors"),
        ({"algorithm": "iac", "config": {"critic_model_name_or_path": "./no"}}, FileNotFoundError, "no model folder"),
        ({"algorithm": "mareinforce", "config": {"num_generations": 1, "turns_per_update": 5}}, ValueError, "update=5"),
        ({"algorithm": "mareinforce", "model": ModelConfig(top_p=0.6)}, ValueError, "top_p=0.6"),
        ({"algorithm": "mareinforce", "model": ModelConfig(top_k=5)}, ValueError, "use learns_filtered=True"),
        ({"algorithm": "maac", "config": {"critic_warmup": 100}}, ValueError, "critic_warmup=100"),
        ({"config": {"max_staleness": 1}, "model": SERVED}, ValueError, "server='http://localhost:1'"),
        ({"config": {"collectors": "ray"}, "model": SERVED}, ValueError, "server='http://localhost:1'"),
        ({"config": {"importance_cap": None}, "model": KEPT}, ValueError, "server_logprobs='server'"),
    ],
)
def test_an_experiment_that_cannot_run_is_refused_before_a_model_loads(parts, error, reason, monkeypatch):
    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", lambda *_, **__: pytest.fail("loaded"))
    with pytest.raises(error, match=re.escape(reason)):
        experiment(**parts).check()


def test_epochs_without_a_clip_are_allowed_with_a_warning_where_the_name_says_ppo():
    for spec in (algorithm_spec("ippo"), algorithm_spec("mappo")):
        with pytest.warns(UserWarning, match="ppo_epochs=3"):
            spec.make(spec.config(clip_range=None, ppo_epochs=3))
        spec.make(spec.config(clip_range=None, ppo_epochs=1))


def test_filters_need_a_baseline_and_budgets_steps_after_the_warm_up():
    experiment("mareinforce", model=ModelConfig(top_p=0.6, learns_filtered=True)).check()
    experiment("magrpo", model=ModelConfig(top_p=0.6)).check()
    experiment("mareinforce").check()

    head = IAC(IACConfig(use_separate_critic=False, critic_warmup=5, num_updates=5))
    assert head.critic_warmup == 0
    with pytest.raises(ValueError, match="critic_warmup=5 must be less"):
        IAC(IACConfig(critic_warmup=5, num_updates=5))
    MAAC(MAACConfig(max_environment_steps=161))
    IAC(IACConfig(use_separate_critic=False, max_environment_steps=1))  # a head has no warm-up
    short, prolonged = (MAAC(MAACConfig(num_updates=num_updates)) for num_updates in (3, 100))
    prolonged.load_state_dict(short.state_dict())
    assert prolonged.critic_warmup == short.critic_warmup == 1


@pytest.mark.parametrize(("num_updates", "expected"), [(1, 0), (2, 1), (5, 2), (6, 5), (100, 5)])
def test_the_usual_warm_up_leaves_updates_for_the_policies(num_updates, expected):
    assert MAAC(MAACConfig(num_updates=num_updates)).critic_warmup == expected
