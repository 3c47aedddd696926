"""Filters keep exactly the tokens that sorting the whole vocabulary would."""

import pytest
import torch

from collm.agents.decoding.sampling import shortlist


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


def test_candidates_come_in_the_order_of_the_vocabulary():
    probabilities = torch.softmax(torch.randn(4, 3001, generator=torch.Generator().manual_seed(0)), -1)
    tokens = shortlist(probabilities, 5, 1.0)[1]
    assert tokens is not None
    assert (tokens.diff() > 0).all()


def test_tokens_tied_with_the_last_one_kept_stay():
    probabilities = torch.full((1, 4), 0.25)
    assert torch.equal(kept(probabilities, 2, 1.0), probabilities)
