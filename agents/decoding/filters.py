"""Top-k and top-p: which tokens may be drawn.

A filter is one threshold per row, and tokens keep the order of the vocabulary: rounding, which differs between batches
of different size, then cannot swap two nearly equal tokens and with them the outcome of a draw. Tokens tied with the
last one kept stay.

Axes: N rows of a batch, V tokens of the vocabulary, C candidates (a superset of what is kept).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

WIDTH = 16  # tokens whose largest probability stands for all of them in the search for candidates
NUCLEUS_GUESS = 256  # blocks that hold the nucleus of a trained model nearly always; other rows are sorted in full


def shortlist(probabilities: Tensor, top_k: int, top_p: float) -> tuple[Tensor, Tensor | None]:
    """The candidates' probabilities, 0 where a filter drops them, and their tokens.

    Top-p acts on what top-k leaves, as in transformers: a token stays while those more probable hold less than p of it.

    Args:
        probabilities: [N, V].
        top_k: 0 is off.
        top_p: in (0, 1]; 1 is off.

    Returns:
        Weights [N, C] and tokens [N, C] in ascending order, or None where the candidates are the vocabulary.
    """
    size = probabilities.shape[-1]
    if 0 < top_k < size:
        candidates, tokens = _candidates(probabilities, top_k)
        best = _descending(candidates)[:, :top_k]
        least = best[:, -1] if top_p == 1 else _nucleus_threshold(best, top_p, best.sum(-1, dtype=torch.float64))
    elif top_p < 1:
        candidates, tokens = probabilities, None
        least = _least_of_nucleus(probabilities, top_p)
    else:
        return probabilities, None
    return torch.where(candidates >= least[:, None], candidates, 0), tokens


def kept(probabilities: Tensor, top_k: int, top_p: float) -> Tensor:
    """[N, V] bool, True where `shortlist` keeps a token of probabilities [N, V]."""
    weights, _ = shortlist(probabilities, top_k, top_p)
    least = torch.where(weights > 0, weights, torch.inf).amin(-1, keepdim=True)
    return probabilities >= least


def _candidates(probabilities: Tensor, count: int) -> tuple[Tensor, Tensor | None]:
    """Entries of each row among which its `count` largest are, with their tokens."""
    rows, size = probabilities.shape
    stride = size // WIDTH
    if stride < 2 * count:
        return probabilities, None
    # Block j holds the tokens j, j + stride, …; the k largest lie in the k blocks with the largest maxima.
    # Blocks of distant tokens, since a maximum over the outer of two axes is vectorized and over the inner is not.
    blocks = probabilities[:, : stride * WIDTH].view(rows, WIDTH, stride)
    chosen = blocks.amax(1).topk(count, sorted=False).indices.sort(-1).values
    found = blocks.gather(2, chosen[:, None].expand(-1, WIDTH, -1)).flatten(1)
    starts = torch.arange(0, stride * WIDTH, stride, device=chosen.device)
    tokens = (starts[:, None] + chosen[:, None]).flatten(1)
    if stride * WIDTH == size:
        return found, tokens
    rest = torch.arange(stride * WIDTH, size, device=chosen.device).expand(rows, -1)
    return torch.cat([found, probabilities[:, stride * WIDTH :]], -1), torch.cat([tokens, rest], -1)


def _descending(values: Tensor) -> Tensor:
    """Each row sorted, largest first."""
    if values.device.type != "cpu":
        return values.sort(-1, descending=True).values
    # NumPy's sort is vectorized and torch's is not: 5 to 10 times faster on rows of 1,000 to 4,000.
    return torch.from_numpy(np.sort(values.numpy(), axis=-1)).flip(-1)


def _nucleus_threshold(descending: Tensor, top_p: float, total: Tensor) -> Tensor:
    """The least probability in the nucleus, [N]; `total` [N] is the mass of which it holds p."""
    values = descending.double()
    before = values.cumsum(-1) - values
    count = (before < top_p * total[:, None]).sum(-1, keepdim=True)
    return descending.gather(1, (count - 1).clamp_(min=0))[:, 0]


def _least_of_nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    total = probabilities.sum(-1, dtype=torch.float64)
    if probabilities.device.type != "cpu":  # whether the guess was enough is a question that the host would wait for
        return _nucleus_threshold(_descending(probabilities), top_p, total)
    guess, tokens = _candidates(probabilities, NUCLEUS_GUESS)
    if tokens is None:
        return _nucleus_threshold(_descending(probabilities), top_p, total)
    best = _descending(guess)[:, :NUCLEUS_GUESS]
    least = _nucleus_threshold(best, top_p, total)
    is_open = best.sum(-1, dtype=torch.float64) < top_p * total
    if bool(is_open.any()):
        least[is_open] = _nucleus_threshold(_descending(probabilities[is_open]), top_p, total[is_open])
    return least
