import contextlib
import math

import pytest
import torch
from architectures import smallest_model
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from collm._errors import UserError
from collm.agents.language.shape import KNOWN, ModelShape
from collm.agents.loading import with_adapters
from collm.agents.scoring.recomputing import recompute_layers

SIZES = {"vocab_size": 100, "hidden_size": 96, "intermediate_size": 320, "num_hidden_layers": 3}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2}
CONFIGS = {
    "qwen3": AutoConfig.for_model("qwen3", **SIZES, head_dim=32, tie_word_embeddings=True),
    "llama": AutoConfig.for_model("llama", **SIZES, tie_word_embeddings=False),
}
RANK = 8
TOKENS = 512


def kept_bytes(config, compute, is_adapted, recomputes):
    """Bytes that one forward pass saves for the backward pass, except weights and their casts."""
    dtype = compute if is_adapted and compute is not None else torch.float32
    # peft cannot build adapters on tensors without data
    with contextlib.nullcontext() if is_adapted else FakeTensorMode():
        model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
        if recomputes:
            recompute_layers(model)
        wrapped = with_adapters(model, ["fox"], RANK) if is_adapted else model
        weights = {shape for weight in wrapped.parameters() for shape in (weight.shape, weight.shape[::-1])}
        seen, alive = {}, []

        def pack(tensor):
            alive.append(tensor)  # otherwise another tensor may get its address
            if not isinstance(tensor, nn.Parameter) and tensor.shape not in weights:
                seen[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
            return tensor

        ids = torch.zeros(1, TOKENS, dtype=torch.long)
        with (
            torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
            torch.autocast("cpu", dtype=compute, enabled=compute is not None),
        ):
            model.base_model(input_ids=ids, use_cache=False)
    return sum(seen.values())


@pytest.mark.parametrize("recomputes", [False, True])
@pytest.mark.parametrize("is_adapted", [False, True])
@pytest.mark.parametrize("compute", [None, torch.bfloat16])
@pytest.mark.parametrize("kind", CONFIGS)
def test_activations_are_the_tensors_that_a_forward_pass_saves(kind, compute, is_adapted, recomputes):
    counted = kept_bytes(CONFIGS[kind], compute, is_adapted, recomputes) / TOKENS
    # without data a mask is always made
    given = {"rank": RANK, "row_length": 0} if is_adapted else {"rank": 0, "row_length": TOKENS}
    shape = ModelShape.of(CONFIGS[kind])
    planned = shape.kept_per_token(4 if compute is None else 2, recomputes=recomputes, **given)
    assert planned == pytest.approx(counted, rel=0.02)


def test_kernels_keep_one_tensor_less_per_norm_and_feed_forward_layer():
    shape = ModelShape.of(next(iter(CONFIGS.values())))
    trained, adapted = ([shape.kept_per_layer(4, rank=r, is_fused=fused) for fused in (False, True)] for r in (0, RANK))
    assert trained[0] - trained[1] == 4 * (2 * shape.hidden + shape.feed_forward)
    assert adapted[0] - adapted[1] == 4 * shape.feed_forward


@pytest.mark.parametrize(
    "config", [*CONFIGS.values(), AutoConfig.for_model("gpt2", n_embd=32, n_layer=2, n_head=2, vocab_size=50)]
)
def test_weights_are_counted_without_loading_them(config):
    model = AutoModelForCausalLM.from_config(config)
    shape = ModelShape.of(config)
    assert shape.num_weights == sum(weight.numel() for weight in model.parameters())
    assert shape.backbone().num_weights == sum(weight.numel() for weight in model.base_model.parameters())
    for sizes, part in ((shape, model), (shape.backbone(), model.base_model)):
        assert sizes.num_pinned == sum(2 ** math.ceil(math.log2(weight.numel())) for weight in part.parameters())


def test_encoders_have_no_output_matrix_and_known_models_their_published_sizes():
    config = AutoConfig.for_model("distilbert", dim=32, n_layers=2, n_heads=2, hidden_dim=64, vocab_size=50)
    model = AutoModel.from_config(config)
    assert ModelShape.of(config).backbone().num_weights == sum(weight.numel() for weight in model.parameters())
    for name, (billions, linear, kept) in {
        "Qwen/Qwen3-0.6B": (0.6, 0.44, 28 * 2 * 8 * 128 * 2),
        "Qwen/Qwen3-1.7B": (1.7, 1.4, 28 * 2 * 8 * 128 * 2),
        "Qwen/Qwen3-4B": (4.0, 3.6, 36 * 2 * 8 * 128 * 2),
        "Qwen/Qwen3-8B": (8.2, 6.95, 36 * 2 * 8 * 128 * 2),
    }.items():
        shape = ModelShape.of(AutoConfig.for_model(**KNOWN[name]))
        embedded = shape.num_embedded * (1 if shape.is_tied else 2)
        assert shape.num_weights / 1e9 == pytest.approx(billions, abs=0.05)
        assert (shape.num_weights - embedded) / 1e9 == pytest.approx(linear, abs=0.05)
        assert shape.kv_per_token(2) == kept


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "float8_e4m3fn"},
        {"rms_norm_eps": float("nan")},
        {"model_type": "mamba"},
        {"model_type": "mamba2", "num_heads": 3},
    ],
)
def test_settings_without_effect_on_sizes_are_accepted(changes):
    config = AutoConfig.for_model(**{"model_type": "llama", **SIZES, **changes})
    assert ModelShape.of(config).num_weights > 0 and ModelShape.of(config) is ModelShape.of(config)


@pytest.mark.parametrize("kind", ["gemma3n_text", "gemma4_text"])
def test_the_largest_layer_counts_if_layers_have_different_sizes(kind):
    model = smallest_model(kind)
    shape = ModelShape.of(model.config)
    assert shape.num_weights == sum(weight.numel() for weight in model.parameters())
    assert shape.key == max(layer.out_features for name, layer in model.named_modules() if name.endswith("k_proj"))


@pytest.mark.parametrize("changes", [{"hidden_act": "nope"}, {"rope_parameters": {"rope_type": "nope"}}])
def test_settings_with_which_no_model_can_be_built_are_refused(changes):
    with pytest.raises(UserError, match="KeyError 'nope'"):
        ModelShape.of(AutoConfig.for_model("llama", **SIZES, **changes))


@pytest.mark.parametrize("kind", CONFIGS)
def test_adapters_are_counted_as_peft_makes_them(kind):
    adapted = with_adapters(AutoModelForCausalLM.from_config(CONFIGS[kind]), ["fox"], RANK)
    count = sum(weight.numel() for name, weight in adapted.named_parameters() if "lora_" in name)
    assert ModelShape.of(CONFIGS[kind]).adapter_weights(RANK) == count
