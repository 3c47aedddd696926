import json
import os

import pytest
import torch
from fakes import language_policy

from collm.agents import loading
from collm.agents.config import ModelConfig
from collm.agents.loading import device_named, load_policies

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


@pytest.fixture
def gpu_settings(monkeypatch):
    """A rank whose current GPU is the second, and the calls that change PyTorch's attention."""
    calls = []
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "TORCH_CUDNN_SDPA_DEPRIORITIZED"):
        monkeypatch.setenv(name, "")  # so that the variable is restored afterwards
        monkeypatch.delenv(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", calls.append)
    loading.prepare_cuda.cache_clear()
    yield calls
    loading.prepare_cuda.cache_clear()


def test_a_gpu_without_an_index_is_the_current_one_and_only_gpus_change_settings(gpu_settings):
    assert device_named("cpu") == torch.device("cpu")
    assert not gpu_settings and "PYTORCH_ALLOC_CONF" not in os.environ
    assert device_named("auto") == device_named("cuda") == torch.device("cuda:1")
    assert device_named("cuda:0") == torch.device("cuda:0")
    assert gpu_settings == [False]  # set once, so that a user can change it afterwards
    assert os.environ["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_settings_of_the_user_stay(name, gpu_settings, monkeypatch):
    monkeypatch.setenv(name, "backend:native")
    monkeypatch.setenv("TORCH_CUDNN_SDPA_DEPRIORITIZED", "0")
    device_named("cuda")
    found = {each: value for each, value in os.environ.items() if each.endswith("ALLOC_CONF")}
    assert found == {name: "backend:native"} and not gpu_settings
