"""Text critic without gradient steps: logistic regression on the word counts of a history."""

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
MAX_STEPS = 100  # maximum number of steps of Newton's method; about 6 are enough
TOLERANCE = 1e-9  # Newton's method stops if a step reduces the loss by less
MIN_PENALTY = 1e-6  # minimum penalty, which makes the optimum unique if words always occur together
TREND_PENALTY = 1.0  # penalty of the trend, which is typically about 1 logit over the replay buffer
_WORD = re.compile(r"\w+|[^\w\s]")


class BagOfWordsCritic(FittedCritic):
    """Critic: V(h) is a logistic regression on the word counts of h, with separate weights for each turn t.

        V_t(h) = low + (high - low) * sigmoid(bias_t + sum over words w of count_w(h) * weight_tw)

    `low` and `high` are the smallest and the largest target. A fit minimizes the cross-entropy of
    (target - low) / (high - low), summed over the histories of turn t, plus
    penalty / 2 * |weight_t|^2 + trend_t^2 / 2. The policy, and so the targets, change while the examples are collected.
    Therefore the logit of an example has the additional term trend_t * age / (maximum age), which is 0 for the next
    update. Turns after the end of the longest example use the weights of its last turn. Before the first fit, V = 0.

    Source: Duan et al. (arXiv:1604.06778) fit a linear baseline at each update. Papke and Wooldridge (1996, Econometric
    methods for fractional response variables) use logistic regression for targets in 0..1. The trend term is our own.
    """

    def __init__(self, penalty: float = 50.0):
        self.penalty = penalty
        self.words: dict[str, int] = {}
        self._weight = torch.zeros(0, 0, dtype=torch.float64)  # [T, W]
        self._bias = torch.zeros(0, dtype=torch.float64)  # [T]
        self._range = torch.zeros(2, dtype=torch.float64)  # smallest and largest target
        # Counts are cached, because histories stay in the replay buffer for several updates.
        self._counted: Recent[tuple[Counter[str], ...]] = Recent(MAX_KEPT_TOKENS, lambda counts: sum(map(len, counts)))

    @classmethod
    def load(cls, directory: Path) -> BagOfWordsCritic:
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
            rows = [number for number, each in enumerate(counts) if len(each) > turn]
            scaled = (torch.stack([targets[number][turn] for number in rows]).double() - low) / (high - low)
            features = torch.hstack([self._features([counts[number][turn] for number in rows]), old[rows, None]])
            weight, bias = logistic_regression(features, scaled, penalties)
            self._weight[turn], self._bias[turn] = weight[:-1], bias
            errors.append((high - low) * ((features @ weight + bias).sigmoid() - scaled))
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
        return self._counted.get(item.histories, lambda: tuple(map(counted, item.histories)))

    def _features(self, counts: Sequence[Counter[str]]) -> Tensor:
        """Return a count [N, W] for each of the W words in the examples of the last fit."""
        places = map(self.words.get, chain.from_iterable(counts), repeat(len(self.words)))  # unknown words: column W
        numbers = chain.from_iterable(count.values() for count in counts)
        rows = np.repeat(np.arange(len(counts)), list(map(len, counts)))
        features = np.zeros((len(counts), len(self.words) + 1))
        features[rows, np.fromiter(places, np.int64)] = np.fromiter(numbers, np.float64)
        return torch.from_numpy(features)[:, :-1]


class BagOfWordsPerAgent(FittedCritic):
    """One `BagOfWordsCritic` per agent, on the same joint histories. Values and targets are [N, agents]."""

    def __init__(self, num_agents: int, penalty: float = 50.0):
        self.critics = [BagOfWordsCritic(penalty) for _ in range(num_agents)]

    def fit(
        self, inputs: Sequence[CriticInput], targets: Sequence[Tensor], ages: Sequence[int] | None = None
    ) -> dict[str, float]:
        losses = [
            critic.fit(inputs, [each[:, place] for each in targets], ages)["value_loss"]
            for place, critic in enumerate(self.critics)
        ]
        return {"value_loss": sum(losses) / len(losses)}

    def values(self, inputs: Sequence[CriticInput]) -> Tensor:
        return torch.stack([critic.values(inputs) for critic in self.critics], dim=1)

    def num_tokens(self, item: CriticInput) -> int:
        return len(item.histories)

    def state_dict(self) -> dict[str, Tensor]:
        return {
            f"{place}.{name}": value
            for place, critic in enumerate(self.critics)
            for name, value in critic.state_dict().items()
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for place, critic in enumerate(self.critics):
            prefix = f"{place}."
            critic.load_state_dict({n.removeprefix(prefix): each for n, each in state.items() if n.startswith(prefix)})

    def save(self, directory: Path) -> None:
        for place, critic in enumerate(self.critics):
            critic.save(directory / str(place))


def counted(history: Any) -> Counter[str]:
    """Count words and punctuation marks in a history, ignoring case."""
    found: Counter[str] = Counter()
    for message in messages_of(history):
        found.update(_WORD.findall(message.content.lower()))
    return found


def logistic_regression(features: Tensor, targets: Tensor, penalties: Tensor) -> tuple[Tensor, Tensor]:
    """Fit weights [W] and bias of a logistic regression, for features [N, W], targets [N] in 0..1 and penalties [W].

    The loss is the cross-entropy, summed over N examples, plus penalties @ weights^2 / 2. Targets are first moved
    slightly towards 1/2, so that the bias is finite even if all targets are 0.
    """
    number = len(targets)
    targets = (number * targets + 0.5) / (number + 1)
    middle = features.mean(dim=0)
    scales = penalties.clamp(min=MIN_PENALTY).rsqrt()
    scaled = (features - middle) * scales
    if scaled.shape[1] > number:  # the optimal weights are in the span of the examples
        basis, rows = torch.linalg.qr(scaled.T)
        weight, bias = _newton(rows.T, targets)
        weight = basis @ weight
    else:
        weight, bias = _newton(scaled, targets)
    weight = weight * scales
    return weight, bias - middle @ weight


def _newton(features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Minimize the cross-entropy plus half the sum of squared weights, by Newton's method with step halving."""
    design = torch.hstack([features, features.new_ones(len(features), 1)])
    ridge = torch.cat([features.new_ones(features.shape[1]), features.new_zeros(1)])

    def loss(at: Tensor) -> Tensor:
        return binary_cross_entropy_with_logits(design @ at, targets, reduction="sum") + ridge @ at.square() / 2

    found = torch.cat([features.new_zeros(features.shape[1]), targets.mean().logit()[None]])
    least = loss(found)
    for _ in range(MAX_STEPS):
        chances = (design @ found).sigmoid()
        gradient = design.T @ (chances - targets) + ridge * found
        hessian = (design.T * (chances * (1 - chances))) @ design + ridge.diag()
        step = torch.linalg.solve(hessian, gradient)
        while (reached := loss(found - step)) > least + TOLERANCE and step.abs().max() > TOLERANCE:
            step = step / 2
        found, gain, least = found - step, least - reached, reached
        if gain <= TOLERANCE:
            break
    return found[:-1], found[-1]
