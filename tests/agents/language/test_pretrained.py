"""Adapters and GGUF files as models: each start computes the same outputs as the file's author saw, or is refused."""

import json
import shutil
import warnings

import numpy as np
import pytest
import torch
from fakes import byte_tokenizer, random_llama
from gguf import GGMLQuantizationType, GGUFWriter
from peft import AdaLoraConfig, IA3Config, LoraConfig, PeftModel, PromptTuningConfig, get_peft_model
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
)

from collm import _extras
from collm._errors import UserError
from collm.agents.config import ModelConfig
from collm.agents.language.model_files import check_language_model, tokenizer_of
from collm.agents.language.pretrained import load_model
from collm.agents.loading import check_models, load_policies, model_folder, start_lines

AGENTS = ["writer_0", "writer_1"]
IDS = torch.arange(5, 30)[None]


def base_folder(tmp_path, **changes):
    model = random_llama()
    config = model.config
    for name, value in changes.items():
        setattr(config, name, value)
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(tmp_path / "base")
    byte_tokenizer().save_pretrained(tmp_path / "base")
    return tmp_path / "base"


def adapter_folder(tmp_path, settings=None, *, task="CAUSAL_LM", kind=AutoModelForCausalLM, **changes):
    """Save an adapter with large random weights, and return its folder and its model."""
    base = base_folder(tmp_path, **changes)
    settings = LoraConfig(r=4, target_modules=["q_proj", "up_proj"]) if settings is None else settings
    settings.task_type = task
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = get_peft_model(kind.from_pretrained(base), settings)
        torch.manual_seed(1)
        for weight in model.parameters():
            if weight.requires_grad:
                weight.data += torch.randn_like(weight) * 0.3
        model.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter", model.eval()


def logits(model, ids=IDS):
    with torch.no_grad():
        return model(ids)[0]


def policy_logits(policy):
    model = policy.language_model
    with torch.no_grad(), model.passing(policy.adapter):
        return model.base(IDS).logits


PLAIN = [
    {},
    {"use_rslora": True},
    {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"q_proj": 32}},
    {"target_modules": "all-linear"},
    {"target_modules": r".*\.layers\.1\..*_proj"},
    {"target_modules": ["embed_tokens", "lm_head", "q_proj"]},
    {"layers_to_transform": [1], "lora_dropout": 0.5},
]


@pytest.mark.parametrize("is_tied", [False, True])
@pytest.mark.parametrize("changes", PLAIN)
def test_training_continues_a_lora_adapter_or_starts_from_the_merged_weights(changes, is_tied, tmp_path):
    settings = LoraConfig(**{"r": 4, "lora_alpha": 6, "target_modules": ["q_proj", "up_proj"], **changes})
    folder, model = adapter_folder(tmp_path, settings, tie_word_embeddings=is_tied)
    expected = logits(model)
    continued = load_policies(ModelConfig(model=str(folder), weights="adapters"), AGENTS)
    for agent, policy in continued.items():
        torch.testing.assert_close(policy_logits(policy), expected, atol=1e-4, rtol=1e-4)
        policy.save(tmp_path / "saved" / agent)
    num_trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    assert sum(weight.numel() for weight in continued["writer_0"].parameters()) == num_trained
    saved = json.loads((tmp_path / "saved" / "writer_0" / "adapter_config.json").read_text())
    original = json.loads((folder / "adapter_config.json").read_text())
    same = ("r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora", "layers_to_transform", "task_type")
    assert all(saved[name] == original[name] for name in same)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = PeftModel.from_pretrained(
            AutoModelForCausalLM.from_pretrained(tmp_path / "base"), tmp_path / "saved/writer_0"
        )
    torch.testing.assert_close(logits(again), expected)
    for weights in ("own", "shared"):
        policy = load_policies(ModelConfig(model=str(folder), weights=weights), AGENTS)["writer_0"]
        torch.testing.assert_close(policy_logits(policy), expected, atol=1e-4, rtol=1e-4)
        assert all(weight.requires_grad for weight in policy.parameters())
    policy.save(tmp_path / "merged")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(logits(merged), expected, atol=1e-4, rtol=1e-4)


