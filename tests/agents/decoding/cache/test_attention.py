"""Query heads that share keys and values attend to them without a copy of these."""

import copy

import pytest
import torch
from architectures import SMALL, model_of
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.integrations import sdpa_attention

from collm.agents.decoding.cache.arena import visibility
from collm.agents.decoding.cache.attention import NAME, attention_to_kept, own_attention
from collm.agents.decoding.decoder import Decoder, Prompt
from collm.agents.decoding.sampling import Sampling


def normal(*shape, seed):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("num_kept", [1, 2, 6])
@pytest.mark.parametrize("num_tokens", [1, 3])
def test_attention_is_a_softmax_over_what_the_mask_shows(num_kept, num_tokens):
    query, key, value = (
        normal(5, 6, num_tokens, 8, seed=1),
        normal(5, num_kept, 9, 8, seed=2),
        normal(5, num_kept, 9, 8, seed=3),
    )
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
    decoder = Decoder(model, stop_ids=[])
    first = Prompt([3, 4, 5], (0,), max_new_tokens=4, parked="a")
    expected = [sample.ids.tolist() for sample in decoder.generate([first], Sampling())]
    longer = Prompt([3, 4, 5, *expected[0], 7, 8, 9], (1,), max_new_tokens=4, parked="a")
    expected += [sample.ids.tolist() for sample in decoder.generate([longer], Sampling())]

    def repeated(states, times):
        pytest.fail(f"keys or values of {states.shape} are repeated {times} times")

    monkeypatch.setattr(sdpa_attention, "repeat_kv", repeated)
    decoder.forget()
    again = [sample.ids.tolist() for prompt in (first, longer) for sample in decoder.generate([prompt], Sampling())]
    assert again == expected
    with pytest.raises(pytest.fail.Exception, match="repeated 2 times"):
        model(torch.zeros(1, 2, dtype=torch.int64), attention_mask=torch.zeros(1, 1, 2, 2))


def test_only_models_with_torchs_attention_are_told_to():
    own = LlamaForCausalLM(LlamaConfig(**{**SMALL, "num_key_value_heads": SMALL["num_attention_heads"]}))
    eager = model_of("llama")
    eager.set_attn_implementation("eager")
    elsewhere = copy.deepcopy(own).to("meta")
    for model, inside in ((model_of("llama"), NAME), (own, NAME), (elsewhere, "sdpa"), (eager, "eager")):
        before = model.config._attn_implementation
        with pytest.raises(RuntimeError, match="of the block"), own_attention(model):
            assert model.config._attn_implementation == inside
            raise RuntimeError("of the block")
        assert model.config._attn_implementation == before
