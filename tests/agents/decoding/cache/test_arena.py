"""The arena returns to attention what was written, where it was written."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from collm.agents.decoding.cache.arena import Arena, Placement, visibility


def states(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def begun(num_rows=3, length=5, capacity=20):
    """An arena of one layer with `num_rows` sequences of one length, and their keys."""
    arena = Arena(1)
    arena.reserve(num_rows, capacity)
    keys, empty = states(num_rows, 2, length, 4), torch.zeros(0, dtype=torch.int64)
    arena.placement = Placement(slice(0, num_rows), 0, empty, empty, empty, empty)
    arena.update(keys, keys + 1, 0)
    return arena, keys


def test_a_fresh_pass_attends_to_its_own_keys_alone():
    arena, keys = begun()
    seen, values = arena.update(keys, keys + 1, 0)
    assert seen is keys
    assert arena.get_mask_sizes(5, 0) == (5, 0)
    assert torch.equal(values, keys + 1)


def test_a_token_is_written_into_its_rows_own_column():
    arena, keys = begun()
    rows, columns, new = torch.arange(2), torch.tensor([5, 3]), states(2, 2, 1, 4, seed=1)
    arena.placement = Placement(slice(0, 2), 8, rows, torch.zeros(2, dtype=torch.int64), rows, columns)
    seen, _ = arena.update(new, new, 0)
    assert seen.shape == (2, 2, 8, 4)
    assert torch.equal(seen[0, :, 5], new[0, :, 0])
    assert torch.equal(seen[1, :, 3], new[1, :, 0])
    assert torch.equal(seen[0, :, :5], keys[0])


def test_padding_of_an_extension_is_not_written():
    arena, keys = begun()
    new = states(2, 2, 3, 4, seed=1)
    batch, token = torch.tensor([0, 0, 0, 1]), torch.tensor([0, 1, 2, 0])
    rows, columns = torch.tensor([2, 2, 2, 0]), torch.tensor([5, 6, 7, 2])
    arena.placement = Placement(torch.tensor([2, 0]), 8, batch, token, rows, columns)
    seen, _ = arena.update(new, new, 0)
    assert torch.equal(seen[0, :, 5:8], new[0])
    assert torch.equal(seen[1, :, 2], new[1, :, 0])
    assert torch.equal(seen[1, :, 3:5], keys[0, :, 3:5])


def test_rows_can_be_swapped_and_survive_growth():
    arena, keys = begun()
    arena.move(torch.tensor([0, 1]), torch.tensor([1, 0]), 5)
    arena.reserve(7, 100)
    stored = arena.layers[0].keys
    assert stored.shape == (7, 2, 128, 4)
    assert torch.equal(stored[:3, :, :5], keys[[1, 0, 2]])
    assert not stored[3:].any()


def test_a_released_arena_begins_anew():
    arena, keys = begun()
    arena.release()
    arena.reserve(1, 5)
    assert arena.capacity == 64
    arena.update(keys[:1].double(), keys[:1].double(), 0)
    assert arena.layers[0].keys.dtype == torch.float64


def test_visibility_by_hand():
    hidden = torch.finfo(torch.float32).min
    expected = [[[[0, hidden, hidden], [0, 0, hidden]]], [[[0, 0, 0], [0, 0, 0]]]]
    assert visibility(torch.tensor([[0, 1], [2, 5]]), 3, torch.float32).tolist() == expected


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_model_decodes_the_same_through_the_arena(attention):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        attn_implementation=attention,
        bos_token_id=1,
        eos_token_id=2,
    )
    model, ids = LlamaForCausalLM(config).eval(), torch.arange(3, 15)[None]
    arena, empty = Arena(2), torch.zeros(0, dtype=torch.int64)
    arena.reserve(1, 20)
    with torch.inference_mode():
        expected = model(input_ids=ids).logits
        arena.placement = Placement(slice(0, 1), 0, empty, empty, empty, empty)
        model(input_ids=ids[:, :-1], past_key_values=arena, use_cache=True)
        column, zero = torch.tensor([11]), torch.zeros(1, dtype=torch.int64)
        arena.placement = Placement(slice(0, 1), 16, zero, zero, zero, column)
        mask = visibility(column[None], 16, torch.float32)
        output = model(input_ids=ids[:, -1:], position_ids=column[None], attention_mask=mask, past_key_values=arena)
    assert torch.allclose(output.logits[0, -1], expected[0, -1], atol=1e-6)
