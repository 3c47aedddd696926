"""Names become policies, and wrong names one clear error before anything is loaded."""

import json

import pytest
from fakes import language_policy

from collm._errors import UserError
from collm.agents.config import ModelConfig
from collm.agents.loading import check_models, load_policies, model_folder
from collm.agents.tiny import TINY_DIRECTORY

AGENTS = ("writer_0", "writer_1")


def test_own_weights_are_equal_at_first_and_apart():
    policies = load_policies(ModelConfig(), AGENTS)
    first, second = (policies[agent].parameters()[0] for agent in AGENTS)
    assert first is not second
    assert first.equal(second)


def test_shared_weights_are_one_policy():
    policies = load_policies(ModelConfig(weights="shared"), AGENTS)
    assert policies["writer_0"] is policies["writer_1"]


def test_adapters_share_a_frozen_base_and_only_they_learn():
    policies = load_policies(ModelConfig(weights="adapters", lora_rank=2), AGENTS)
    assert policies["writer_0"].language_model is policies["writer_1"].language_model
    own = {id(weight) for weight in policies["writer_0"].parameters()}
    assert own.isdisjoint({id(weight) for weight in policies["writer_1"].parameters()})
    model = policies["writer_0"].language_model.model
    assert {name.split("lora_")[0] for name, weight in model.named_parameters() if weight.requires_grad} != {""}
    assert all("lora_" in name for name, weight in model.named_parameters() if weight.requires_grad)


def test_the_settings_of_adapters_are_saved_in_one_order(tmp_path):
    """The order of a set of names changes from process to process."""
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


def test_the_embedded_model_is_a_folder():
    assert model_folder("tiny") == TINY_DIRECTORY


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


def test_the_removed_sampler_is_refused_with_the_ones_to_use():
    with pytest.raises(UserError, match="sampler must be one of 'arena', 'graphs', got 'continuous'"):
        ModelConfig(sampler="continuous")


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder", "tinny"])
def test_a_folder_that_is_not_there_is_refused(name):
    with pytest.raises(FileNotFoundError, match="no model folder"):
        model_folder(name)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no model"):
        model_folder(str(tmp_path))


def test_a_hub_name_is_refused_offline_unless_it_is_cached(monkeypatch):
    monkeypatch.setattr("collm.agents.loading.HF_HUB_OFFLINE", True)
    with pytest.raises(FileNotFoundError, match=r"not in the hub's cache"):
        model_folder("nobody/never-published-this")
