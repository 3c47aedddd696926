"""Interfaces of policies, which sample and evaluate completions, and of critics, which estimate returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from .._errors import UserError
from .batching import micro_batches

SHOWN_METRICS = ("return", "policy_loss", "value_loss", "grad_norm", "critic_grad_norm", "entropy", "kl_after_update")
"""Names of the previous update's metrics in the message of a `Divergence`."""
SMALL_LEARNING_RATE = 5e-4  # default of perceptrons and of small language models
NO_TOKENS: NDArray[np.float32] = np.zeros(0, dtype=np.float32)
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Completion:
    """Action of one agent in one turn, with the data that training needs."""

    action: Any
    """Action for `env.step`: text, number or vector."""
    logprobs: NDArray[np.float32] = field(default_factory=lambda: NO_TOKENS)
    """[T] log-probability of each sampled token, in nats, at the sampling temperature. A vector action is one token."""
    entropies: NDArray[np.float32] = field(default_factory=lambda: NO_TOKENS)
    """[T] entropy of the sampling distribution of each token, in nats."""
    is_cut: bool = False
    """True if the token limit ended the completion."""
    tokens: Any = None
    """Token ids (`TokenRecord`) or raw action (`NumericRecord`), which `TrainablePolicy.evaluate` reads."""
    value: float | None = None
    """Value that the policy's value head estimates. None: no value head."""
    version: int = 0
    """Version of the weights that sampled the completion: the number of training updates before sampling."""


@dataclass(frozen=True, slots=True)
class Request:
    """Request for the action of one agent in one turn of an episode."""

    agent: str
    observation: Any
    stream: tuple[int, ...]
    """Key of the request's random stream: (seed, episode, agent, turn). No two requests have the same key."""
    previous: Completion | None = None
    """Previous completion of the agent in this episode, whose tokens the new prompt extends. None: first turn."""
    action_mask: Any = None
    """Mask of the legal actions, from the environment's info dict. None: the info dict has no mask."""


@dataclass(frozen=True, slots=True)
class CriticInput:
    """Critic input: the histories and actions of one episode."""

    histories: tuple[Any, ...]
    """History before each turn, oldest first. An additional last history requests the value after the last turn."""
    actions: tuple[Any, ...] = ()
    """Action after each history, for Q(h, a): messages or a vector. Joint inputs: one per agent. Empty: only V(h)."""
    completions: tuple[Completion, ...] = ()
    """Completions of the agent, whose tokens a value head on the actor reads. Empty in a joint input."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Log-probabilities of completions under the current weights, with a gradient."""

    logprobs: Tensor
    """[K] log-probability of each sampled token, ordered by track (an agent's turns in an episode) and turn."""
    entropies: Tensor
    """[K] entropy of the distribution of each token."""
    turn_of_token: Tensor
    """[K] index of the token's turn among the N turns."""
    values: Tensor | None = None
    """[N] value that the value head estimates before each turn. None: no value head."""


class Divergence(UserError, FloatingPointError):
    """Raised if a gradient, loss or logit is not finite, before the optimizer changes the weights.

    Callers catch the exception, set its attributes and raise it again.

    Args:
        problem: description of the NaN or infinite value.
        parameters: weights from which this value was computed.
        rows: indices of the batch rows with this value.
    """

    def __init__(self, problem: str, parameters: Iterable[nn.Parameter] = (), rows: Sequence[int] = ()):
        super().__init__(problem)
        self.problem = problem
        self.rows = tuple(rows)
        self.agents: tuple[str, ...] = ()  # agents whose policy or critic has this value
        self.update: int | None = None  # number of the update, from 1
        self.rewards: tuple[float, float] | None = None  # smallest and largest reward; None: not collected yet
        self.metrics: Mapping[str, float] = {}  # of the previous update
        self.largest_weight = largest(parameters)
        self.learning_rate: float | None = None
        self.remedy: str | None = None  # advice at the end of the message; None: lower the learning rate

    def __str__(self) -> str:
        where = [] if self.update is None else [f"update {self.update}"]
        where += [f"agent {', '.join(self.agents)}"] if self.agents else []
        said = [f"{', '.join(where)}: {self.problem}" if where else self.problem]
        if self.rewards is not None:
            said.append(f"the observations and rewards ({self.rewards[0]:g} to {self.rewards[1]:g}) were finite")
        if self.largest_weight is not None:
            said.append(f"the largest weight is {self.largest_weight:.3g}")
        if self.metrics:
            shown = ", ".join(f"{name} {self.metrics[name]:.4g}" for name in SHOWN_METRICS if name in self.metrics)
            said.append(f"the previous update had {shown}")
        rate = "" if self.learning_rate is None else f" ({self.learning_rate:g})"
        return "; ".join([*said, self.remedy or f"lower the learning rate{rate}, or compute in float32"])


