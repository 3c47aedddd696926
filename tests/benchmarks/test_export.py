"""Exports of adapters compute and sample as the trained team, or write nothing."""

import json
import warnings
from functools import partial
from typing import ClassVar

import pytest
import torch
from fakes import byte_tokenizer, random_llama
from peft import PeftModel
from pettingzoo import ParallelEnv
from transformers import AutoModelForCausalLM, GenerationConfig, LlamaForCausalLM

import collm
from collm._errors import UserError
from collm.agents.decoding.adapters import adapter_weights
from collm.agents.language import pretrained
from collm.benchmarks.sharing.export import SharedRun
from collm.envs.spaces import OpenText

SMALL = {"num_updates": 1, "rollout_buffer_size": 2, "num_generations": 2, "max_new_tokens": 4, "eval_interval": 0}
IDS = torch.arange(5, 30)[None]


def logits(model):
    with torch.no_grad():
        return model(IDS).logits


def run_folder(tmp_path, **settings):
    """Train adapters of a base model whose generation_config.json has other sampling settings."""
    config = random_llama().config
    config.tie_word_embeddings = True
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(do_sample=True, repetition_penalty=1.3, top_k=1, eos_token_id=[0, 2])
    model.save_pretrained(tmp_path / "base")
    byte_tokenizer().save_pretrained(tmp_path / "base")
    settings = {"weights": "adapters", "lora_rank": 4, "top_k": 7, "learns_filtered": True, **SMALL, **settings}
    env = "collm/MiniWriting-v2"
    run = collm.train(
        "mareinforce", env, model=str(tmp_path / "base"), out=tmp_path / "run", progress=False, **settings
    )
    torch.manual_seed(1)
    for agent, policy in run.policies.items():  # adapters with a large effect
        for weight in adapter_weights(policy.language_model.model, policy.adapter).values():
            torch.nn.init.normal_(weight, std=0.3)
        policy.save(tmp_path / "run" / "agents" / agent)
    return tmp_path / "run" / "agents" / "writer_0"


@pytest.mark.parametrize("layers", [("all-linear",), ("lm_head", "q_proj"), ("embed_tokens", "q_proj")])
def test_a_merged_export_computes_and_samples_as_the_trained_team(layers, tmp_path):
    folder = run_folder(tmp_path, lora_target_modules=layers)
    shared = SharedRun(tmp_path / "run", {"writer_0": folder}, None)
    shared.export("writer_0", tmp_path / "merged", is_merged=True)
    shared.export("writer_0", tmp_path / "plain", is_merged=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trained = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tmp_path / "base"), folder)
        plain = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tmp_path / "base"), tmp_path / "plain")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(logits(merged), logits(trained), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(logits(plain), logits(trained))
    assert not list((tmp_path / "merged").glob("adapter_*"))
    for name in ("merged", "plain"):
        saved = json.loads((tmp_path / name / "generation_config.json").read_text())
        assert "repetition_penalty" not in saved and saved["do_sample"]
        assert (saved["top_k"], saved["temperature"], saved["max_new_tokens"]) == (7, 1.0, 4)
        assert saved["eos_token_id"] == [0, 2]


def test_an_adapter_whose_merge_changes_outputs_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    folder = run_folder(tmp_path)
    monkeypatch.setattr(pretrained, "MAX_DIFFERENCE", -1.0)
    with pytest.raises(UserError, match="differ by"):
        shared = SharedRun(tmp_path / "run", {"writer_0": folder}, None)
        shared.export("writer_0", tmp_path / "merged", is_merged=True)
    assert not (tmp_path / "merged").exists()


class Foreign(ParallelEnv):
    """Text environment of another library, with agents of any name."""

    metadata: ClassVar = {"name": "foreign_v0"}
    render_mode = None

    def __init__(self, agents):
        self.possible_agents = list(agents)

    def observation_space(self, agent):
        return OpenText(200)

    action_space = observation_space

    def reset(self, seed=None, options=None):
        self.agents = self.possible_agents[:]
        return dict.fromkeys(self.agents, "say wood"), {agent: {} for agent in self.agents}

    def step(self, actions):
        agents, self.agents = self.agents, []
        reward = float(sum(map(len, actions.values())))
        infos = {agent: {} for agent in agents}
        ends = [dict.fromkeys(agents, is_end) for is_end in (True, False)]
        return dict.fromkeys(agents, "end"), dict.fromkeys(agents, reward), *ends, infos


@pytest.mark.parametrize("agents", [("0", "1"), ("layers", "mlp")])
def test_a_team_of_agents_with_any_name_is_saved_evaluated_and_resumed(agents, tmp_path, clean_registry):
    collm.register("demo/Foreign-v0", partial(Foreign, agents))
    settings = {"weights": "adapters", "lora_rank": 2, "out": tmp_path / "run", "progress": False, **SMALL}
    collm.train("mareinforce", "demo/Foreign-v0", **settings)
    team = collm.load_team(tmp_path / "run")
    team.save(tmp_path / "saved")
    for agent in agents:
        folders = (tmp_path / "run" / "agents" / agent, tmp_path / "saved" / agent)
        first, second = ((folder / "adapter_model.safetensors").read_bytes() for folder in folders)
        assert first == second
    collm.evaluate(tmp_path / "run", 2)
    collm.train("mareinforce", "demo/Foreign-v0", resume=True, **{**settings, "num_updates": 2})
