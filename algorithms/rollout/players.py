"""Players: who plays the orders of a training while it learns from earlier ones, with copies of its policies."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from ...agents.core import TrainablePolicy
from .collector import RolloutCollector
from .orders import Delivery, Order, Weights, played


class LeftError(Exception):
    """Players were closed while they played."""


class Players(ABC):
    """Play orders, one after the other. Only one thread calls `play`; `close` may be called by another."""

    @abstractmethod
    def play(self, order: Order, weights: Weights) -> Delivery:
        """Play an order.

        Args:
            order: what to play.
            weights: weights of the order's version.

        Raises:
            EnvironmentFault: if an environment raises or breaks its contract.
            LeftError: if `close` was called.
        """

    @abstractmethod
    def close(self) -> None:
        """Leave off before the next turn, and give back processes and memory."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the episodes that were under way after an order, as `Delivery.state` has them.

        Raises:
            ValueError: if these players cannot.
        """
        raise ValueError(f"{type(self).__name__} play whole episodes and cannot go on with those that are under way")


class Copies(Players):
    """Plays in this process, with a collector whose policies are copies of those that learn.

    Args:
        collector: collector with copies of the environments and of the policies, which nobody else uses.
    """

    def __init__(self, collector: RolloutCollector):
        self.collector = collector
        self._is_closed = threading.Event()
        collector.before_turn = self._check
        self._version: int | None = None

    def play(self, order: Order, weights: Weights) -> Delivery:
        if self._version != order.version:
            load(self.collector, weights)
            self._version = order.version
        return played(self.collector, order)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.collector.load_state_dict(state)

    def close(self) -> None:
        self._is_closed.set()

    def _check(self) -> None:
        if self._is_closed.is_set():
            raise LeftError


def load(collector: RolloutCollector, weights: Weights) -> None:
    """Give a collector's policies other weights, and let them drop what they computed with those before."""
    for agent, state in weights.items():
        policy = collector.policies[agent]
        assert isinstance(policy, TrainablePolicy)  # as those are whose weights they are
        policy.load_state_dict(dict(state))
        policy.forget()