OTHERS = [
    (LoraConfig(r=4, target_modules=["q_proj"], use_dora=True), "use_dora"),
    (LoraConfig(r=4, target_modules=["q_proj"], modules_to_save=["lm_head"]), "modules_to_save"),
    (LoraConfig(r=4, target_modules=["q_proj"], modules_to_save=["embed_tokens"]), "modules_to_save"),
    (LoraConfig(r=4, target_modules=["q_proj"], bias="all"), "bias"),
    (LoraConfig(r=4, target_modules=["q_proj"], trainable_token_indices=[5, 6, 7]), "trainable_token_indices"),
    (IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]), "peft_type"),
    (AdaLoraConfig(total_step=10, target_modules=["q_proj"]), "peft_type"),
]


@pytest.mark.parametrize("is_tied", [False, True])
@pytest.mark.parametrize(("settings", "named"), OTHERS)
def test_other_adapters_are_merged_and_cannot_be_continued(settings, named, is_tied, tmp_path):
    changes = {"tie_word_embeddings": is_tied, "mlp_bias": True, "attention_bias": True}
    folder, model = adapter_folder(tmp_path, settings, **changes)
    merged = load_model(folder)
    torch.testing.assert_close(logits(merged), logits(model), atol=1e-3, rtol=1e-3)
    assert not torch.allclose(logits(merged), logits(AutoModelForCausalLM.from_pretrained(tmp_path / "base")), atol=0.1)
    merged.save_pretrained(tmp_path / "merged")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(logits(again), logits(merged))
    with pytest.raises(UserError, match=named) as raised:
        load_policies(ModelConfig(model=str(folder), weights="adapters"), AGENTS)
    assert "\n" not in str(raised.value)


def test_prompt_tuning_is_refused(tmp_path):
    folder, _ = adapter_folder(tmp_path, PromptTuningConfig(num_virtual_tokens=3))
    with pytest.raises(UserError, match="PROMPT_TUNING"):
        load_policies(ModelConfig(model=str(folder)), AGENTS)


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"lora_rank": 8}, "lora_rank=8"),
        ({"lora_alpha": 3}, "lora_alpha=3"),
        ({"lora_target_modules": ("q_proj",)}, "lora_target_modules"),
    ],
)
def test_settings_that_contradict_a_continued_adapter_are_refused(setting, named, tmp_path):
    folder, _ = adapter_folder(tmp_path)
    with pytest.raises(UserError, match=named):
        load_policies(ModelConfig(model=str(folder), weights="adapters", **setting), AGENTS)
    same = {"lora_rank": 4, "lora_target_modules": ("up_proj", "q_proj")}
    load_policies(ModelConfig(model=str(folder), weights="adapters", **same), AGENTS)


@pytest.mark.parametrize(
    "layers",
    [
        ("self_attn",),
        ("model.layers.0",),
        ("q_proj", ".*v_proj"),
        ("q_proj|v_proj",),
        ("all-linear", "lm_head"),
        ("x.q_proj",),
    ],
)
def test_target_modules_that_are_no_layers_are_refused_before_loading(layers, tmp_path):
    with pytest.raises(UserError, match="lora_target_modules"):
        check_models(ModelConfig(weights="adapters", lora_target_modules=layers), 2)
    check_models(
        ModelConfig(weights="adapters", lora_target_modules=("self_attn.q_proj", "lm_head", "embed_tokens")), 2
    )


def test_a_line_says_how_training_starts_from_an_adapter(tmp_path):
    folder, _ = adapter_folder(tmp_path)
    (continued,) = start_lines(ModelConfig(model=str(folder), weights="adapters"))
    (merged,) = start_lines(ModelConfig(model=f"tiny,{folder}"))
    assert "continues" in continued and "merged" in merged and str(folder) in merged
    assert start_lines(ModelConfig(model="tiny")) == []


