from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from architectures import model_of
from decoded import assert_same, next_turn, ragged_prompts, stores
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from collm._errors import UserError
from collm.agents.decoding.decoder import Decoder
from collm.agents.decoding.sampling import Sampling
from collm.agents.encoding import TokenRecord
from collm.agents.scoring.packing import PackedRow
from collm.agents.scoring.scorer import Scorer

LAYERS, HEADS, HEAD_DIM = 2, 2, 8
COLUMNS = 64  # capacity of a row, which is a multiple of 64
ROW_GIB = LAYERS * 2 * HEADS * HEAD_DIM * 4 * COLUMNS / 2**30


@pytest.fixture(scope="module")
def model():
    return model_of("llama")


def prompts(count=9, **settings):
    return ragged_prompts(count, **({"max_new_tokens": 20} | settings))


def test_keys_and_values_lie_in_the_type_of_autocast(model):
    decoder = Decoder(model, [3])
    with torch.autocast("cpu", torch.bfloat16):
        decoder.generate(prompts(), Sampling())
    assert {store.dtype for store in stores(decoder)} == {torch.bfloat16}
    decoder.generate(prompts(), Sampling())
    assert {store.dtype for store in stores(decoder)} == {torch.float32}
    with torch.autocast("cpu", torch.bfloat16):
        decoder, scorer = Decoder(model, [3]), Scorer(model)
        decoder.generate(prompts(), Sampling())
    assert decoder.kv_bytes > 0
    assert scorer.shares_prompts


class Casts(TorchDispatchMode):
    """Counts casts of weights."""

    def __init__(self, model):
        super().__init__()
        self.count = 0
        self._weights = {weight.data_ptr() for weight in model.parameters() if weight.dim() == 2}

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        is_cast = "aten::to" in operation.name() or "_to_copy" in operation.name()
        self.count += is_cast and args[0].data_ptr() in self._weights
        return operation(*args, **(kwargs or {}))


def test_weights_are_cast_once_and_not_at_every_step(model, monkeypatch):
    """In inference mode autocast does not cache cast weights."""
    decoder, said, casts = Decoder(model, []), {}, {}
    for way in ("by autocast", "once"):
        with monkeypatch.context() as patch, torch.autocast("cpu", torch.bfloat16), Casts(model) as counted:
            if way == "by autocast":
                patch.setattr(decoder._engine, "casting", nullcontext)
            said[way] = decoder.generate(prompts(4), Sampling())
        casts[way] = counted.count
    num_layers = 7 * LAYERS + 1
    assert casts["once"] == num_layers
    assert casts["by autocast"] > 20 * (num_layers - 1)
    once, by_autocast = ([each.logprobs.tobytes() for each in said[way]] for way in ("once", "by autocast"))
    assert once == by_autocast
    assert not any("forward" in vars(layer) for layer in model.modules() if isinstance(layer, nn.Linear))
    decoder.rest()
    assert decoder._engine.casts is None


@pytest.mark.parametrize("release", [Decoder.rest, Decoder.forget])
def test_memory_is_given_back_and_nothing_else_changes(model, release):
    decoder = Decoder(model, [3])
    first = decoder.generate(prompts(), Sampling())
    assert decoder.kv_bytes > 0
    release(decoder)
    assert decoder.kv_bytes == 0
    again = decoder.generate(prompts(), Sampling())
    assert_same(again, first)


@pytest.mark.parametrize("num_rows", [1, 3])
def test_as_many_rows_are_decoded_at_a_time_as_memory_is_given_for(model, num_rows):
    asked = prompts(parks=True)
    free, bound = Decoder(model, [3]), Decoder(model, [3], kv_memory=(num_rows + 0.5) * ROW_GIB)
    widest = []
    step = bound._engine.step
    bound._engine.step = lambda tokens, *others: widest.append(len(tokens)) or step(tokens, *others)
    for _ in range(3):
        expected, found = free.generate(asked, Sampling()), bound.generate(asked, Sampling())
        assert_same(found, expected)
        assert bound.kv_bytes == num_rows * ROW_GIB * 2**30 and bound.kv_bytes < free.kv_bytes
        asked = [replace(each, ids=each.ids[-40:]) for each in next_turn(asked, found)]
    assert max(widest) == num_rows


def test_longer_sequences_leave_room_for_fewer_and_for_at_least_one(model):
    decoder = Decoder(model, [3], kv_memory=8.5 * ROW_GIB)
    decoder.generate(prompts(), Sampling())
    assert len(stores(decoder)[0]) == 8
    decoder.generate(prompts(max_new_tokens=200), Sampling())
    assert stores(decoder)[0].shape[::2] == (2, 4 * COLUMNS)
    decoder = Decoder(model, [3], kv_memory=0.9 * ROW_GIB)
    with pytest.raises(UserError, match=r"one sequence of .* GiB.*kv_memory=.*; raise kv_memory, or lower"):
        decoder.generate(prompts(), Sampling())


def test_decoding_and_scoring_in_bf16_agree(model):
    decoder, scorer, asked = Decoder(model, []), Scorer(model), prompts(12)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        said = decoder.generate(asked, Sampling())
        pairs = [(each.ids, sample.ids) for each, sample in zip(asked, said, strict=True)]
        rows = [PackedRow(np.concatenate(pair), (TokenRecord(*pair, False, ""),)) for pair in pairs]
        scored, _, _ = scorer.scores(rows, 1.0)
    decoded = np.concatenate([sample.logprobs for sample in said])
    assert 0 < np.abs(decoded - scored.float().numpy()).mean() <= 5e-3
