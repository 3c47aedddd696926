"""Log-probabilities and entropies of given tokens from hidden states, with limited memory for logits.

    z = head(h) / temperature;  log pi(k) = z[k] - logsumexp z;  H = logsumexp z - sum over words of softmax(z) z

Axes: K scored tokens, d hidden units, V tokens of the vocabulary ("words").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from ..decoding.cpu import is_plain_linear
from ..decoding.sampling import LOWEST_LOGIT, Sampling, kept

# More logits than MAX_LOGITS are computed in tiles of TILE_LOGITS, and again in the backward pass.
MAX_LOGITS = {"cpu": 2**25}  # 128 MiB in fp32
TILE_LOGITS = {"cpu": 2**23}  # a tile fits into a CPU's cache
ON_GPU = 2**28  # value of both limits on other devices: 1 GiB in fp32


def token_scores(
    hidden: Tensor, head: nn.Module, targets: Tensor, temperature: float, *, filters: Sampling | None = None
) -> tuple[Tensor, Tensor]:
    """Return the log-probability [K] of each target and the entropy [K] of its distribution, in nats, at least fp32.

    Args:
        hidden: [K, d].
        head: maps hidden states to logits. Logits are divided into tiles along the vocabulary for a linear layer, and
            along the tokens for other modules.
        targets: int64 [K].
        temperature: divisor of the logits, > 0.
        filters: use the distribution after these top-k and top-p filters. None: before filters.
    """
    kind = hidden.device.type
    max_logits, tile_logits = MAX_LOGITS.get(kind, ON_GPU), TILE_LOGITS.get(kind, ON_GPU)
    with torch.no_grad():
        num_words = head(hidden[:1]).shape[-1]
    if len(hidden) * num_words <= max_logits:
        return logit_scores(head(hidden), targets, temperature, filters)
    if is_plain_linear(head) and filters is None:  # filters need all logits of a token
        width = max(1, tile_logits // len(hidden))
        scored: tuple[Tensor, Tensor] = _TiledScores.apply(  # type: ignore[no-untyped-call]
            hidden, head.weight, head.bias, targets, temperature, width
        )
        return scored
    rows = max(1, tile_logits // num_words)

    def tile(part: Tensor, goal: Tensor) -> tuple[Tensor, Tensor]:
        return logit_scores(head(part), goal, temperature, filters)

    pieces = [
        checkpoint(tile, part, goal, use_reentrant=False, preserve_rng_state=False)
        for part, goal in zip(hidden.split(rows), targets.split(rows), strict=True)
    ]
    return torch.cat([logprobs for logprobs, _ in pieces]), torch.cat([entropies for _, entropies in pieces])


def logit_scores(
    logits: Tensor, targets: Tensor, temperature: float, filters: Sampling | None = None
) -> tuple[Tensor, Tensor]:
    """Compute `token_scores` from logits [K, V]. `filters` never drop a target token."""
    scored: tuple[Tensor, Tensor] = _Scores.apply(logits, targets, temperature, filters)  # type: ignore[no-untyped-call]
    return scored


class _Scores(torch.autograd.Function):
    """Autograd function of `logit_scores`. The only saved tensor of the size of the logits z is p = softmax z.

    logsumexp z = max z - log max p;  d log pi(k) / dz = onehot(k) - p;  dH / dz = -p (log p + H).
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, temperature: float, filters: Sampling | None
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.settings = temperature, logits.dtype
        scaled = logits.to(_wide(logits.dtype))
        if temperature != 1:
            scaled = scaled / temperature
        scaled = scaled.clamp(min=LOWEST_LOGIT) if scaled is logits else scaled.clamp_(min=LOWEST_LOGIT)
        if filters is not None:
            stays = kept(torch.softmax(scaled.float(), dim=-1), filters.top_k, filters.top_p)
            scaled = scaled.where(stays.scatter_(-1, targets[:, None], True), LOWEST_LOGIT)
        softmax = torch.softmax(scaled, dim=-1)
        total = scaled.amax(dim=-1) - softmax.amax(dim=-1).log()
        logprobs = scaled.gather(-1, targets[:, None])[:, 0] - total
        entropies = total - scaled.mul_(softmax).sum(dim=-1)
        ctx.save_for_backward(softmax, targets, entropies)
        return logprobs, entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_logprob: Tensor | None, by_entropy: Tensor | None) -> tuple[Tensor | None, ...]:
        softmax, targets, entropies = ctx.saved_tensors
        temperature, dtype = ctx.settings
        by_own = torch.zeros_like(entropies) if by_logprob is None else by_logprob
        if by_entropy is None:
            slope = softmax * -by_own[:, None]
        else:  # -p (by_logprob + (log p + H) by_entropy)
            slope = torch.xlogy(softmax, softmax).addcmul_(softmax, entropies[:, None])
            slope = slope.mul_(by_entropy[:, None]).addcmul_(softmax, by_own[:, None]).neg_()
        slope.scatter_add_(-1, targets[:, None], by_own[:, None])
        return (slope if temperature == 1 else slope.div_(temperature)).to(dtype), None, None, None