def largest(parameters: Iterable[nn.Parameter]) -> float | None:
    """Return the largest absolute value of all weights. None: no weights."""
    return max((float(weight.detach().abs().max()) for weight in parameters if weight.numel()), default=None)


class Learnable(ABC):
    """Model with trainable weights: a policy or a critic."""

    reads_turns_alone: ClassVar[bool] = False
    """True if the evaluation of a turn does not depend on other turns. Mini-batches may then split episodes."""

    @property
    def compute_dtype(self) -> torch.dtype | None:
        """Data type of forward passes. None: the weights' data type. With float16 the trainer scales the loss."""
        return None

    @abstractmethod
    def parameters(self) -> list[nn.Parameter]:
        """Trainable parameters, including the parameters of a policy's value head."""

    @abstractmethod
    def state_dict(self) -> dict[str, Tensor]:
        """Trainable weights and other state that changes in training, such as running moments."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Load the result of `state_dict`."""

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Write the model into a folder."""

    def shard(self, mesh: DeviceMesh) -> None:  # noqa: B027  # most models are too small to shard
        """Shard the weights over the ranks of a one-dimensional mesh (collective). A second call has no effect."""

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Context manager in which rank 0 has all weights, for `state_dict` and `save` (collective)."""
        yield


@dataclass(frozen=True, slots=True)
class Workplace:
    """Model and device of a policy or critic. Models with different workplaces may compute at the same time."""

    model: int
    """Key of the model. Two keys are equal if the models share weights, or caches that depend on the weights."""
    device: torch.device


class Processes(Protocol):
    """Processes of one training run."""

    @property
    def is_writer(self) -> bool:
        """True if this process writes files. The value is True in exactly one process."""

    def by_writer(self, work: Callable[[], Value]) -> Value:
        """Run `work` in the writing process. Every process returns its result or raises its error (collective)."""


class Policy(ABC):
    """Interface of policies, which choose actions."""

    def workplace(self) -> Workplace | None:
        """Model and device. None: the policy must not compute at the same time as other models."""
        return None

    @abstractmethod
    def act(self, requests: Sequence[Request], *, greedy: bool = False) -> list[Completion]:
        """Return one completion per request, in the same order. A completion depends only on its own request."""

    def make_ready(self, processes: Processes) -> None:  # noqa: B027  # most policies exchange no weights
        """Prepare `act` after a change of the weights, for example send the weights to a server (collective)."""

    def batch_key(self) -> object:
        """Key of policies that one `act_together` call can serve together, such as adapters of one base model."""
        return id(self)

    def act_together(self, requests: Sequence[tuple[Policy, Request]], *, greedy: bool = False) -> list[Completion]:
        """Return one completion per request, for policies with the same `batch_key`."""
        return self.act([request for _, request in requests], greedy=greedy)

    def fix_shapes(self) -> None:  # noqa: B027  # most policies do not compute in batches
        """Use fixed batch shapes, so that no completion depends on other requests. Raise `ValueError` if impossible."""


@runtime_checkable
class ReplyScorer(Protocol):
    """Policy that can evaluate given replies, such as a language model of this process."""

    def reply_logprobs(self, requests: Sequence[tuple[Completion, str]]) -> NDArray[np.float64]:
        """Return the log-probabilities [N] of N replies, in nats.

        Args:
            requests: N pairs of a completion of this policy, and another reply to the prompt of this completion.
        """


def act_all(policies: Mapping[str, Policy], requests: Sequence[Request], *, greedy: bool = False) -> list[Completion]:
    """Return one completion per request, in the same order. Policies with the same `batch_key` decode in one batch."""
    batches: dict[object, list[int]] = defaultdict(list)
    for number, request in enumerate(requests):
        batches[policies[request.agent].batch_key()].append(number)
    found: dict[int, Completion] = {}
    for numbers in batches.values():
        batch = [(policies[requests[i].agent], requests[i]) for i in numbers]
        found |= zip(numbers, batch[0][0].act_together(batch, greedy=greedy), strict=True)
    return [found[i] for i in range(len(requests))]


