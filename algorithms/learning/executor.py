"""Executor: runs prepared model updates one after the other, in threads, or with one model on the device at a time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, Protocol

from torch import nn

from ...agents.core import Workplace
from ..config import TrainConfig
from ..distribution.group import current
from ..rollout.side_by_side import ModelTask, SideBySide
from .metrics import annotated, means
from .optimizer import to_host


class Learner(Protocol):
    """A policy or a critic that learns."""

    agents: list[str]
    """Agents that play the policy or that the critic serves, in the environment's order; "joint" for a joint critic."""

    def parameters(self) -> list[nn.Parameter]: ...

    def workplace(self) -> Workplace | None:
        """The model and its device. None: only the calling thread may use it."""

    def free_gradients(self) -> None: ...

    def __hash__(self) -> int: ...


class Update(NamedTuple):
    """A prepared update of one model. Its random numbers are drawn, so updates of different models may run at once."""

    learner: Learner
    run: Callable[[], dict[str, float]]
    """Takes the optimizer steps; returns metrics."""


class WeightOffloader:
    """Keeps the weights of some models on their device, and those of the other models in host memory.

    Args:
        weights: weights by model. A weight that two models share is on its device if one of them is.
    """

    def __init__(self, weights: Mapping[Hashable, Iterable[nn.Parameter]]):
        self._weights = {model: list(own) for model, own in weights.items()}
        self._homes = {weight: weight.device for own in self._weights.values() for weight in own}

    def only(self, models: Iterable[Hashable]) -> None:
        """Move the weights of all other models to host memory, then those of these models to their device."""
        here = {weight for model in models for weight in self._weights[model]}
        for weight in self._homes:
            if weight not in here:
                weight.data = to_host(weight.data)
        for weight in here:
            weight.data = weight.data.to(self._homes[weight], non_blocking=True)


class Executor:
    """Runs the updates of policies and critics.

    With `offload="learner"` only the model that is updated is on the device; between updates the actors are. With
    several ranks updates run one after the other, because all ranks must call collective operations in one order.

    Args:
        config: source of `offload`.
        threads: runs updates of models with their own weights in threads, if that pays.
        actors: learners of the policies.
        critics: learners of the critics.
    """

    def __init__(self, config: TrainConfig, threads: SideBySide, actors: Sequence[Learner], critics: Sequence[Learner]):
        self._threads = threads
        self._actors = actors
        self._offloader = None
        if config.offload == "learner":
            self._offloader = WeightOffloader({learner: learner.parameters() for learner in (*actors, *critics)})
            self._offloader.only(actors)

    def run(self, updates: Sequence[Update]) -> dict[str, float]:
        """Run updates; returns the mean of each metric over them.

        Raises:
            Divergence: if a number is not finite, with the agents of the learner.
        """
        models = {model for update in updates if (model := update.learner.workplace()) is not None}
        if self._offloader is None and not current().is_orderly and self._threads.uses_threads(list(models)):
            tasks = [ModelTask(update.learner.workplace(), partial(self._run_one, update)) for update in updates]
            metrics = self._threads.results(tasks)
        else:
            metrics = []
            for update in updates:
                metrics.append(self._run_one(update))
        return means(metrics)

    @contextmanager
    def on_device(self, learners: Sequence[Learner]) -> Iterator[None]:
        """With offloading: only these learners are on the device inside the block, and the actors after it."""
        if self._offloader is not None:
            self._offloader.only(learners)
        yield
        if self._offloader is not None:
            self._offloader.only(self._actors)

    def _run_one(self, update: Update) -> dict[str, float]:
        with annotated(agents=update.learner.agents), self.on_device([update.learner]):
            metrics = update.run()
            update.learner.free_gradients()
            return metrics
