"""The KV cache returns stored keys and values, and attention to it equals torch's."""

import copy
from unittest.mock import Mock

import pytest
import torch
from architectures import SMALL, model_of
from decoded import assert_same, next_turn
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.integrations import sdpa_attention

from collm.agents.decoding.decoder import Decoder, Prompt
from collm.agents.decoding.kv_cache import NAME, Arena, Placement, attention_to_kept, own_attention, visibility
from collm.agents.decoding.sampling import Sampling


def states(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def begun(num_rows=3, length=5, capacity=20):
    """An arena of one layer with `num_rows` sequences of one length, and their keys."""
    arena = Arena(1)
    arena.reserve(num_rows, capacity)
    keys, empty = states(num_rows, 2, length, 4), torch.zeros(0, dtype=torch.int64)
    arena.placement = Placement(slice(0, num_rows), 0, empty, empty, empty, empty)
    arena.update(keys, keys + 1, 0)
    return arena, keys


def test_padding_of_an_extension_is_not_written_nor_visible():
    arena, keys = begun()
    new = states(2, 2, 3, 4, seed=1)
    batch, token = torch.tensor([0, 0, 0, 1]), torch.tensor([0, 1, 2, 0])
    rows, columns = torch.tensor([2, 2, 2, 0]), torch.tensor([5, 6, 7, 2])
    arena.placement = Placement(torch.tensor([2, 0]), 8, batch, token, rows, columns)
    seen, _ = arena.update(new, new, 0)
    assert torch.equal(seen[0, :, 5:8], new[0])
    assert torch.equal(seen[1, :, 2], new[1, :, 0])
    assert torch.equal(seen[1, :, 3:5], keys[0, :, 3:5])
    hidden = torch.finfo(torch.float32).min
    expected = [[[[0, hidden, hidden], [0, 0, hidden]]], [[[0, 0, 0], [0, 0, 0]]]]
    assert visibility(torch.tensor([[0, 1], [2, 5]]), 3, torch.float32).tolist() == expected


def test_rows_can_be_swapped_and_survive_growth_until_the_arena_is_released():
    arena, keys = begun()
    arena.move(torch.tensor([0, 1]), torch.tensor([1, 0]), 5)
    arena.reserve(7, 100)
    stored = arena.layers[0].keys
    assert stored.shape == (7, 2, 128, 4)
    assert torch.equal(stored[:3, :, :5], keys[[1, 0, 2]])
    assert not stored[3:].any()
    arena.release()
    arena.reserve(1, 5)
    assert arena.capacity == 64
    arena.update(keys[:1].double(), keys[:1].double(), 0)
    assert arena.layers[0].keys.dtype == torch.float64


@pytest.mark.parametrize("num_kept", [1, 2, 6])
@pytest.mark.parametrize("num_tokens", [1, 3])
def test_attention_is_a_softmax_over_what_the_mask_shows(num_kept, num_tokens):
    query = states(5, 6, num_tokens, 8, seed=1, dtype=torch.float64)
    key, value = states(2, 5, num_kept, 9, 8, seed=2, dtype=torch.float64)
    columns = torch.arange(5)[:, None] + torch.arange(num_tokens)
    mask = visibility(columns, 9, torch.float64)
    found, weights = attention_to_kept(torch.nn.Module(), query, key, value, mask, dropout=0.0, scaling=0.3)
    assert found.shape == (5, num_tokens, 6, 8) and weights is None
    for row in range(5):
        for head in range(6):
            shared = head // (6 // num_kept)
            for token in range(num_tokens):
                seen = int(columns[row, token]) + 1
                scores = functional.softmax(0.3 * key[row, shared, :seen] @ query[row, head, token], 0)
                assert torch.allclose(found[row, token, head], scores @ value[row, shared, :seen], atol=1e-12)


def test_neither_steps_nor_extensions_repeat_keys(monkeypatch):
    model = model_of("llama")
    first = Prompt([3, 4, 5], (0,), max_new_tokens=4, parked="a")

    def generate(decoder):
        said = decoder.generate([first], Sampling())
        return said + decoder.generate(next_turn([first], said), Sampling())

    expected = generate(Decoder(model, stop_ids=[]))
    monkeypatch.setattr(sdpa_attention, "repeat_kv", Mock(side_effect=AssertionError("repeated")))
    assert_same(generate(Decoder(model, stop_ids=[])), expected)
    with pytest.raises(AssertionError, match="repeated"):  # transformers' own attention repeats keys
        model(torch.zeros(1, 2, dtype=torch.int64), attention_mask=torch.zeros(1, 1, 2, 2))


def test_only_models_with_torchs_attention_are_told_to():
    own = LlamaForCausalLM(LlamaConfig(**{**SMALL, "num_key_value_heads": SMALL["num_attention_heads"]}))
    elsewhere = copy.deepcopy(own).to("meta")
    for model, inside in ((model_of("llama"), NAME), (own, NAME), (elsewhere, "sdpa"), (model_of("eager"), "eager")):
        before = model.config._attn_implementation
        with pytest.raises(RuntimeError, match="of the block"), own_attention(model):
            assert model.config._attn_implementation == inside
            raise RuntimeError("of the block")
        assert model.config._attn_implementation == before
