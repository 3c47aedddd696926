"""Drawing tokens from logits: filters, inverse transform, log-probabilities, entropies, and random streams by name.

A filter is one threshold per row, and tokens keep the order of the vocabulary. Rounding differs between batches of
different size; it then cannot swap two nearly equal tokens and change a draw. Tokens tied with the last kept one stay.

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

BLOCK = 64  # tokens whose probabilities are added up before the cumulative sum
LOWEST_LOGIT = -1e30  # finite, so that a token of probability 0 adds 0 and not NaN to the entropy
GROUP = 16  # tokens whose largest probability stands for all of them in the search for candidates
NUCLEUS_GUESS = 256  # groups that hold the nucleus of a trained model nearly always; other rows are sorted in full


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
    stride = size // GROUP
    if stride < 2 * count:
        return probabilities, None
    # Group j holds the tokens j, j + stride, …; the k largest lie in the k groups with the largest maxima.
    # Groups of distant tokens, since a maximum over the outer of two axes is vectorized and over the inner is not.
    blocks = probabilities[:, : stride * GROUP].view(rows, GROUP, stride)
    chosen = blocks.amax(1).topk(count, sorted=False).indices.sort(-1).values
    found = blocks.gather(2, chosen[:, None].expand(-1, GROUP, -1)).flatten(1)
    starts = torch.arange(0, stride * GROUP, stride, device=chosen.device)
    tokens = (starts[:, None] + chosen[:, None]).flatten(1)
    if stride * GROUP == size:
        return found, tokens
    rest = torch.arange(stride * GROUP, size, device=chosen.device).expand(rows, -1)
    return torch.cat([found, probabilities[:, stride * GROUP :]], -1), torch.cat([tokens, rest], -1)


def _is_at_hand(values: Tensor) -> bool:
    """Whether the host may look at numbers without waiting for a device."""
    return values.device.type == "cpu"


def _descending(values: Tensor) -> Tensor:
    """Each row sorted, largest first."""
    if not _is_at_hand(values):
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
    if not _is_at_hand(probabilities):  # whether the guess was enough is a question that the host would wait for
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


def uniforms(stream: Sequence[int], count: int) -> NDArray[np.float64]:
    """The first `count` numbers in [0, 1) of the stream with this name; a longer request only appends to them.

    A counter-based generator keyed by a hash of the whole name: streams are independent, and a seed sequence's
    equality of (1, 2) and (1, 2, 0) does not arise.
    """
    key = int.from_bytes(_digest(stream, 16), "little")
    return np.random.Generator(np.random.Philox(key=key)).random(count)


def seed_of(stream: Sequence[int]) -> int:
    """A seed in [0, 2^63) for a generator elsewhere: a hash of the stream's whole name."""
    return int.from_bytes(_digest(stream, 8), "little") >> 1


def _digest(stream: Sequence[int], size: int) -> bytes:
    name = ",".join(str(int(part)) for part in stream).encode()
    return hashlib.blake2b(name, digest_size=size).digest()
