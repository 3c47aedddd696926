"""Sampling of tokens from logits: top-k and top-p filters, log-probabilities, entropies and random numbers.

A filter keeps all tokens with at least a threshold probability, in vocabulary order. A sorted order could change with
the batch size, because other rounding errors could swap two nearly equal probabilities.

Axes: N rows of a batch, V tokens of the vocabulary, C candidates (a superset of the kept tokens).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

BLOCK = 64  # tokens per block; the cumulative sum runs over the sums of blocks
LOWEST_LOGIT = -1e30  # finite: with -inf, a token of probability 0 would add NaN to the entropy
GROUP = 16  # tokens per group; the search for candidates reads only the largest probability of each group
NUCLEUS_GUESS = 256  # number of groups that usually contain all top-p tokens of a row; otherwise the row is sorted


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters, applied in the order temperature, top-k, top-p."""

    temperature: float = 1.0  # divisor of the logits, > 0; log-probabilities and entropies are computed after it
    top_k: int = 0  # sample from the k most probable tokens; 0: off
    top_p: float = 1.0  # sample from the most probable tokens with this total probability, in (0, 1]; 1: off
    greedy: bool = False  # select the most probable token, without filters or random numbers
    learns_filtered: bool = False  # log-probabilities and entropies after the filters; False: before the filters

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ValueError(
                f"temperature={self.temperature} must be positive and finite; for greedy decoding use greedy=True"
            )
        if self.top_k < 0:
            raise ValueError(f"top_k={self.top_k} must be at least 0; 0 turns the filter off")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p} must be in (0, 1]; 1 turns the filter off")


@dataclass(frozen=True, slots=True)
class Draw:
    """Sampled tokens, one per row. Log-probabilities and entropies are before filters, unless `learns_filtered`."""

    tokens: Tensor  # int64 [N]
    logprobs: Tensor  # float32 [N], of the sampled tokens
    entropies: Tensor  # float32 [N], nats


def draw(logits: Tensor, sampling: Sampling, noise: Tensor | None = None) -> Draw:
    """Sample one token per row.

        p = softmax(logits / temperature),  q[v] = p[v] if the filters keep v, else 0
        token = the first v with  q[0] + … + q[v] > noise * sum of q
        logprob = log p[token],  entropy = -sum p log p      (with `learns_filtered`: q / sum of q instead of p)

    Args:
        logits: [N, V], any floating-point dtype. The tensor may be overwritten.
        noise: float64 [N], uniform random numbers in [0, 1). May be None if greedy.

    Returns:
        A `Draw`. The token of a row depends only on the logits and the random number of this row.
    """
    scaled = logits.float()
    if sampling.temperature != 1:
        scaled = scaled.div_(sampling.temperature)
    scaled = scaled.clamp_(min=LOWEST_LOGIT)
    probabilities = torch.softmax(scaled, dim=-1)
    if sampling.greedy:
        tokens = probabilities.argmax(-1)
    elif noise is None:
        raise ValueError("noise=None needs Sampling(greedy=True); pass one random number per row")
    else:
        weights, candidates = shortlist(probabilities, sampling.top_k, sampling.top_p)
        index = inverse_transform(weights, noise)
        tokens = index if candidates is None else candidates.gather(1, index[:, None])[:, 0]
        if sampling.learns_filtered:
            filtered = weights / weights.sum(-1, keepdim=True)
            logprobs = filtered.gather(1, index[:, None])[:, 0].log()
            return Draw(tokens, logprobs, torch.special.entr(filtered).sum(-1))
    logprobs = probabilities.gather(1, tokens[:, None])[:, 0].log()
    # entropy = logsumexp - sum p logit; logsumexp = logit - logprob of the sampled token, without more exponentials.
    normalizer = scaled.gather(1, tokens[:, None])[:, 0] - logprobs
    entropies = normalizer - scaled.mul_(probabilities).sum(-1)
    return Draw(tokens, logprobs, entropies.clamp_(min=0))


