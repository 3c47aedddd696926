"""Drawing tokens from logits, exactly and cheaply: filters, inverse transform, and what training needs to know.

Axes: N rows of a batch, V tokens of the vocabulary, K candidates.
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

BLOCK = 64  # tokens whose probabilities are added up before the cumulative sum
NUCLEUS_GUESS = 256  # candidates that hold the nucleus of a trained model nearly always; the rest are sorted in full
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
    """One token for each row, with the distribution's facts before any filter."""

    tokens: Tensor  # int64 [N]
    logprobs: Tensor  # float32 [N], of the drawn token
    entropies: Tensor  # float32 [N], nats

    def of(self, rows: Tensor) -> Draw:
        """The draws of these rows."""
        return Draw(self.tokens[rows], self.logprobs[rows], self.entropies[rows])


def uniforms(stream: Sequence[int], count: int) -> NDArray[np.float64]:
    """The first `count` numbers in [0, 1) of the stream with this name; a longer request only appends to them.

    A counter-based generator keyed by a hash of the whole name: streams are independent, and a seed sequence's
    equality of (1, 2) and (1, 2, 0) does not arise.
    """
    name = ",".join(str(int(part)) for part in stream).encode()
    key = int.from_bytes(hashlib.blake2b(name, digest_size=16).digest(), "little")
    return np.random.Generator(np.random.Philox(key=key)).random(count)


def draw(logits: Tensor, sampling: Sampling, noise: Tensor | None = None) -> Draw:
    """Draw one token for each row.

        p = softmax(logits / temperature)
        logprob = log p[token],  entropy = -sum p log p      (before the filters: what training differentiates)
        token = the first v with  sum of q[0..v] > noise * sum of q      (q: p where the filters keep it, else 0)

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
    # The largest probability is exp(largest - logsumexp): no second pass of exponentials.
    normalizer = scaled.amax(-1) - probabilities.amax(-1).log()
    entropies = normalizer - torch.linalg.vecdot(probabilities, scaled)
    if sampling.greedy:
        tokens = scaled.argmax(-1)
    elif noise is None:
        raise ValueError("sampling needs one random number a row: pass noise, or Sampling(greedy=True)")
    else:
        tokens = inverse_transform(kept(probabilities, sampling.top_k, sampling.top_p), noise)
    logprobs = scaled.gather(-1, tokens[:, None])[:, 0] - normalizer
    return Draw(tokens, logprobs, entropies.clamp_(min=0))


def kept(probabilities: Tensor, top_k: int, top_p: float) -> Tensor:
    """The probabilities with 0 where a filter drops the token; tokens tied with the last one kept stay.

    One threshold a row and no reordering: the vocabulary's order stays the order of the inverse transform, so that
    rounding cannot swap two nearly equal tokens and with them the outcome.
    """
    size = probabilities.shape[-1]
    if 0 < top_k < size:
        candidates = _largest(probabilities, top_k)
        least = candidates[:, -1] if top_p == 1 else _nucleus_threshold(candidates, top_p, candidates.double().sum(-1))
    elif top_p < 1:
        least = _nucleus_of_all(probabilities, top_p)
    else:
        return probabilities
    return torch.where(probabilities >= least[:, None], probabilities, 0)


def inverse_transform(weights: Tensor, noise: Tensor) -> Tensor:
    """The first index where the running sum of weights exceeds noise times their total.

    In float64: a float32 sum over a large vocabulary is too coarse to reach rare tokens. The sum runs over blocks
    first and then within one block, which is the cost of a sum rather than of a scan.

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
    ends = blocks.sum(-1, dtype=torch.float64).cumsum(-1)
    target = noise * ends[:, -1]
    block = torch.searchsorted(ends, target[:, None], right=True).clamp_(max=ends.shape[1] - 1)
    before = torch.where(block > 0, ends.gather(1, (block - 1).clamp_(min=0)), 0)
    inside = blocks.gather(1, block[:, :, None].expand(-1, 1, BLOCK))[:, 0]
    offset = torch.searchsorted(inside.double().cumsum(-1), target[:, None] - before, right=True)
    # The sum over a block and the scan of it round differently: never step past its last possible token.
    last = BLOCK - 1 - (inside.flip(-1) > 0).int().argmax(-1, keepdim=True)
    return (block * BLOCK + torch.minimum(offset, last))[:, 0]


def _largest(probabilities: Tensor, count: int) -> Tensor:
    """The `count` largest entries of each row, in descending order."""
    rows, size = probabilities.shape
    width = 16
    if size % width == 0 and size >= 4 * width * count:
        # The k largest lie in the k blocks with the largest maxima, which are far fewer to search.
        blocks = probabilities.view(rows, -1, width)
        chosen = blocks.amax(-1).topk(count, sorted=False).indices
        probabilities = blocks.gather(1, chosen[:, :, None].expand(-1, -1, width)).flatten(1)
    return probabilities.topk(count).values


def _nucleus_threshold(candidates: Tensor, top_p: float, total: Tensor) -> Tensor:
    """The least probability in the nucleus: [N], from descending candidates [N, K] and the mass [N] that p refers to.

    A token is in the nucleus while the tokens before it hold less than p of the mass.
    """
    sums = candidates.double().cumsum(-1)
    before = sums - candidates.double()
    count = (before < top_p * total[:, None]).sum(-1, keepdim=True)
    return candidates.gather(1, (count - 1).clamp_(min=0))[:, 0]


def _nucleus_of_all(probabilities: Tensor, top_p: float) -> Tensor:
    size = probabilities.shape[-1]
    total = probabilities.sum(-1, dtype=torch.float64)
    if size <= NUCLEUS_GUESS:
        return _nucleus_threshold(probabilities.sort(-1, descending=True).values, top_p, total)
    candidates = _largest(probabilities, NUCLEUS_GUESS)
    least = _nucleus_threshold(candidates, top_p, total)
    is_open = candidates.sum(-1, dtype=torch.float64) < top_p * total
    if bool(is_open.any()):
        full = probabilities[is_open].sort(-1, descending=True).values
        least[is_open] = _nucleus_threshold(full, top_p, total[is_open])
    return least
