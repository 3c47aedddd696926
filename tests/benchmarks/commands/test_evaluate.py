import io
import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import collm
from collm.agents.config import ModelConfig
from collm.agents.tiny import TINY_DIRECTORY
from collm.algorithms.runs.api import untrained
from collm.benchmarks.cli import main

ID = "collm/MiniBuild-v0"
SMALL = {"num_updates": 1, "rollout_buffer_size": 2, "eval_num_samples": 2, "num_generations": 2}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "adapters"
    adapters = {"weights": "adapters", "lora_rank": 2, "lora_alpha": 6, "lora_target_modules": ("q_proj", "v_proj")}
    settings = {"env_kwargs": {"max_turns": 1}, "progress": False, "learning_rate": 1e-2}
    collm.train("magrpo", ID, out=out, **settings, **adapters, **SMALL)
    for file in out.glob("agents/*/adapter_model.safetensors"):  # as if it had learned much: one update may be nothing
        weights = load_file(file)
        save_file({name: weight + 0.3 * ("lora_B" in name) for name, weight in weights.items()}, file)
    return out


def test_models_as_they_are_make_a_leaderboard_with_runs(trained, tmp_path, capsys):
    call = ["evaluate", str(trained), "--model", "tiny", f"tiny,{TINY_DIRECTORY}", "--env", ID, "--episodes", "3"]
    out = tmp_path / "board"
    assert main([*call, "--env-kwargs", "max_turns=1", "--out", str(out), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((out / "leaderboard.json").read_text())
    teams = {entry["team"]: entry for entry in printed["entries"]}
    assert set(teams) == {str(trained), "tiny", f"tiny,{TINY_DIRECTORY}"}
    # The folder holds the embedded model: the same weights by another name play the same.
    assert teams["tiny"]["returns"] == teams[f"tiny,{TINY_DIRECTORY}"]["returns"]
    for entry in teams.values():
        lines = [json.loads(line) for line in Path(entry["episodes"]).read_text().splitlines()]
        assert [line["policy"] for line in lines] == ["sampled"] * 3 + ["greedy"] * 3
        mean = sum(line["return"] for line in lines[:3]) / 3
        assert entry["returns"]["sampled"]["value"] == pytest.approx(mean)


def test_one_model_is_evaluated_as_the_python_call_does(tmp_path, capsys):
    call = ["evaluate", "--model", "tiny", "--env", ID, "--episodes", "2", "--played", "greedy", "--out", str(tmp_path)]
    assert main(call) == 0
    printed = capsys.readouterr().out
    expected = untrained(ModelConfig(), ID).evaluate(2, greedy=True)
    assert str(expected.team_return) in printed and "best greedy episode" in printed and "sampled" not in printed
    assert (tmp_path / "evaluation-test.jsonl").read_text().count("\n") == 2


def test_a_talk_remembers_what_was_said(trained, monkeypatch, capsys):
    def answers(text, *options):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        assert main(["chat", str(trained), "--agent", "builder_1", "--greedy", "--max-new-tokens", "6", *options]) == 0
        return capsys.readouterr().out

    first = answers("goal gate iron\n")
    both = answers("goal gate iron\nok\n")
    assert both.startswith(first) and len(both) > len(first)


@pytest.mark.parametrize("is_merged", [False, True])
def test_an_exported_adapter_is_the_model_that_was_trained(trained, is_merged, tmp_path, capsys):
    out = tmp_path / "model"
    call = ["export", str(trained), str(out), "--agent", "builder_0", *(["--merge"] if is_merged else [])]
    assert main(call) == 0
    model = AutoModelForCausalLM.from_pretrained(out)
    tokenizer = AutoTokenizer.from_pretrained(out)
    ids = torch.tensor([tokenizer("goal gate iron").input_ids])
    kept = AutoModelForCausalLM.from_pretrained(trained / "agents" / "builder_0")
    base = AutoModelForCausalLM.from_pretrained(TINY_DIRECTORY)
    with torch.no_grad():
        logits = [each(ids).logits for each in (model, kept, base)]
    assert torch.allclose(logits[0], logits[1], atol=1e-5)
    assert not torch.allclose(logits[0], logits[2], atol=1e-5)  # the adapter has learned
    assert (out / "adapter_config.json").is_file() == (not is_merged)
    text = (out / "README.md").read_text()
    words = ("magrpo", ID, "builder_0", "max_turns", "after update")
    assert all(word in text for word in words)
    assert f"library_name: {'transformers' if is_merged else 'peft'}" in text
    assert main(["export", str(trained), str(out)]) == 2  # never over another model
    settings = json.loads((trained / "agents" / "builder_0" / "adapter_config.json").read_text())
    assert (settings["r"], settings["lora_alpha"], settings["target_modules"]) == (2, 6, ["q_proj", "v_proj"])


@pytest.mark.parametrize(
    ("model", "base"), [("tiny", None), ("FOLDER", None), ("mine", None), ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B")]
)
def test_a_card_names_a_base_model_of_the_hub_and_no_path_of_its_author(model, base, trained, tmp_path):
    folder = tmp_path / "secret"
    run = shutil.copytree(trained, folder / "run")
    for name in ("mine", "data"):
        (folder / name).mkdir()
    config = json.loads((run / "config.json").read_text())
    config["model"]["model"] = str(folder / "mine") if model == "FOLDER" else model
    config["config"]["reward_model"] = str(folder / "data")
    config["env_kwargs"]["data"] = str(folder / "data")
    (run / "config.json").write_text(json.dumps(config))
    assert main(["export", str(run), str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "builder_0" / "README.md").read_text()
    assert (f"base_model: {base}\n" in text) if base else ("base_model" not in text.split("---")[1])
    assert "secret" not in text


@pytest.mark.parametrize("options", [[], ["--agent", "builder_0", "--merge"]])
def test_an_export_holds_no_code(options, trained, tmp_path, capsys):
    run, out = tmp_path / "run", tmp_path / "out"
    shutil.copytree(trained, run)
    folder = run / "agents" / "builder_0"
    (folder / "own.py").write_text("print('ran')")
    (folder / "tokenizer_config.json").write_text(json.dumps({"auto_map": {"AutoTokenizer": ["own.Own", None]}}))
    (folder / "sub").mkdir()
    (folder / "sub" / "config.json").write_text(json.dumps({"auto_map": {"AutoConfig": "own.Own"}}))
    assert main(["export", str(run), str(out), *options]) == 0
    assert list(out.rglob("*.py")) == []
    assert [path for path in out.rglob("*.json") if '"auto_map"' in path.read_text()] == []
    assert "own.py" in capsys.readouterr().out


def test_a_file_from_elsewhere_is_not_exported(trained, tmp_path, capsys):
    run = shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "secret").write_text("a key")
    (run / "agents" / "builder_0" / "notes.txt").symlink_to(tmp_path / "secret")
    assert main(["export", str(run), str(tmp_path / "out")]) == 2
    assert "notes.txt is a symbolic link" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_base_elsewhere_is_merged_with_trust_alone(trained, tmp_path, capsys):
    run = shutil.copytree(trained, tmp_path / "run")
    base = shutil.copytree(TINY_DIRECTORY, tmp_path / "base", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    file = run / "agents" / "builder_0" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"base_model_name_or_path": str(base)}))
    call = ["export", str(run), str(tmp_path / "out"), "--agent", "builder_0", "--merge"]
    assert main(call) == 2
    assert str(base) in (told := capsys.readouterr().err) and "--trust" in told
    assert main([*call, "--trust"]) == 0