def test_damaged_adapters_are_refused(tmp_path):
    folder, _ = adapter_folder(tmp_path)
    file = folder / "adapter_config.json"
    settings = json.loads(file.read_text())
    for changes, named in [
        ({"target_modules": ["q_proj"]}, "adapter"),  # the file has more tensors
        ({"target_modules": ["q_proj", "up_proj", "k_proj"]}, "lack"),
        ({"r": 8}, "cannot be loaded"),
        ({"base_model_name_or_path": str(folder)}, "itself an adapter"),
        ({"base_model_name_or_path": None}, "base_model_name_or_path"),
    ]:
        file.write_text(json.dumps(settings | changes))
        with pytest.raises(UserError, match=named) as raised:
            load_policies(ModelConfig(model=str(folder)), AGENTS)
        assert "\n" not in str(raised.value)


def test_a_critic_reads_the_hidden_states_of_the_adapter(tmp_path):
    folder, model = adapter_folder(tmp_path)
    backbone = load_model(folder, AutoModel)
    expected = model(IDS, output_hidden_states=True).hidden_states[-1]
    torch.testing.assert_close(logits(backbone), expected.detach(), atol=1e-4, rtol=1e-4)
    folder, model = adapter_folder(tmp_path / "features", task="FEATURE_EXTRACTION", kind=AutoModel)
    torch.testing.assert_close(logits(load_model(folder, AutoModel)), logits(model), atol=1e-4, rtol=1e-4)


def test_a_reward_model_can_be_an_adapter_of_a_classifier(tmp_path):
    config = random_llama().config
    config.num_labels, config.pad_token_id = 1, 0
    LlamaForSequenceClassification(config).save_pretrained(tmp_path / "judge")
    judge = AutoModelForSequenceClassification.from_pretrained(tmp_path / "judge")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = get_peft_model(judge, LoraConfig(r=4, target_modules=["q_proj"], task_type="SEQ_CLS"))
        for weight in model.parameters():
            if weight.requires_grad:
                torch.nn.init.normal_(weight)
        model.save_pretrained(tmp_path / "adapter")
    loaded = load_model(tmp_path / "adapter", AutoModelForSequenceClassification, num_labels=1)
    torch.testing.assert_close(logits(loaded), logits(model.eval()), atol=1e-4, rtol=1e-4)


def test_the_reference_of_a_continued_adapter_is_the_adapter_at_the_start(tmp_path):
    folder, model = adapter_folder(tmp_path)
    policies = load_policies(ModelConfig(model=str(folder), weights="adapters"), AGENTS)
    references = {agent: policy.reference() for agent, policy in policies.items()}
    for weight in policies["writer_0"].parameters():
        weight.data += 1
    for reference in references.values():
        torch.testing.assert_close(policy_logits(reference), logits(model))
    assert not torch.allclose(policy_logits(policies["writer_0"]), logits(model), atol=0.1)
    new = load_policies(ModelConfig(model=str(tmp_path / "base"), weights="adapters"), AGENTS)["writer_0"]
    assert new.reference().adapter is None  # a new adapter changes nothing, so the base model is the reference