def inverse_transform(weights: Tensor, noise: Tensor) -> Tensor:
    """Sample an index [N] for each row of nonnegative weights [N, V], from uniform random numbers [N] in [0, 1).

    Return the first index at which the cumulative sum of weights exceeds noise times the sum. Its weight is positive.
    The cumulative sum is float64: in float32, rare tokens of a large vocabulary could never be sampled. For speed, it
    runs over the float32 sums of blocks of `BLOCK` weights, and then over the weights of one block.
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
    # A block's sum and cumulative sum have different rounding errors: stop at its last positive weight.
    last = BLOCK - 1 - (inside.flip(-1) > 0).int().argmax(-1, keepdim=True)
    return (block * BLOCK + torch.minimum(offset, last))[:, 0].clamp_(max=size - 1)  # in case of NaN weights


def shortlist(probabilities: Tensor, top_k: int, top_p: float) -> tuple[Tensor, Tensor | None]:
    """Apply the top-k filter (0: off), then the top-p filter (1: off), to probabilities [N, V].

    As in transformers, top-p applies to the tokens that top-k keeps, whose probabilities sum to s. It keeps
    a token if the probabilities of all more probable tokens sum to less than p * s.

    Returns:
        Weights [N, C]: probabilities, or 0 for dropped tokens. Token ids [N, C] in ascending order, or None if the
        candidates are the whole vocabulary.
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
    """Return a mask [N, V] that is True for the tokens that `shortlist` keeps."""
    weights, _ = shortlist(probabilities, top_k, top_p)
    least = torch.where(weights > 0, weights, torch.inf).amin(-1, keepdim=True)
    return probabilities >= least


def _candidates(probabilities: Tensor, count: int) -> tuple[Tensor, Tensor | None]:
    """Return a part of each row with its `count` largest entries, and the token ids of this part (None: all tokens)."""
    rows, size = probabilities.shape
    stride = size // GROUP
    if stride < 2 * count:
        return probabilities, None
    # Group j contains the tokens j, j + stride, …. The k largest entries are in the k groups with the largest maxima.
    # Groups are strided, because torch vectorizes a maximum over the outer of two axes, but not over the inner.
    blocks = probabilities[:, : stride * GROUP].view(rows, GROUP, stride)
    chosen = blocks.amax(1).topk(count, sorted=False).indices.sort(-1).values
    found = blocks.gather(2, chosen[:, None].expand(-1, GROUP, -1)).flatten(1)
    starts = torch.arange(0, stride * GROUP, stride, device=chosen.device)
    tokens = (starts[:, None] + chosen[:, None]).flatten(1)
    if stride * GROUP == size:
        return found, tokens
    rest = torch.arange(stride * GROUP, size, device=chosen.device).expand(rows, -1)
    return torch.cat([found, probabilities[:, stride * GROUP :]], -1), torch.cat([tokens, rest], -1)


def _is_on_host(values: Tensor) -> bool:
    """Return True for CPU tensors, whose values can be read without synchronizing with a device."""
    return values.device.type == "cpu"


def _descending(values: Tensor) -> Tensor:
    if not _is_on_host(values):
        return values.sort(-1, descending=True).values
    # NumPy's sort is vectorized and 5 to 10 times as fast as torch's on rows of 1,000 to 4,000 numbers.
    return torch.from_numpy(np.sort(values.numpy(), axis=-1)).flip(-1)


def _nucleus_threshold(descending: Tensor, top_p: float, total: Tensor) -> Tensor:
    """Return the smallest probability [N] of the top-p tokens, whose probabilities sum to at least top_p * total."""
    values = descending.double()
    before = values.cumsum(-1) - values
    count = (before < top_p * total[:, None]).sum(-1, keepdim=True)
    return descending.gather(1, (count - 1).clamp_(min=0))[:, 0]


def _least_of_nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    total = probabilities.sum(-1, dtype=torch.float64)
    # On a GPU there is no guess, because a test of the guess would synchronize with the device.
    guess, tokens = _candidates(probabilities, NUCLEUS_GUESS) if _is_on_host(probabilities) else (probabilities, None)
    if tokens is None:
        return _nucleus_threshold(_descending(probabilities), top_p, total)
    best = _descending(guess)[:, :NUCLEUS_GUESS]
    least = _nucleus_threshold(best, top_p, total)
    is_open = best.sum(-1, dtype=torch.float64) < top_p * total
    if bool(is_open.any()):
        least[is_open] = _nucleus_threshold(_descending(probabilities[is_open]), top_p, total[is_open])
    return least


def uniforms(stream: Sequence[int], count: int) -> NDArray[np.float64]:
    """Return the first `count` random numbers, uniform in [0, 1), of the random stream with this key."""
    # NumPy's `SeedSequence` is not used, because it has equal states for (1, 2) and (1, 2, 0).
    key = int.from_bytes(_digest(stream, 16), "little")
    return np.random.Generator(np.random.Philox(key=key)).random(count)


def seed_of(stream: Sequence[int]) -> int:
    """Return a seed in [0, 2^63) for another random number generator: a hash of the random stream's key."""
    return int.from_bytes(_digest(stream, 8), "little") >> 1


def _digest(stream: Sequence[int], size: int) -> bytes:
    name = ",".join(str(int(part)) for part in stream).encode()
    return hashlib.blake2b(name, digest_size=size).digest()
