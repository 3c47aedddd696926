"""Untrusted model folders: custom code is not run, and errors are one line."""

import builtins
import json
import logging
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from collm._errors import UserError
from collm.agents.config import ModelConfig
from collm.agents.language.model_files import check_critic_model, check_language_model
from collm.agents.loading import load_policies
from collm.agents.tiny import TINY_DIRECTORY

FOREIGN = dict.fromkeys(("AutoConfig", "AutoModelForCausalLM"), "own_code.Own")
FOREIGN |= {"AutoTokenizer": ["own_code.Own", None]}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A copy of the embedded model with a module that writes a file. A question on standard input fails."""
    ignored = shutil.ignore_patterns("*.py", "__pycache__")
    made = shutil.copytree(TINY_DIRECTORY, tmp_path / "model", ignore=ignored)
    (made / "own_code.py").write_text(f"open({str(tmp_path / 'RAN')!r}, 'w')\n\n\nclass Own:\n    pass\n")
    monkeypatch.setattr(builtins, "input", lambda *text: pytest.fail(f"a question: {text}"))
    return made


def change(file, **changes: object) -> None:
    found = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps(found | changes))


def load(folder) -> None:
    load_policies(ModelConfig(model=str(folder)), ["writer_0"])


@pytest.mark.parametrize(
    ("file", "changes", "named"),
    [
        ("config.json", {"model_type": "own", "auto_map": FOREIGN}, "auto_map"),
        ("tokenizer_config.json", {"tokenizer_class": "Own", "auto_map": FOREIGN}, "auto_map"),
        ("tokenizer_config.json", {"model_max_length": [3]}, "tokenizer"),
        ("config.json", {"attn_implementation": "owner/kernel"}, "owner/kernel"),
        ("config.json", {"_attn_implementation": "owner/kernel:attend"}, "owner/kernel"),
        ("config.json", {"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ("config.json", {"num_hidden_layers": 1}, r"'layers\.1'.*num_hidden_layers"),
        ("config.json", {"num_hidden_layers": 0}, "num_hidden_layers=0"),
        ("config.json", {"hidden_act": "nope"}, "KeyError 'nope'"),
        ("config.json", {"rms_norm_eps": float("nan")}, "not finite"),
        ("config.json", {"quantization_config": {"quant_method": "nope"}}, "quant_method='nope'"),
        ("config.json", {"vocab_size": "few"}, "vocab_size.*expected int"),
        ("config.json", {"intermediate_size": 255}, r"'model\.layers.*\(128, 256\).*\(128, 255\)"),
        ("config.json", {"eos_token_id": 931}, "eos_token_id"),
        ("config.json", {"vocab_size": 2**40}, "cannot be loaded"),
        ("model.safetensors.index.json", {"weight_map": {}}, "weight_map"),
        ("config.json", {"pad_token_id": 2**20}, "pad_token_id=1048576"),
        ("adapter_config.json", {"megatron_config": {"a": 1}, "megatron_core": "own_code"}, "megatron_config"),
        ("model.safetensors.index.json", {"weight_map": {"x": "../other/model.safetensors"}}, "weight_map"),
    ],
)
def test_custom_code_and_inconsistent_files_are_refused(folder, tmp_path, monkeypatch, file, changes, named):
    monkeypatch.syspath_prepend(folder)
    change(folder / file, **changes)
    with pytest.raises(ValueError, match=named) as raised:
        load(folder)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "RAN").exists()


def test_custom_code_of_a_known_architecture_is_not_run_and_a_truncated_file_reported(folder, tmp_path):
    change(folder / "config.json", auto_map=FOREIGN)
    change(folder / "tokenizer_config.json", auto_map=FOREIGN)
    load(folder)
    assert not (tmp_path / "RAN").exists()
    file = folder / "generation_config.json"
    check_language_model(folder)  # without a warning
    file.write_text(file.read_text()[:20])
    with pytest.warns(UserWarning, match=r"generation_config\.json.*without it"):
        check_language_model(folder)


def test_layers_that_predict_several_tokens_may_be_left_out(folder):
    change(folder / "config.json", num_hidden_layers=1, num_nextn_predict_layers=1)
    load(folder)


def test_shards_that_lack_a_tensor_of_the_index_are_refused(folder):
    model = AutoModelForCausalLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="600KB")
    load(folder)
    (folder / "model-00002-of-00005.safetensors").unlink()
    for check in (check_language_model, check_critic_model):
        with pytest.raises(UserError, match=r"model\.layers\.0.* in model-00002-of-00005"):
            check(folder)


def test_a_pickled_file_is_refused_without_advice_to_run_it(folder):
    (folder / "model.safetensors").unlink()
    torch.save({"x": Path}, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="safetensors") as raised:
        load(folder)
    assert "weights_only" not in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"model_type": "bert"}, "encoder"),
        ({"model_type": "t5", "is_encoder_decoder": True}, "encoder-decoder"),
    ],
)
def test_critics_that_are_not_causal_or_not_complete_are_refused_before_loading(folder, changes, named):
    change(folder / "config.json", **changes)
    with pytest.raises(UserError, match=named):
        check_critic_model(folder)


def test_a_tokenizer_that_finds_no_token_is_refused(folder):
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer"}')
    with pytest.raises(UserError, match=r"tokenizer.*empty"):
        load(folder)


def test_the_table_of_transformers_is_not_printed(folder, caplog):
    log = logging.getLogger("transformers.modeling_utils")
    log.addHandler(caplog.handler)
    change(folder / "config.json", num_hidden_layers=1, num_nextn_predict_layers=1)
    load(folder)
    log.removeHandler(caplog.handler)
    assert "UNEXPECTED" not in caplog.text
