import json

import pytest
from fakes import language_policy

from collm.agents.config import ModelConfig
from collm.agents.loading import load_policies

AGENTS = ("writer_0", "writer_1")


@pytest.mark.parametrize("weights", ["own", "shared"])
def test_own_weights_are_equal_copies_and_shared_weights_are_one_policy(weights):
    first, second = load_policies(ModelConfig(weights=weights), AGENTS).values()
    assert (first is second) == (weights == "shared")
    own = [policy.parameters()[0] for policy in (first, second)]
    assert (own[0] is own[1]) == (weights == "shared") and own[0].equal(own[1])


def test_adapters_share_a_frozen_base_and_are_saved_with_sorted_modules(tmp_path):
    policies = load_policies(ModelConfig(weights="adapters", lora_rank=2), AGENTS)
    assert policies["writer_0"].language_model is policies["writer_1"].language_model
    own = {id(weight) for weight in policies["writer_0"].parameters()}
    assert own.isdisjoint({id(weight) for weight in policies["writer_1"].parameters()})
    model = policies["writer_0"].language_model.model
    assert all("lora_" in name for name, weight in model.named_parameters() if weight.requires_grad)
    for agent, policy in policies.items():
        policy.save(tmp_path / agent)
        modules = json.loads((tmp_path / agent / "adapter_config.json").read_text())["target_modules"]
        assert len(modules) > 3 and modules == sorted(modules)  # peft saves a set, without an order


def test_a_model_for_each_agent(tmp_path):
    language_policy().save(tmp_path / "other")
    policies = load_policies(ModelConfig(model=f"tiny,{tmp_path / 'other'}"), AGENTS)
    sizes = [policies[agent].language_model.base.config.hidden_size for agent in AGENTS]
    assert sizes == [128, 32]
