"""Tokens are drawn from exactly the distribution that was asked for."""

import math

import numpy as np
import pytest
import torch

from collm.agents.decoding.sampling import Sampling, draw, inverse_transform, seed_of, shortlist, uniforms


def logits_of(*probabilities: float) -> torch.Tensor:
    return torch.tensor([probabilities]).log()


def test_draws_by_hand():
    drawn = draw(logits_of(0.5, 0.25, 0.25), Sampling(), torch.tensor([0.6], dtype=torch.float64))
    assert drawn.tokens.tolist() == [1]
    assert drawn.logprobs.item() == pytest.approx(math.log(0.25))
    assert drawn.entropies.item() == pytest.approx(1.5 * math.log(2))
    assert draw(logits_of(0.2, 0.5, 0.3), Sampling(greedy=True)).tokens.tolist() == [1]
    with pytest.raises(ValueError, match="random number"):
        draw(torch.zeros(1, 2), Sampling())
    logits = torch.randn(5, 300, generator=torch.Generator().manual_seed(0))
    expected = torch.log_softmax(logits / 0.7, -1)
    drawn = draw(logits.clone(), Sampling(temperature=0.7, top_k=3, top_p=0.5), torch.rand(5, dtype=torch.float64))
    assert torch.allclose(drawn.logprobs, expected.gather(1, drawn.tokens[:, None])[:, 0], atol=1e-6)
    assert torch.allclose(drawn.entropies, -(expected.exp() * expected).sum(-1), atol=1e-5)
    logits = torch.tensor([[-math.inf, 0.0, -math.inf, 0.0, -math.inf]]).repeat(1000, 1)
    drawn = draw(logits, Sampling(), torch.linspace(0, 1 - 1e-16, 1000, dtype=torch.float64))
    assert set(drawn.tokens.tolist()) == {1, 3}
    assert torch.allclose(drawn.entropies, torch.full((1000,), math.log(2)))


@pytest.mark.parametrize("size", [1, 63, 64, 65, 1000])
def test_inverse_transform_agrees_with_a_plain_running_sum(size):
    generator = torch.Generator().manual_seed(size)
    weights = torch.rand(200, size, generator=generator) ** 8
    weights[:, 1::3] = 0
    noise = torch.rand(200, generator=generator, dtype=torch.float64)
    sums = weights.double().cumsum(-1)
    expected = (sums <= noise[:, None] * sums[:, -1:]).sum(-1)
    assert inverse_transform(weights, noise).tolist() == expected.tolist()


def test_draws_have_the_frequencies_of_the_distribution():
    probabilities = torch.tensor([0.05, 0.45, 0.2, 0.3])
    noise = torch.from_numpy(uniforms((1, 2), 40_000))
    tokens = inverse_transform(probabilities.repeat(40_000, 1), noise)
    assert torch.allclose(tokens.bincount() / 40_000, probabilities, atol=0.01)


def kept(probabilities, top_k, top_p):
    """The shortlist spread over the vocabulary."""
    weights, tokens = shortlist(probabilities, top_k, top_p)
    return weights if tokens is None else torch.zeros_like(probabilities).scatter(1, tokens, weights)


def test_top_k_and_top_p_by_hand():
    probabilities = torch.tensor([[0.1, 0.4, 0.2, 0.3]])
    assert kept(probabilities, 2, 1.0)[0].tolist() == pytest.approx([0, 0.4, 0, 0.3])
    assert kept(probabilities, 0, 0.5)[0].tolist() == pytest.approx([0, 0.4, 0, 0.3])
    assert kept(probabilities, 2, 0.5)[0].tolist() == pytest.approx([0, 0.4, 0, 0])  # 0.4 is over half of 0.7
    assert kept(probabilities, 0, 1.0) is probabilities
    tied = torch.full((1, 4), 0.25)
    assert torch.equal(kept(tied, 2, 1.0), tied)


@pytest.mark.parametrize("size", [40, 300, 8192, 20_005])
@pytest.mark.parametrize(("top_k", "top_p"), [(7, 1.0), (0, 0.6), (12, 0.8), (0, 0.9999), (100_000, 0.3)])
@pytest.mark.parametrize("spread", [0.1, 2, 8])
def test_filters_agree_with_sorting_the_whole_vocabulary(size, top_k, top_p, spread):
    logits = torch.randn(9, size, generator=torch.Generator().manual_seed(size)) * spread
    probabilities = torch.softmax(logits, -1)
    ordered = probabilities.sort(-1, descending=True).values
    if 0 < top_k < size:
        ordered[:, top_k:] = 0
    before = ordered.double().cumsum(-1) - ordered.double()
    least = ordered.masked_fill(before >= top_p * ordered.double().sum(-1, keepdim=True), 1).amin(-1, keepdim=True)
    if 0 < top_k < size:
        least = least.maximum(ordered[:, top_k - 1 : top_k])
    expected = torch.where(probabilities >= least, probabilities, 0)
    assert torch.equal(kept(probabilities, top_k, top_p), expected)
    tokens = shortlist(probabilities, top_k, top_p)[1]
    assert tokens is None or (tokens.diff() > 0).all()  # in the order of the vocabulary


@pytest.mark.parametrize("bad", [{"temperature": 0.0}, {"temperature": math.nan}, {"top_k": -1}, {"top_p": 0.0}])
def test_sampling_refuses_values_without_a_meaning(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Sampling(**bad)


def test_a_stream_is_named_by_all_its_parts_and_its_numbers_never_change():
    assert np.array_equal(uniforms((1, 2, 3), 5), uniforms((1, 2, 3), 50)[:5])
    streams = [(1, 2), (1, 2, 0), (2, 1), (12,), (-1, 2), (2**70,)]
    assert len({uniforms(stream, 1)[0] for stream in streams}) == len(streams)
    assert uniforms((1, 2, 3), 2).tolist() == [0.2617229189507949, 0.674029184267088]
    assert seed_of((1, 2, 3)) == 1517167407554927345
