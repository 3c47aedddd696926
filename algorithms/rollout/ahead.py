"""Collecting ahead: the episodes of coming updates are played while this one is learned from.

Update u learns from episodes of version u - max_staleness of the weights, or of version 0 before there is such a one:
never of an older one, and whoever is faster, of no newer one either, so that a run is the same at any speed of playing
and of learning. No more than max_staleness + 1 orders are under way or waiting.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any, NamedTuple

import torch

from .orders import Delivery, Order, Weights
from .players import Players

CHECK_S = 0.2
"""Seconds between looks for a request to stop, while an update waits for its episodes."""


class _Begun(NamedTuple):
    order: Order
    delivery: Future[Delivery]


class Ahead:
    """Has orders played ahead of their updates, in a thread of its own.

    Args:
        players: who plays them.
        max_staleness: updates between the weights that play an episode and those that learn from it.
        num_updates: updates of the run, beyond which nothing is ordered in advance.
    """

    def __init__(self, players: Players, max_staleness: int, num_updates: int):
        self.players = players
        self.max_staleness = max_staleness
        self.num_updates = num_updates
        self._begun: dict[int, _Begun] = {}  # by update
        self._work: queue.SimpleQueue[tuple[_Begun, Weights] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._state: Mapping[str, Any] | None = None  # of episodes under way after the last order that was taken

    def take(
        self,
        update: int,
        order: Callable[[int, int], Order],
        weights: Callable[[], Weights],
        check: Callable[[], None] = lambda: None,
    ) -> tuple[Order, Delivery]:
        """Order what may be ordered by now, and wait for this update's episodes.

        Args:
            update: number of updates done, which is the version of the weights now.
            order: order of an update, the first argument, by weights of a version, the second.
            weights: copies the weights as they are now.
            check: called while waiting; may raise, and the update can be taken again.

        Raises:
            Exception: what the players raised in playing it.
        """
        last = max(update, min(update + self.max_staleness, self.num_updates - 1))
        due = [number for number in range(update, last + 1) if number not in self._begun]
        copied = weights() if due else {}
        for number in due:
            self._begin(order(number, update), copied)
        begun = self._begun[update]
        while not wait([begun.delivery], CHECK_S).done:
            check()
        delivery = begun.delivery.result()
        del self._begun[update]
        self._state = delivery.state
        return begun.order, delivery

    def state_dict(self, version: int) -> dict[str, Any]:
        """State to resume from: episodes that older weights than these have played; waits for those under way.

        What is played by these weights is not kept: they play it again, from the same seeds.

        Args:
            version: version of the weights that are saved beside it.
        """
        kept: dict[int, dict[str, Any]] = {}
        state = self._state
        for update, (order, delivery) in sorted(self._begun.items()):
            if order.version == version or delivery.exception() is not None:  # the update that needs it raises that
                break
            done = delivery.result()
            state = done.state
            kept[update] = {"order": order, "episodes": done.episodes, "seconds": done.seconds, "wall_s": done.wall_s}
        return {"kept": kept, "state": state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from what `state_dict` returned; nothing may have been ordered yet."""
        self._state = state["state"]
        for update, each in state["kept"].items():
            delivery: Future[Delivery] = Future()
            delivery.set_result(Delivery(each["episodes"], [], each["seconds"], each["wall_s"], self._state))
            self._begun[update] = _Begun(each["order"], delivery)
        if self._state is not None:
            self.players.load_state_dict(self._state)

    def close(self) -> None:
        """Leave off what is under way."""
        self.players.close()
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None

    def _begin(self, order: Order, weights: Weights) -> None:
        if self._thread is None:
            # A thread of Python's has its own number of threads that torch computes with.
            arguments = (self._work, self.players, torch.get_num_threads())
            self._thread = threading.Thread(target=_play_all, args=arguments, name="collm-ahead", daemon=True)
            self._thread.start()
        begun = self._begun[order.update] = _Begun(order, Future())
        self._work.put((begun, weights))


def _play_all(work: queue.SimpleQueue[tuple[_Begun, Weights] | None], players: Players, num_threads: int) -> None:
    torch.set_num_threads(num_threads)
    while (item := work.get()) is not None:
        (order, delivery), weights = item
        try:
            delivery.set_result(players.play(order, weights))
        except BaseException as error:  # raised where the update waits for it
            delivery.set_exception(error)
