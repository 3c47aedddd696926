"""Loading of policies by name, and errors before weights are loaded."""

import json

import pytest
from fakes import language_policy

from collm.agents.config import ModelConfig
from collm.agents.loading import check_models, load_policies, model_folder

AGENTS = ("writer_0", "writer_1")


@pytest.mark.parametrize("weights", ["own", "shared"])
def test_own_weights_are_equal_copies_and_shared_weights_are_one_policy(weights):
    first, second = load_policies(ModelConfig(weights=weights), AGENTS).values()
    assert (first is second) == (weights == "shared")
    own = [policy.parameters()[0] for policy in (first, second)]
    assert (own[0] is own[1]) == (weights == "shared") and own[0].equal(own[1])


def test_adapters_share_a_frozen_base():
    policies = load_policies(ModelConfig(weights="adapters", lora_rank=2), AGENTS)
    assert policies["writer_0"].language_model is policies["writer_1"].language_model
    own = {id(weight) for weight in policies["writer_0"].parameters()}
    assert own.isdisjoint({id(weight) for weight in policies["writer_1"].parameters()})
    model = policies["writer_0"].language_model.model
    assert all("lora_" in name for name, weight in model.named_parameters() if weight.requires_grad)


def test_the_target_modules_of_adapters_are_saved_sorted(tmp_path):
    """peft saves a set, whose order differs between processes."""
    for agent, policy in load_policies(ModelConfig(weights="adapters", lora_rank=1), AGENTS).items():
        policy.save(tmp_path / agent)
        modules = json.loads((tmp_path / agent / "adapter_config.json").read_text())["target_modules"]
        assert len(modules) > 3
        assert modules == sorted(modules)


def test_adapters_of_one_seed_are_equal():
    first, second = (load_policies(ModelConfig(weights="adapters"), AGENTS, seed=4)["writer_1"] for _ in range(2))
    assert all(a.equal(b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_a_model_for_each_agent(tmp_path):
    language_policy().save(tmp_path / "other")
    policies = load_policies(ModelConfig(model=f"tiny,{tmp_path / 'other'}"), AGENTS)
    sizes = [policies[agent].language_model.base.config.hidden_size for agent in AGENTS]
    assert sizes == [128, 32]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (ModelConfig(model="tiny,tiny,tiny"), "3 models"),
        (ModelConfig(model="tiny,./a", weights="shared"), "weights='shared'"),
        (ModelConfig(is_chat=True), "has no chat template"),
        (ModelConfig(sampler="graphs", device="cpu"), "sampler='graphs' needs a GPU with CUDA"),
    ],
)
def test_wrong_settings_are_refused(config, message):
    with pytest.raises(ValueError, match=message):
        check_models(config, 2)


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder", "tinny"])
def test_a_missing_folder_is_refused(name):
    with pytest.raises(FileNotFoundError, match="no model folder"):
        model_folder(name)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no model"):
        model_folder(str(tmp_path))


def test_a_hub_name_is_refused_offline_unless_it_is_cached(monkeypatch):
    monkeypatch.setattr("collm.agents.loading.HF_HUB_OFFLINE", True)
    with pytest.raises(FileNotFoundError, match=r"not in the hub's cache"):
        model_folder("nobody/never-published-this")
