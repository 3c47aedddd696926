"""A critic of text without gradient steps: logistic regressions on the words of a history."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from ..._json import read_json
from ...envs.core import messages_of
from ..core import CriticInput, FittedCritic
from ..encoding import MAX_KEPT_TOKENS, Recent

WEIGHTS_FILE = "bag_of_words.safetensors"
SETTINGS_FILE = "collm_bag_of_words.json"
MAX_STEPS = 100  # of Newton's method; some six reach the optimum
TOLERANCE = 1e-9  # of the cross-entropy
LEAST_PENALTY = 1e-6  # words that always stand together share their weight, whatever the penalty
TREND_PENALTY = 1.0  # a logit of one over the whole replay is usual
_WORD = re.compile(r"\w+|[^\w\s]")


class BagOfWordsCritic(FittedCritic):
    """V(h) from how often each word stands in the history: a logistic regression for each turn.

        V_t(h) = low + (high - low) * sigmoid(bias_t + sum over words w of count_w(h) * weight_tw)

    with the least and the greatest target as `low` and `high`. The policy moves while the examples are collected, and
    success with it. So the logit of an example has one term more, trend_t * age / (age of the oldest): a line through
    the updates, which is followed to age 0, the update that is valued next. Every fit is the optimum of the
    cross-entropy of (target - low) / (high - low), summed over the histories before turn t, plus
    penalty / 2 * |weight_t|^2 + trend_t^2 / 2: there is no learning rate, no number of steps and no initial weight, and
    the same examples give the same critic. Turns after those that were fitted are valued as the last of these. Before
    the first fit every value is 0.

    Source: a baseline that is linear in features and fitted anew at each update is that of Duan et al. (2016,
    arXiv:1604.06778); logistic regression on shares between 0 and 1 is Papke and Wooldridge's (1996, Econometric
    methods for fractional response variables). The trend is this project's own.

    Args:
        penalty: L2 penalty of the weights.
    """

    def __init__(self, penalty: float = 50.0):
        self.penalty = penalty
        self.words: dict[str, int] = {}
        self._weight = torch.zeros(0, 0, dtype=torch.float64)  # [T, W]
        self._bias = torch.zeros(0, dtype=torch.float64)  # [T]
        self._range = torch.zeros(2, dtype=torch.float64)  # least and greatest target
        # A replay shows the same histories in many updates.
        self._counted: Recent[tuple[Counter[str], ...]] = Recent(MAX_KEPT_TOKENS, lambda counts: sum(map(len, counts)))

    @classmethod
    def load(cls, directory: Path) -> BagOfWordsCritic:
        """Read what `save` wrote."""
        critic = cls(**read_json(directory / SETTINGS_FILE))
        critic.load_state_dict(load_file(directory / WEIGHTS_FILE))
        return critic

    def fit(
        self, inputs: Sequence[CriticInput], targets: Sequence[Tensor], ages: Sequence[int] | None = None
    ) -> dict[str, float]:
        counts = [self._counts(item) for item in inputs]
        old = torch.tensor(ages or [1] * len(inputs), dtype=torch.float64)
        old /= old.max()
        together = torch.cat(list(targets)).double()
        low, high = together.min(), together.max()
        self._range = torch.stack([low, high])
        self.words = {word: place for place, word in enumerate(sorted({w for each in counts for c in each for w in c}))}
        longest = max(map(len, counts))
        self._weight = torch.zeros(longest, len(self.words), dtype=torch.float64)
        self._bias = torch.zeros(longest, dtype=torch.float64)
        penalties = torch.tensor([self.penalty] * len(self.words) + [TREND_PENALTY], dtype=torch.float64)
        errors: list[Tensor] = []
        for turn in range(longest if high > low else 0):
            there = [number for number, each in enumerate(counts) if len(each) > turn]
            shares = (torch.stack([targets[number][turn] for number in there]).double() - low) / (high - low)
            features = torch.hstack([self._features([counts[number][turn] for number in there]), old[there, None]])
            weight, bias = logistic_regression(features, shares, penalties)
            self._weight[turn], self._bias[turn] = weight[:-1], bias
            errors.append((high - low) * ((features @ weight + bias).sigmoid() - shares))
        return {"value_loss": float(torch.cat(errors).square().mean()) if errors else 0.0}

    def values(self, inputs: Sequence[CriticInput]) -> Tensor:
        counts = [self._counts(item) for item in inputs]
        turns = torch.tensor([turn for each in counts for turn in range(len(each))])
        if not len(self._bias):
            return torch.zeros(len(turns), dtype=torch.float64)
        turns = turns.clamp(max=len(self._bias) - 1)
        features = self._features([count for each in counts for count in each])
        low, high = self._range
        chances = ((features * self._weight[turns]).sum(dim=1) + self._bias[turns]).sigmoid()
        found: Tensor = low + (high - low) * chances
        return found

    def num_tokens(self, item: CriticInput) -> int:
        return len(item.histories)

    def state_dict(self) -> dict[str, Tensor]:
        spelled = torch.tensor(list("\n".join(self.words).encode()), dtype=torch.uint8)
        return {"words": spelled, "weight": self._weight, "bias": self._bias, "range": self._range}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        spelled = bytes(state["words"].tolist()).decode()
        self.words = {word: place for place, word in enumerate(spelled.split("\n") if spelled else [])}
        self._weight, self._bias, self._range = (state[name].cpu() for name in ("weight", "bias", "range"))

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        save_file(self.state_dict(), directory / WEIGHTS_FILE)
        (directory / SETTINGS_FILE).write_text(json.dumps({"penalty": self.penalty}) + "\n")

    def _counts(self, item: CriticInput) -> tuple[Counter[str], ...]:
        """How often each word stands in each history."""
        return self._counted.get(item.histories, lambda: tuple(map(counted, item.histories)))

    def _features(self, counts: Sequence[Counter[str]]) -> Tensor:
        """[N, W] counts of the known words."""
        places = map(self.words.get, chain.from_iterable(counts), repeat(len(self.words)))  # the last: unknown words
        numbers = chain.from_iterable(count.values() for count in counts)
        rows = np.repeat(np.arange(len(counts)), list(map(len, counts)))
        features = np.zeros((len(counts), len(self.words) + 1))
        features[rows, np.fromiter(places, np.int64)] = np.fromiter(numbers, np.float64)
        return torch.from_numpy(features)[:, :-1]


def counted(history: Any) -> Counter[str]:
    """Words of a history, and how often each stands in it; upper and lower case are alike."""
    found: Counter[str] = Counter()
    for message in messages_of(history):
        found.update(_WORD.findall(message.content.lower()))
    return found


def logistic_regression(features: Tensor, shares: Tensor, penalties: Tensor) -> tuple[Tensor, Tensor]:
    """Weights [W] and bias, the optimum of the penalized cross-entropy, by Newton's method.

    The shares are drawn in by half an example of each end, so that the bias is finite where all are 0.

    Args:
        features: [N, W].
        shares: [N], 0 to 1.
        penalties: [W]. Half of it times each squared weight is added to the cross-entropy, which is summed over N.
    """
    number = len(shares)
    shares = (number * shares + 0.5) / (number + 1)
    middle = features.mean(dim=0)
    scales = penalties.clamp(min=LEAST_PENALTY).rsqrt()
    scaled = (features - middle) * scales
    if scaled.shape[1] > number:  # the weights lie in the span of the examples
        basis, rows = torch.linalg.qr(scaled.T)
        weight, bias = _newton(rows.T, shares)
        weight = basis @ weight
    else:
        weight, bias = _newton(scaled, shares)
    weight = weight * scales
    return weight, bias - middle @ weight


def _newton(features: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """The optimum of the cross-entropy plus half the squared weights; steps that raise it are halved."""
    design = torch.hstack([features, features.new_ones(len(features), 1)])
    ridge = torch.cat([features.new_ones(features.shape[1]), features.new_zeros(1)])

    def loss(at: Tensor) -> Tensor:
        return binary_cross_entropy_with_logits(design @ at, shares, reduction="sum") + ridge @ at.square() / 2

    found = torch.cat([features.new_zeros(features.shape[1]), shares.mean().logit()[None]])
    least = loss(found)
    for _ in range(MAX_STEPS):
        chances = (design @ found).sigmoid()
        slope = design.T @ (chances - shares) + ridge * found
        curvature = (design.T * (chances * (1 - chances))) @ design + ridge.diag()
        step = torch.linalg.solve(curvature, slope)
        while (reached := loss(found - step)) > least + TOLERANCE and step.abs().max() > TOLERANCE:
            step = step / 2
        found, gain, least = found - step, least - reached, reached
        if gain <= TOLERANCE:
            break
    return found[:-1], found[-1]