class _TiledScores(torch.autograd.Function):
    """Autograd function of `token_scores` for a linear head: one pass over tiles of the vocabulary with running sums.

    With p = softmax z:  d log pi(k) / dz = onehot(k) - p  and  dH / dz = -p (z - sum p z).
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, temperature: float, width: int
    ) -> tuple[Tensor, Tensor]:
        kind = hidden.device.type
        compute = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype
        ctx.set_materialize_grads(False)
        ctx.settings = temperature, width, compute
        chosen = hidden.new_empty(len(hidden), dtype=_wide(compute))
        top = torch.full_like(chosen, -torch.inf)
        total, weighted = torch.zeros_like(chosen), torch.zeros_like(chosen)  # sums of e^(z - top) and z e^(z - top)
        for start, logits in _tiles(hidden, weight, bias, temperature, width, compute):
            local = targets - start
            inside = (local >= 0) & (local < logits.shape[1])
            chosen = torch.where(inside, logits.gather(1, local.clamp(0, logits.shape[1] - 1)[:, None])[:, 0], chosen)
            higher = torch.maximum(top, logits.amax(dim=-1))
            shrink = torch.exp(top - higher)
            weights = (logits - higher[:, None]).exp_()
            total = total * shrink + weights.sum(dim=-1)
            weighted = weighted * shrink + weights.mul_(logits).sum(dim=-1)
            top = higher
        log_total, mean = top + torch.log(total), weighted / total
        ctx.save_for_backward(hidden, weight, bias, targets, log_total, mean)
        return chosen - log_total, log_total - mean

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_logprob: Tensor | None, by_entropy: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, log_total, mean = ctx.saved_tensors
        temperature, width, compute = ctx.settings
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        by_own = torch.zeros_like(mean) if by_logprob is None else by_logprob
        by_hidden = torch.zeros_like(hidden, dtype=_wide(compute)) if wants_hidden else None
        by_weight = torch.empty_like(weight) if wants_weight else None
        by_bias = torch.empty_like(bias) if wants_bias and bias is not None else None
        for start, logits in _tiles(hidden, weight, bias, temperature, width, compute):
            softmax = (logits - log_total[:, None]).exp_()
            if by_entropy is None:
                slope = softmax.mul_(-by_own[:, None])
            else:  # -p (by_logprob + (z - mean) by_entropy)
                slope = logits.sub_(mean[:, None]).mul_(by_entropy[:, None]).add_(by_own[:, None]).mul_(softmax).neg_()
            local = targets - start
            inside = (local >= 0) & (local < logits.shape[1])
            # Targets in other tiles add 0 to the first or last word, because selecting rows would synchronize the host.
            column = local.clamp(0, logits.shape[1] - 1)[:, None]
            slope.scatter_add_(1, column, by_own.where(inside, 0)[:, None])
            if temperature != 1:
                slope.div_(temperature)
            stop = start + logits.shape[1]
            if by_bias is not None:
                by_bias[start:stop] = slope.sum(dim=0)
            slope = slope.to(compute)
            if by_hidden is not None:
                by_hidden += slope @ weight[start:stop].to(compute)
            if by_weight is not None:
                by_weight[start:stop] = slope.T @ hidden.to(compute)
        return None if by_hidden is None else by_hidden.to(hidden.dtype), by_weight, by_bias, None, None, None


def _tiles(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float, width: int, compute: torch.dtype
) -> Iterator[tuple[int, Tensor]]:
    """Yield each tile's first word and logits [K, width] after temperature. The caller may overwrite the logits."""
    states = hidden.to(compute)
    for start in range(0, len(weight), width):
        part = slice(start, start + width)
        shift = None if bias is None else bias[part].to(compute)
        logits = nn.functional.linear(states, weight[part].to(compute), shift).to(_wide(compute))
        yield start, (logits if temperature == 1 else logits.div_(temperature)).clamp_(min=LOWEST_LOGIT)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype for sums over the vocabulary, at least fp32."""
    return torch.promote_types(dtype, torch.float32)
