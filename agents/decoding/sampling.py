"""Drawing tokens from logits, exactly and cheaply: filters, inverse transform, and what training needs to know.

Axes: N rows of a batch, V tokens of the vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from .filters import shortlist

BLOCK = 64  # tokens whose probabilities are added up before the cumulative sum
LOWEST_LOGIT = -1e30  # finite, so that a token of probability 0 adds 0 and not NaN to the entropy


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn from the model's distribution. Filters act in the order temperature, top-k, top-p."""

    temperature: float = 1.0
    """Divides the logits, > 0; part of the distribution that log-probabilities and entropies describe."""
    top_k: int = 0
    """Draw among the k most probable tokens; 0 is off."""
    top_p: float = 1.0
    """Draw among the fewest most probable tokens whose probabilities reach p, in (0, 1]; 1 is off."""
    greedy: bool = False
    """Take the most probable token; filters and random numbers play no part."""
    learns_filtered: bool = False
    """Log-probabilities and entropies describe the distribution after the filters, from which tokens are drawn. False:
    the one before them."""

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ValueError(
                f"temperature {self.temperature} is not a positive number: "
                "use Sampling(greedy=True) for the limit of temperature 0"
            )
        if self.top_k < 0:
            raise ValueError(f"top_k {self.top_k} is negative: use 0 to switch the filter off")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p {self.top_p} is outside (0, 1]: use 1 to switch the filter off")


@dataclass(frozen=True, slots=True)
class Draw:
    """One token for each row, with the distribution's facts, before the filters unless `learns_filtered`."""

    tokens: Tensor  # int64 [N]
    logprobs: Tensor  # float32 [N], of the drawn token
    entropies: Tensor  # float32 [N], nats


def draw(logits: Tensor, sampling: Sampling, noise: Tensor | None = None) -> Draw:
    """Draw one token for each row.

        p = softmax(logits / temperature)
        token = the first v with  sum of q[0..v] > noise * sum of q      (q: p where the filters keep it, else 0)
        logprob = log p[token],  entropy = -sum p log p      (what training differentiates; q / sum of q in place of p
                                                              with `learns_filtered`)

    Args:
        logits: [N, V], any floating type; overwritten.
        noise: float64 [N] in [0, 1); may be None when greedy.

    Returns:
        A `Draw`; the token of a row depends on that row's logits and noise alone.
    """
    scaled = logits.float()
    if sampling.temperature != 1:
        scaled = scaled.div_(sampling.temperature)
    scaled = scaled.clamp_(min=LOWEST_LOGIT)
    probabilities = torch.softmax(scaled, dim=-1)
    if sampling.greedy:
        tokens = probabilities.argmax(-1)
    elif noise is None:
        raise ValueError("sampling needs one random number per row: pass noise, or Sampling(greedy=True)")
    else:
        weights, candidates = shortlist(probabilities, sampling.top_k, sampling.top_p)
        tokens = inverse_transform(weights, noise)
        filtered = _facts(weights, tokens) if sampling.learns_filtered else None
        if candidates is not None:
            tokens = candidates.gather(1, tokens[:, None])[:, 0]
        if filtered is not None:
            return Draw(tokens, *filtered)
    logprobs = probabilities.gather(1, tokens[:, None])[:, 0].log()
    # Entropy is logsumexp - sum p logit, and the drawn token gives logsumexp without another pass of exponentials.
    normalizer = scaled.gather(1, tokens[:, None])[:, 0] - logprobs
    entropies = normalizer - scaled.mul_(probabilities).sum(-1)
    return Draw(tokens, logprobs, entropies.clamp_(min=0))


def _facts(weights: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability of the drawn index and entropy, of the distribution in proportion to weights [N, C]."""
    shares = weights / weights.sum(-1, keepdim=True)
    return shares.gather(1, drawn[:, None])[:, 0].log(), torch.special.entr(shares).sum(-1)


def inverse_transform(weights: Tensor, noise: Tensor) -> Tensor:
    """The first index where the running sum of weights exceeds noise times their total.

    A float32 sum over a large vocabulary is too coarse to reach rare tokens, so the running sum is float64. It runs
    over blocks, each added up in float32, and then within one block: the cost of a sum rather than of a scan.

    Args:
        weights: [N, V], non-negative, not all 0 in a row.
        noise: float64 [N] in [0, 1).

    Returns:
        int64 [N]; the weight at the index is above 0.
    """
    rows, size = weights.shape
    if size % BLOCK:
        weights = functional.pad(weights, (0, BLOCK - size % BLOCK))
    blocks = weights.view(rows, -1, BLOCK)
    ends = blocks.sum(-1).cumsum(-1, dtype=torch.float64)
    target = noise * ends[:, -1]
    block = torch.searchsorted(ends, target[:, None], right=True).clamp_(max=ends.shape[1] - 1)
    before = torch.where(block > 0, ends.gather(1, (block - 1).clamp_(min=0)), 0)
    inside = blocks.gather(1, block[:, :, None].expand(-1, 1, BLOCK))[:, 0]
    offset = torch.searchsorted(inside.double().cumsum(-1), target[:, None] - before, right=True)
    # The sum over a block and the scan of it round differently: never step past its last possible token.
    last = BLOCK - 1 - (inside.flip(-1) > 0).int().argmax(-1, keepdim=True)
    return (block * BLOCK + torch.minimum(offset, last))[:, 0].clamp_(max=size - 1)  # where weights are NaN
