"""Settings of run folders that need --trust; see the table in docs/threat_model.md."""

import json
import shutil

import pytest

from collm._settings import settings_of
from collm.agents.config import ModelConfig
from collm.agents.numeric.config import NetworkConfig
from collm.agents.tiny import TINY_DIRECTORY
from collm.algorithms.config import MAACConfig
from collm.algorithms.registry import algorithm_specs
from collm.algorithms.runs.api import load_run
from collm.algorithms.runs.assembly import trust
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.algorithms.runs.files import write_config
from collm.benchmarks.cli import main
from collm.envs import register
from collm.envs.registration.registry import accepted_arguments, specs

SETTINGS = Experiment(algorithm="maac", config=MAACConfig(), env="collm/HumanEval-v1").to_json()
ELSEWHERE = ("server", "collectors", "collector_options")
LOOKED_AT = {"isolation", "packages", "data", "prompts", "expert"}
"""Arguments of collm's environments that name code or files, or confine code."""


def with_model(**changes: object) -> dict:
    return SETTINGS | {"model": SETTINGS["model"] | changes}


def with_config(**changes: object) -> dict:
    return SETTINGS | {"config": SETTINGS["config"] | changes}


def with_env(env: str = "collm/HumanEval-v1", /, **arguments: object) -> dict:
    return SETTINGS | {"env": env, "env_kwargs": arguments}


def reason(saved: dict, directory=None) -> str | None:
    return trust.needs_trust(json.loads(json.dumps(saved)), directory)


@pytest.mark.parametrize(
    ("saved", "named"),
    [
        (with_env("os:system", command="touch x"), "os:system"),
        (with_env("antigravity.fly"), "antigravity.fly"),
        (with_env("gymnasium/evil:CartPole-v1"), "gymnasium/evil:CartPole-v1"),
        (with_env("CartPole-v1", env="evil:CartPole-v1"), "env="),
        (with_env("Reacher-v5", xml_file="/home/me/x.xml"), "xml_file"),
        (with_env("Reacher-v5", nested=[{"x": "../x.xml"}]), "nested"),
        (with_env(isolation="none"), "isolation='none'"),
        (with_env(isolation="C"), "isolation='C'"),
        (with_env(isolation=["none"]), "isolation"),
        (with_env(packages=["numpy"]), "packages"),
        (with_env(packages="installed"), "packages"),
        (with_env(reward_funcs=["own", "os:getcwd"]), "os:getcwd"),
        (with_env(reward_funcs={"short": "os:getcwd"}), "os:getcwd"),
        (with_env(reward_funcs="os:getcwd"), "os:getcwd"),
        (with_env(data="/home/me/x.jsonl"), "/home/me/x.jsonl"),
        (with_env(data="../x.jsonl"), "../x.jsonl"),
        (with_env(data="owner/name"), "owner/name"),
        (with_env(data={"train": "builtin", "test": "~/x.jsonl"}), "~/x.jsonl"),
        (with_env(prompts="/home/me/prompts"), "/home/me/prompts"),
        (with_model(model="openai:m@http://evil/v1"), "openai:m@http://evil/v1"),
        (with_model(model="tiny,openai:m@http://evil/v1"), "openai:m@http://evil/v1"),
        (with_model(model="openai:m@http://evil/v1?key=A_SECRET"), "A_SECRET"),
        (with_model(model="/home/me/model"), "/home/me/model"),
        (with_model(model="~/model"), "~/model"),
        (with_model(model="../model"), "../model"),
        (with_model(model="model.gguf"), "model.gguf"),
        (with_model(model="owner/model.GGUF"), "owner/model.GGUF"),
        (with_model(model="a/b/c"), "a/b/c"),
        (with_model(model="tiny\0"), "tiny"),
        (with_model(server="http://evil:8000"), "server"),
        (with_config(collectors="ray://evil:1"), "collectors"),
        (with_config(collector_options={"working_dir": "."}), "collector_options"),
        (with_config(critic_model_name_or_path="/home/me/critic"), "/home/me/critic"),
        (with_config(reward_model="./judge"), "./judge"),
    ],
)
def test_what_leads_out_of_the_folder_needs_trust(saved, named):
    assert named in (reason(saved) or "no reason")


@pytest.mark.parametrize(
    "saved",
    [
        SETTINGS,
        with_model(model="tiny,Qwen/Qwen3-0.6B,gpt2"),
        with_model(device="cuda:0", template_kwargs={"enable_thinking": False}, lora_target_modules=["q_proj"]),
        with_config(critic_model_name_or_path="actor", reward_model="owner/judge", critic_device="cpu"),
        with_config(difficulty_schedule="0: 1, 0.3: 1-3", agent_learning_rates={"main_0": 0.1}),
        with_env(isolation="auto", data="builtin", packages=[], variant="published", stop_at=None),
        with_env(isolation="A", prompts={"main_0": "{task} in /tmp"}, reward_funcs=["own"], data={"train": "builtin"}),
        with_env("collm/MiniBuild-v0", data="generated", partners={"builder_1": "reference"}),
        with_env("CartPole-v1", render_mode="rgb_array", max_episode_steps=5),
        with_env("gymnasium/FrozenLake-v1", map_name="4x4-not-a-file", is_slippery=False),
    ],
)
def test_words_numbers_and_names_need_none(saved):
    assert reason(saved) is None


