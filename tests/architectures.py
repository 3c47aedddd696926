"""Small models of several families, from random weights."""

from dataclasses import fields
from typing import Any

import torch
from fakes import random_llama
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

SMALL: dict[str, Any] = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
SMALL |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
SMALL |= {"initializer_range": 0.15}
PROPHETNET = {"vocab_size": 97, "hidden_size": 32, "decoder_ffn_dim": 64, "num_decoder_layers": 2}
PROPHETNET |= {"num_decoder_attention_heads": 4, "is_decoder": True, "init_std": 0.15}
REFORMER = {"vocab_size": 340, "hidden_size": 32, "axial_pos_embds": False, "attention_head_size": 8}
REFORMER |= {"local_attn_chunk_length": 16, "lsh_attn_chunk_length": 16, "attn_layers": ["local", "lsh"]}
REFORMER |= {"feed_forward_size": 64, "num_attention_heads": 4, "is_decoder": True}
HYBRID = {"layers_block_type": ["linear_attention", "hybrid"] * 2, "num_hidden_layers": 4, "num_key_value_heads": 4}
COMPASS_ROPE = {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {  # type of model in transformers, and its settings
    "gpt2": ("gpt2", {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}),
    "mamba": ("mamba", {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "expand": 1}),
    "qwen2": ("qwen2", SMALL),
    "qwen3": ("qwen3", SMALL | {"head_dim": 8}),
    "olmo": ("olmo", SMALL),
    "windowed": ("mistral", SMALL | {"sliding_window": 16}),
    # windows in every other layer, and capped logits
    "gemma2": ("gemma2", SMALL | {"head_dim": 8, "sliding_window": 12}),
    # the head reads a part of `base_model`, whose hidden states have another size than `hidden_size`
    "opt": ("opt", SMALL | {"ffn_dim": 64, "word_embed_proj_dim": 16}),
    "bart": ("bart", {"vocab_size": 97, "d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4}),
    # RoPE with angles of half a head, sinks and experts
    "gpt_oss": ("gpt_oss", SMALL | {"head_dim": 8, "sliding_window": 12, "num_local_experts": 4}),
    # a cache with a window, but attention without one
    "moshi": ("moshi", SMALL | {"head_dim": 8, "ffn_dim": 64, "sliding_window": 12}),
    "bidirectional": ("bert-generation", SMALL),
    "prophetnet": ("prophetnet", PROPHETNET),  # the number of later tokens changes the logits
    "reformer": ("reformer", REFORMER),  # trained in training mode only
}
GENERAL: dict[str, Any] = {  # usual names of settings, for small models of any type
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), 340),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embedding_size", "emb_dim", "lru_width"), 32),
    **dict.fromkeys(("word_embed_proj_dim", "moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "decoder_ffn_dim", "n_inner", "d_ff", "ffn_hidden_size"), 64),
    **dict.fromkeys(("expert_ffn_hidden_size", "mamba_d_ssm"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_decoder_layers", "num_key_value_heads", "linear_num_key_heads", "num_experts_per_tok"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("num_decoder_attention_heads", "linear_num_value_heads", "linear_num_heads"), 4),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "rotary_dim", "qk_rope_head_dim"), 4),
    "qk_nope_head_dim": 4,
    **dict.fromkeys(("head_dim", "v_head_dim", "index_head_dim", "linear_head_dim", "linear_key_head_dim"), 8),
    **dict.fromkeys(("linear_value_head_dim", "mamba_n_heads", "mamba_d_head", "mamba_d_state"), 8),
    **dict.fromkeys(("mamba_num_heads", "mamba_head_dim", "state_size", "hidden_size_per_layer_input"), 8),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "index_topk", "sliding_window"), 16),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 512),
    **dict.fromkeys(("pad_token_id", "eos_token_id", "bos_token_id"), 0),
    **dict.fromkeys(("n_group", "topk_group"), 1),
    "index_n_heads": 32,  # with few heads, many tokens have a score of 0, and later tokens change the selection
    "initializer_range": 0.15,
    "is_decoder": True,
}
FULL_HEADS = {"num_key_value_heads": 4}
BY_HAND: dict[str, dict[str, Any]] = {  # other settings of configurations
    "axk1": {"head_dim": 4},
    "axk2": FULL_HEADS,
    "bamba": {"attn_layer_indices": [1]},
    "cohere_compass_text": {"layer_types": ["full_attention"] * 2, "rope_parameters": COMPASS_ROPE},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 10000.0},
        "ffn_config": {"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "deepseek_v32": FULL_HEADS,
    "dots1": {"n_shared_experts": 1},
    "dots3_note_text": FULL_HEADS | {"swa_num_attention_heads": 4, "swa_num_key_value_heads": 4},
    "gemma3n_text": {
        "num_kv_shared_layers": 0,
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "glm_moe_dsa": FULL_HEADS,
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": 2, "window_size": 16},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "longcat_flash": {"head_dim": 4, "qk_head_dim": 8, "moe_topk": 2, "zero_expert_num": 2},
    "mamba2": {"num_heads": 8, "n_groups": 2},
    "phi4_multimodal": {"eos_token_id": 1},  # transformers replaces 0 by ids of the published models
    "qwen4_exp_text": {
        "indexer_n_heads": 16,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 8,
        "indexer_budget": 16,
        "indexer_compress_ratio": 4,
    },
    "recurrent_gemma": {"num_hidden_layers": 3, "attention_window_size": 16},
    "reformer": REFORMER,
    "xmod": {"default_language": "en_XX"},
    "zamba": HYBRID | {"attention_head_dim": 16},
    "zamba2": HYBRID | {"mamba_ngroups": 1},
    "zaya": {"num_experts_per_tok": 1, "layer_types": ["hybrid", "hybrid_sliding"], "router_hidden_size": 16},
}
MAX_WEIGHTS = 15_000_000


def model_of(name: str) -> PreTrainedModel:
    torch.manual_seed(0)
    if name in KINDS:
        kind, settings = KINDS[name]
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **settings)).eval()
    llama = random_llama(vocab_size=97).eval()
    if name == "eager":
        llama.set_attn_implementation("eager")
    return llama


def small_settings(config: PreTrainedConfig) -> dict[str, Any]:
    """Return settings of a small model. `config`: default configuration of the model, or of a part of the model."""
    names = {field.name for field in fields(config)} - type(config).attribute_map.keys()
    settings = {name: value for name, value in GENERAL.items() if name in names}
    if "layer_types" in names and getattr(config, "layer_types", None):
        kinds = list(dict.fromkeys(config.layer_types))  # one layer of each kind
        kinds = kinds if len(kinds) > 1 else kinds * 2
        settings |= {"layer_types": kinds, "num_hidden_layers": len(kinds)}
    for name in config.sub_configs:
        part = getattr(config, name, None)
        if isinstance(part, PreTrainedConfig):
            settings[name] = small_settings(part)
    return settings | BY_HAND.get(config.model_type, {})


def smallest_model(kind: str) -> PreTrainedModel:
    """Return a small random model of any type of transformers. Raise an error if `GENERAL` and `BY_HAND` do not fit."""
    config = AutoConfig.for_model(kind, **small_settings(AutoConfig.for_model(kind)))
    with torch.device("meta"):
        num_weights = sum(weight.numel() for weight in AutoModelForCausalLM.from_config(config).parameters())
    assert num_weights < MAX_WEIGHTS, f"{kind} has {num_weights} weights"
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()


def adapted_model(name: str = "llama", **left: Any) -> PeftModel:
    """Return a model with random LoRA adapters "left" and "right". `left`: changed settings of the adapter "left"."""
    base = model_of(name)
    model = get_peft_model(base, LoraConfig(r=4, target_modules="all-linear", **left), adapter_name="left")
    right = ["c_attn"] if name == "gpt2" else ["q_proj", "up_proj"]
    model.add_adapter("right", LoraConfig(r=2, lora_alpha=3, target_modules=right))
    for parameter, weight in model.named_parameters():
        if "lora_B" in parameter:
            nn.init.normal_(weight, std=0.3)
        weight.requires_grad_("lora" in parameter)
    return model.eval()
