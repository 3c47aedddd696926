"""Runs with chat models: the template is chosen, explained prompts, dates, histories, contexts and changed data."""

import json
from datetime import datetime

import pytest
from chat_templates import tokenizer_for
from fakes import random_llama

import collm
from collm._errors import UserError
from collm.agents.config import ModelConfig
from collm.algorithms.runs.api import load_run, untrained
from collm.benchmarks import cli
from collm.benchmarks.commands.playing.play import as_trained

SMALL = {"num_updates": 1, "rollout_buffer_size": 2, "num_generations": 2, "eval_num_samples": 1, "max_new_tokens": 2}
GAME = "collm/TinyHanabi-v0"


@pytest.fixture
def model(tmp_path):
    """Return a function that writes a random Llama with the tokenizer of a family, and returns its folder."""

    def write(name="gemma", **changes):
        folder = tmp_path / f"model {name}"
        tokenizer = tokenizer_for(name)
        llama = random_llama(vocab_size=len(tokenizer))
        llama.config.update({"eos_token_id": tokenizer.eos_token_id, "bos_token_id": None, **changes})
        llama.generation_config.update(eos_token_id=tokenizer.eos_token_id, bos_token_id=None)
        llama.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return str(folder)

    return write


def train(model, tmp_path, env=GAME, algorithm="magrpo", **settings):
    return collm.train(algorithm, env, model=model, out=tmp_path / "run", **(SMALL | settings))


def test_a_tokenizer_with_a_template_is_used_as_chat_and_said_so(model, tmp_path, capsys):
    run = train(model(), tmp_path)
    assert "is_chat: True" in capsys.readouterr().out
    assert run.experiment.model.is_chat is None and run.experiment.env_kwargs == {"is_explained": True}
    policy = run.policies["builder_0"]
    assert policy.language_model.encoder.is_chat
    assert json.loads((run.directory / "agents/builder_0/collm_policy.json").read_text())["is_chat"] is True


@pytest.mark.parametrize("is_tiny, settings", [(True, {}), (False, {"is_chat": False})])
def test_other_models_read_plain_text_without_explanation(model, tmp_path, capsys, is_tiny, settings):
    run = train("tiny" if is_tiny else model(), tmp_path, **settings)
    assert "is_chat" not in capsys.readouterr().out
    assert run.experiment.env_kwargs == {} and not run.policies["builder_0"].language_model.encoder.is_chat


def test_a_given_is_explained_wins(model, tmp_path):
    assert train(model(), tmp_path, env_kwargs={"is_explained": False}).experiment.env_kwargs == {"is_explained": False}
    assert not untrained(ModelConfig(model=model()), GAME, is_explained=False).experiment.env_kwargs["is_explained"]


def test_evaluations_explain_as_the_training_did(model, tmp_path, capsys):
    folder = model()
    assert untrained(ModelConfig(model=folder), GAME).experiment.env_kwargs == {"is_explained": True}
    assert untrained(ModelConfig(model="tiny"), GAME).experiment.env_kwargs == {}
    run = train(folder, tmp_path)
    again = load_run(run.directory, env=GAME, trust=True)
    assert again.experiment.env_kwargs == {"is_explained": True}
    assert as_trained([run.directory], GAME, {"num_rounds": 1}) == {"num_rounds": 1, "is_explained": True}
    assert as_trained([tmp_path], GAME, {}) == {}
    assert cli.main(["play", GAME, "--policy", "model", "--model", folder, "--max-new-tokens", "2"]) == 0
    explained = capsys.readouterr().out
    assert cli.main(["play", GAME, "--policy", "model", "--max-new-tokens", "2"]) == 0
    plain = capsys.readouterr().out
    assert len(explained) > len(plain) and "is_chat: True" in explained and "is_chat" not in plain
    call = ["evaluate", "--env", GAME, "--model", folder, "--episodes", "1", "--max-new-tokens", "2", "--json"]
    assert cli.main([*call, "--out", str(tmp_path / "evaluation")]) == 0
    written = capsys.readouterr()
    assert "is_chat: True" in written.err and json.loads(written.out)


def test_a_date_is_that_of_the_start_of_the_run_also_after_its_resumption(model, tmp_path, monkeypatch, capsys):
    folder = model("smollm3")
    run = train(folder, tmp_path)
    day = f"{datetime.now():%Y-%m-%d}"
    assert run.experiment.model.template_kwargs == {"strftime_now": day} and day in capsys.readouterr().out

    class Tomorrow(datetime):
        @classmethod
        def now(cls):
            return cls(2050, 1, 31)

    monkeypatch.setattr("collm.algorithms.runs.assembly.experiment.datetime", Tomorrow)
    again = train(folder, tmp_path, num_updates=2, resume=True)
    assert again.experiment.model.template_kwargs == {"strftime_now": day}


@pytest.mark.parametrize("name, says", [("qwen3", True), ("granite", False)])
def test_templates_that_rewrite_earlier_replies_are_announced(model, tmp_path, capsys, name, says):
    train(model(name), tmp_path, "collm/MiniShift-v0", env_kwargs={"max_turns": 2})
    assert ("history_tokens='rewritten'" in capsys.readouterr().out) == says


def test_rewritten_histories_train_and_are_stored(model, tmp_path):
    kwargs = {"env_kwargs": {"max_turns": 2}, "history_tokens": "rewritten"}
    run = train(model("qwen3"), tmp_path, "collm/MiniShift-v0", **kwargs)
    team = collm.load_team(run.directory, trust=True)
    assert all(policy.language_model.encoder.history_tokens == "rewritten" for policy in team.values())
    assert all(abs(row["kl_to_sampler"]) < 1e-5 for row in run.metrics)


def test_a_history_that_outgrows_the_context_names_agent_turn_and_seed(model, tmp_path):
    folder = model("granite", max_position_embeddings=800)
    with pytest.raises(UserError, match=r"builder_0, turn \d+ of the episode with seed \d+: .*LastTurns"):
        train(folder, tmp_path, "collm/MiniShift-v0", max_new_tokens=64)


def test_a_resumed_run_says_that_its_data_changed(tmp_path, capsys):
    file = tmp_path / "posts.jsonl"
    rows = [json.dumps({"post": f"post {number}: the gull took wood to the boat near the goat"}) for number in range(6)]
    file.write_text("\n".join(rows) + "\n")
    settings = {"env_kwargs": {"data": str(file), "test_fraction": 0.5}, "model": "tiny", "num_updates": 1}
    train(env="collm/TLDR-v2", tmp_path=tmp_path, **settings)
    capsys.readouterr()
    train(env="collm/TLDR-v2", tmp_path=tmp_path, **settings | {"num_updates": 2}, resume=True)
    assert "changed" not in capsys.readouterr().out
    file.write_text("\n".join(reversed(rows)) + "\n")
    train(env="collm/TLDR-v2", tmp_path=tmp_path, **settings | {"num_updates": 3}, resume=True)
    assert f"{file} changed after update 2" in " ".join(capsys.readouterr().out.split())
