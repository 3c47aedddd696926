"""Untrusted model folders: custom code is not run, and errors are one line."""

import builtins
import json
import shutil

import pytest

from collm.agents.config import ModelConfig
from collm.agents.language.model_files import check_language_model
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
        ("config.json", {"vocab_size": 2**40}, "cannot be loaded"),
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