class TrainablePolicy(Policy, Learnable):
    """Policy that can be trained. The completions of one agent in one episode are called a track."""

    value_head: nn.Module | None = None
    """Head that estimates the return before each turn. None: no value head."""

    @property
    def default_learning_rate(self) -> float:
        """Learning rate of AdamW if the settings contain no learning rate."""
        return SMALL_LEARNING_RATE

    @property
    def max_tokens_per_turn(self) -> int:
        """Maximum number of tokens per completion. A loss with a constant denominator divides by it."""
        return 1

    @property
    def is_sampled_elsewhere(self) -> bool:
        """True if the log-probabilities come from another engine, whose rounding differs from that of `evaluate`."""
        return False

    @property
    def is_scored_later(self) -> bool:
        """True if `act` returns no entropies and no log-probabilities of `evaluate`. `scored` adds both later."""
        return False  # ranks with sharded weights evaluate together, which is not possible during a rollout

    def scored(
        self,
        tracks: Sequence[Sequence[Completion]],
        logprobs: Sequence[NDArray[np.float32]],
        entropies: Sequence[NDArray[np.float32]],
    ) -> list[tuple[Completion, ...]]:
        """Add log-probabilities and entropies to completions. Each array contains one value per token of a track."""
        found = []
        for track, *scores in zip(tracks, logprobs, entropies, strict=True):
            ends = np.cumsum([len(turn.logprobs) for turn in track])[:-1]
            turns = zip(track, *(np.split(each, ends) for each in scores), strict=True)
            found.append(tuple(replace(turn, logprobs=own, entropies=each) for turn, own, each in turns))
        return found

    @abstractmethod
    def evaluate(self, tracks: Sequence[Sequence[Completion]]) -> Evaluation:
        """Return log-probabilities, entropies and values for all turns of all tracks."""

    @abstractmethod
    def num_tokens(self, track: Sequence[Completion]) -> int:
        """Number of tokens to evaluate for a track (one agent's turns in an episode), to limit micro-batches."""

    def batches(self, tracks: Sequence[Sequence[Completion]], items: Sequence[int], max_tokens: int) -> list[list[int]]:
        """Divide tracks (by index) into micro-batches of at most `max_tokens` tokens. A longer track is one batch."""
        return list(micro_batches([self.num_tokens(track) for track in tracks], items, max_tokens))

    @abstractmethod
    def reference(self, device: torch.device | None = None) -> TrainablePolicy:
        """Return the reference policy of a KL penalty, with frozen weights: a copy, or the base model of the adapters.

        Args:
            device: device of a copy. None: the policy's device.
        """

    def observe(self, completions: Sequence[Completion]) -> None:
        """Update the observation statistics with all completions of a training update, in reproducible order."""

    def forget(self) -> None:
        """Clear caches that depend on the weights. Called after each training update."""

    def rest(self) -> None:
        """Release memory that only `act` needs. Called after the rollout, before the training update."""


class Critic(Learnable):
    """Interface of critics, which estimate returns from histories."""

    @abstractmethod
    def values(self, inputs: Sequence[CriticInput]) -> Tensor:
        """Return [N] values: for each input, V of each history, then Q of each action. Has no side effects.

        A joint critic of the agents' own rewards returns [N, agents], in the order of the environment's agents.
        """

    def workplace(self) -> Workplace | None:
        """Model and device. None: the critic must not compute at the same time as other models."""
        return None

    def observe(self, inputs: Sequence[CriticInput]) -> None:
        """Update the observation statistics with all inputs of a training update, before the critic evaluates them."""

    @abstractmethod
    def num_tokens(self, item: CriticInput) -> int:
        """Number of tokens to evaluate for an input, to limit micro-batches."""


class FittedCritic(Critic):
    """Critic that `fit` fits to a replay buffer instead of gradient steps. Values are in reward units."""

    def parameters(self) -> list[nn.Parameter]:
        return []

    @abstractmethod
    def fit(
        self, inputs: Sequence[CriticInput], targets: Sequence[Tensor], ages: Sequence[int] | None = None
    ) -> dict[str, float]:
        """Fit the critic to all inputs, replace the previous fit, and return metrics to log.

        Args:
            inputs: all inputs of the replay buffer.
            targets: for each input, the value targets [T] of its histories, in reward units; [T, agents] if the critic
                has one value per agent.
            ages: for each input, the number of updates since it was collected (newest: 1). None: equal ages.
        """


PolicyT = TypeVar("PolicyT", bound=TrainablePolicy)


class HeadCritic(Critic, Generic[PolicyT]):
    """Critic that is the value head of an actor. The policy trains, checkpoints and saves the head's weights."""

    def __init__(self, policy: PolicyT):
        if policy.value_head is None:
            raise ValueError("the policy has no value head; make it with has_value_head=True")
        self.policy = policy

    def parameters(self) -> list[nn.Parameter]:
        return []  # the policy's optimizer has the head's parameters

    def state_dict(self) -> dict[str, Tensor]:
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        pass

    def save(self, directory: Path) -> None:
        pass
