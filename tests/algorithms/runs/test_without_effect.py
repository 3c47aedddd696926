"""Settings without effect are reported, and settings with an effect are not."""

from unittest.mock import Mock

import pytest

from collm._errors import UserError
from collm.agents.config import ModelConfig
from collm.agents.numeric.config import NetworkConfig
from collm.algorithms import MAGRPO, IACConfig, ReinforceConfig, register_algorithm
from collm.algorithms.config import MAPPOConfig
from collm.algorithms.registry import algorithm_specs
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.algorithms.runs.assembly.without_effect import RULES
from collm.algorithms.runs.run import run_experiment

TEXT, VECTORS = "collm/MiniWriting-v2", "gymnasium/Pendulum-v1"
OWN = [spec for spec in algorithm_specs() if "." not in spec.name]


def lines(algorithm, config, env=TEXT, **parts):
    return Experiment(algorithm=algorithm, config=config, env=env, **parts).notices()


@pytest.mark.parametrize("env", [TEXT, VECTORS])
@pytest.mark.parametrize("spec", OWN, ids=[spec.name for spec in OWN])
def test_defaults_are_not_reported(spec, env):
    assert lines(spec.name, spec.config(), env) == []


def test_the_rules_name_settings_that_exist():
    kinds = (MAPPOConfig, IACConfig, ModelConfig, NetworkConfig)
    known = {name for kind in kinds for name in kind.__dataclass_fields__}
    assert {name for rule in RULES for name in rule.names.split()} <= known


@pytest.mark.parametrize(
    ("algorithm", "config", "parts"),
    [
        ("iac", IACConfig(max_staleness=1, importance_cap=1.5), {}),
        ("iac", IACConfig(importance_cap=1.5), {"model": ModelConfig(server="http://a:1", server_logprobs="server")}),
        ("iac", IACConfig(trace=0.5), {}),
        ("iac", IACConfig(estimator="td", critic_target="n_step", num_steps=2), {}),
        ("iac", IACConfig(use_separate_critic=False, value_loss_coef=2.0, value_head_hidden_dim=3), {}),
        ("iac", IACConfig(critic_model_name_or_path="bag_of_words", critic_l2=3.0), {}),
        ("magrpo", ReinforceConfig(advantage_normalization="none", divide_by_std=True), {}),
        ("iac", IACConfig(num_envs=4, num_workers=4), {}),
        ("iac", IACConfig(turns_per_update=2, num_envs=64), {}),
        ("ippo", None, {"env": VECTORS, "network": NetworkConfig(hidden_dims=(8,), gaussian="squashed")}),
        ("iac", IACConfig(), {"model": ModelConfig(weights="adapters", lora_rank=4, top_p=0.5, learns_filtered=True)}),
    ],
)
def test_settings_with_an_effect_are_not_reported(algorithm, config, parts):
    config = config or next(spec for spec in OWN if spec.name == algorithm).config()
    assert lines(algorithm, config, **parts) == []


def test_settings_are_reported_unless_a_loss_of_its_own_may_read_them(monkeypatch):
    class Own(MAGRPO):
        def loss(self, batch):
            return super().loss(batch)

    assert "num_collectors=33" in lines("iac", IACConfig(collectors="ray", num_collectors=33))[0]
    config = ReinforceConfig(importance_cap=1.5)
    assert len(lines("magrpo", config)) == 1
    monkeypatch.setattr("collm.algorithms.registry._registry", {})
    register_algorithm("own-loss", Own, ReinforceConfig)
    assert lines("own-loss", config) == []


def test_a_default_that_the_user_wrote_is_reported_too():
    experiment = Experiment(algorithm="iac", config=IACConfig(), env=TEXT)
    told = experiment.notices({"lora_rank", "server_logprobs", "off_policy", "gae_lambda", "fsdp"})
    assert [line.split(" has")[0] for line in told] == ["lora_rank=16", "server_logprobs='learner'"]


def test_a_clip_range_above_1_is_reported():
    (line,) = lines("iac", IACConfig(clip_range=2))
    assert "clip_range=2" in line


def test_a_run_reports_them_before_its_models_are_loaded(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(Experiment, "make_trainer", Mock(side_effect=UserError("far enough")))
    experiment = Experiment(algorithm="iac", config=IACConfig(fsdp=True), env=TEXT)
    with pytest.raises(UserError, match="far enough"):
        run_experiment(experiment, tmp_path / "r", on_notice=told.append)
    assert [line.split(" has")[0] for line in told] == ["fsdp=True"]