def test_files_in_the_folder_may_be_named_and_hub_names_are_no_folders(tmp_path, monkeypatch):
    run, outside = tmp_path / "run", tmp_path / "secret.jsonl"
    (run / "prompts").mkdir(parents=True)
    outside.write_text("{}\n")
    shutil.copy(outside, run / "own.jsonl")
    (run / "link.jsonl").symlink_to(outside)
    assert reason(with_env(data=str(run / "own.jsonl")), run) is None
    assert reason(with_env(prompts=str(run / "prompts")), run) is None
    assert reason(with_model(model=str(run / "prompts")), run) is None
    for name in ("link.jsonl", "../secret.jsonl", "missing.jsonl"):
        assert name in str(reason(with_env(data=str(run / name)), run))
    (run / "prompts" / "main_0.txt").symlink_to(outside)
    assert "prompts" in str(reason(with_env(prompts=str(run / "prompts")), run))

    (tmp_path / "owner" / "name").mkdir(parents=True)
    (tmp_path / "map").touch()
    monkeypatch.chdir(tmp_path)
    assert reason(with_model(model="owner/other")) is None
    assert "owner/name" in str(reason(with_model(model="owner/name")))
    assert "map" in str(reason(with_env("gymnasium/FrozenLake-v1", map_name="map")))


def test_every_setting_and_argument_of_free_text_is_judged():
    configs = [spec.config for spec in algorithm_specs() if spec.config.__module__.startswith("collm.")]
    kinds = [settings_of(kind) for kind in (ModelConfig, NetworkConfig, *configs)]
    texts = {name for settings in kinds for name, each in settings.items() if trust.is_free_text(each.hint)}
    assert texts == {*trust.HARMLESS, *trust.MODELS, *ELSEWHERE}
    words = set(
        "agents can_leave columns difficulty feedback feedback_limit is_explained is_shuffled max_action_length "
        "max_facts max_observation_length max_probes max_steps max_timeouts max_turns memory needs_both num_agents "
        "num_generated num_operations num_public num_revealed num_tests on_bad_row original_prompt "
        "partner_code previous_response reach render_mode reward shift shows_target source spider_attacks "
        "bias channel game links max_words noise num_messages num_options num_rounds num_turns "
        "split stop_at style test_fraction test_seconds tests threshold variant view world".split()
    )
    own = [each.constructor() for each in specs() if str(each.entry_point).startswith("collm.envs.")]
    taken = map(accepted_arguments, own)
    assert {name for names in taken for name in names or ("any",)} == words | LOOKED_AT


def test_a_folder_is_refused_in_one_line_and_read_with_trust(tmp_path):
    write_config(tmp_path, with_env(isolation="none"))
    with pytest.raises(trust.UntrustedCodeError, match=r"config\.json.*isolation='none'.*--trust"):
        trust.load_experiment(tmp_path)
    assert trust.load_experiment(tmp_path, trust=True).env_kwargs == {"isolation": "none"}
    assert trust.load_experiment(tmp_path, is_env_given=True).env_kwargs == {"isolation": "none"}
    write_config(tmp_path, with_model(model="openai:m@http://127.0.0.1:9/v1"))
    with pytest.raises(trust.UntrustedCodeError, match="openai:m"):
        load_run(tmp_path, env="collm/MiniWriting-v2")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"base_model_name_or_path": "/home/me/model"}, "/home/me/model"),
        ({"megatron_config": {"a": 1}, "megatron_core": "antigravity"}, "megatron_config"),
        ({"peft_type": "XLORA", "adapters": {"0": "/home/me"}}, "peft_type"),
        ({"init_lora_weights": "eva"}, "init_lora_weights"),
        ({"from_the_future": "/home/me"}, "from_the_future"),
    ],
)
def test_adapters_of_another_base_or_kind_need_trust(tmp_path, changes, named):
    write_config(tmp_path, SETTINGS)
    own = {"base_model_name_or_path": str(TINY_DIRECTORY), "peft_type": "LORA", "r": 4, "target_modules": ["q_proj"]}
    (tmp_path / "agents" / "main_0").mkdir(parents=True)
    file = tmp_path / "agents" / "main_0" / "adapter_config.json"
    for harmless in ({}, {"use_rslora": True, "rank_pattern": {"q_proj": 2}, "alpha_pattern": {"q_proj": 2}}):
        file.write_text(json.dumps(own | harmless))
        trust.load_experiment(tmp_path)
    file.write_text(json.dumps(own | changes))
    with pytest.raises(trust.UntrustedCodeError, match=r"adapter_config\.json") as raised:
        trust.load_experiment(tmp_path)
    assert named in str(raised.value)
    trust.load_experiment(tmp_path, trust=True)


@pytest.mark.parametrize(
    "changes", [{"env": 3}, {"config": []}, {"env_kwargs": "x"}, {"model": None}, {"network": 1}, {"algorithm": {}}]
)
def test_a_part_of_another_type_is_named(tmp_path, changes):
    write_config(tmp_path, SETTINGS | changes)
    with pytest.raises(ValueError, match=next(iter(changes))):
        trust.load_experiment(tmp_path)


def test_an_environment_that_this_process_has_registered_needs_none():
    register("trusted/World-v0", lambda size=1: None, replace=True)
    assert reason(with_env("trusted/World-v0", size=3)) is None
    assert "size" in str(reason(with_env("trusted/World-v0", size="/etc")))


def test_a_recorded_reply_is_not_run_in_this_process(tmp_path, capsys):
    mark = tmp_path / "PWNED"
    write_config(tmp_path, with_env(isolation="none", max_turns=1))
    wrote = f"def caesar_words(text, shift):\n    open({str(mark)!r}, 'w')\n    return text"
    turn = {"read": [], "wrote": wrote, "reward": 0.0}
    row = {"index": 0, "update": 1, "seed": 1, "infos": [{}], "agents": {"main_0": {"turns": [turn]}}}
    (tmp_path / "episodes.jsonl").write_text(json.dumps(row) + "\n")
    assert main(["replay", str(tmp_path), "--episode", "0"]) == 2
    assert "isolation='none'" in capsys.readouterr().err
    assert not mark.exists()