def write_gguf(file, model):
    """Write a Llama with a byte-level tokenizer."""
    config = model.config
    writer = GGUFWriter(file, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    tokenizer = byte_tokenizer()
    inner = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    words = vocabulary + [f"<unused{index}>" for index in range(config.vocab_size - len(vocabulary))]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(words)
    writer.add_token_types([1] * len(words))
    writer.add_token_merges([" ".join(pair) for pair in inner["model"]["merges"]])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v"}
    names |= {"self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up"}
    names |= {"mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    names |= {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for name, weight in model.state_dict().items():
        for old, new in names.items():
            name = name.replace(old, new)
        name = name.replace("model.layers.", "blk.")
        values = weight.numpy()
        for part, num_heads in heads.items():  # llama.cpp stores pairs of rotary dimensions side by side
            if f".{part}." in name:
                split = values.reshape(num_heads, 2, -1, values.shape[1])
                values = np.ascontiguousarray(split.swapaxes(1, 2)).reshape(values.shape)
        writer.add_tensor(name, values, raw_dtype=GGMLQuantizationType.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


@pytest.mark.parametrize("is_file", [False, True])
def test_a_gguf_file_is_a_model_in_float32_that_can_be_trained_and_saved(is_file, tmp_path):
    model = random_llama()
    file = write_gguf(tmp_path / "small.gguf", model)
    name = str(file if is_file else tmp_path)
    policy = load_policies(ModelConfig(model=name), AGENTS)["writer_0"]
    assert all(weight.dtype == torch.float32 and weight.requires_grad for weight in policy.parameters())
    torch.testing.assert_close(policy_logits(policy), logits(model))
    policy.save(tmp_path / "saved")
    torch.testing.assert_close(logits(AutoModelForCausalLM.from_pretrained(tmp_path / "saved")), logits(model))
    adapted = load_policies(ModelConfig(model=name, weights="adapters", lora_rank=2), AGENTS)["writer_1"]
    for weight in adapted.parameters():
        weight.data += 0.1
    adapted.save(tmp_path / "adapted")
    torch.testing.assert_close(logits(load_model(tmp_path / "adapted")), policy_logits(adapted), atol=1e-4, rtol=1e-4)


def test_one_of_several_gguf_files_must_be_named_and_complete_folders_are_preferred(tmp_path, monkeypatch):
    for name in ("a.gguf", "b.GGUF"):
        write_gguf(tmp_path / name, random_llama())
    with pytest.raises(UserError, match=r"a\.gguf, b\.GGUF"):
        model_folder(str(tmp_path))
    assert model_folder(str(tmp_path / "b.GGUF")) == tmp_path / "b.GGUF"
    with pytest.raises(FileNotFoundError, match=r"c\.gguf"):
        model_folder(str(tmp_path / "c.gguf"))
    base = base_folder(tmp_path)
    shutil.copy(tmp_path / "a.gguf", base)
    assert model_folder(str(base)) == base
    (base / "model.safetensors").unlink()
    assert model_folder(str(base)) == base / "a.gguf"


def test_a_gguf_file_without_its_package_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(_extras, "find_spec", lambda name: None)
    monkeypatch.setattr(_extras, "_extras", lambda: {"gguf": "gguf"})
    with pytest.raises(ModuleNotFoundError) as raised:
        load_policies(ModelConfig(model=str(tmp_path)), AGENTS)
    assert str(raised.value).endswith(_extras.install_command("gguf"))


def test_damaged_gguf_files_are_refused_in_one_line(tmp_path):
    (tmp_path / "a.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(UserError, match=r"a\.gguf") as raised:
        load_policies(ModelConfig(model=str(tmp_path)), AGENTS)
    assert "\n" not in str(raised.value)


def test_tokens_beyond_the_embeddings_are_refused_with_their_id(tmp_path):
    base = base_folder(tmp_path)
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens([f"<added{index}>" for index in range(60)])
    tokenizer.save_pretrained(base)
    with pytest.raises(UserError, match=r"resize_token_embeddings") as raised:
        load_policies(ModelConfig(model=str(base)), AGENTS)
    assert str(base) in str(raised.value) and "<added59>" in str(raised.value)


@pytest.mark.parametrize("setting", ["pad_token_id", "bos_token_id", "eos_token_id"])
def test_special_tokens_outside_of_the_vocabulary_are_refused(setting, tmp_path):
    base = base_folder(tmp_path)
    file = base / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {setting: 340}))
    with pytest.raises(UserError, match=setting):
        load_policies(ModelConfig(model=str(base)), AGENTS)


def test_an_adapter_without_a_tokenizer_has_the_tokenizer_of_its_base_model(tmp_path):
    folder, _ = adapter_folder(tmp_path)
    assert not list(folder.glob("tokenizer*"))
    assert tokenizer_of(folder, check_language_model(folder)).get_vocab() == byte_tokenizer().get_vocab()
