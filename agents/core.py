"""The contracts between worlds and learning: request → completion, track → evaluation, history → values.

A policy answers requests with completions; to learn it, the same policy evaluates the completions again, with a
gradient. A critic reads histories. None of the three knows whether the world is made of text or of vectors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from .._errors import UserError
from .batching import micro_batches

SHOWN_METRICS = ("return", "policy_loss", "value_loss", "grad_norm", "critic_grad_norm", "entropy", "kl_after_update")
"""Metrics of the last update that the message shows, if they exist."""
SMALL_LEARNING_RATE = 5e-4
"""Learning rate of perceptrons and small language models, whose weights still have everything to learn."""
NO_TOKENS: NDArray[np.float32] = np.zeros(0, dtype=np.float32)
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Completion:
    """One decision: what the environment gets, and what learning needs of how it was made."""

    action: Any
    """What `env.step` gets: text, a number, a vector."""
    logprobs: NDArray[np.float32] = field(default_factory=lambda: NO_TOKENS)
    """[T] log-probability of each sampled token, in nats, temperature included; a vector action is one token."""
    entropies: NDArray[np.float32] = field(default_factory=lambda: NO_TOKENS)
    """[T] entropy of the distribution each token was sampled from, in nats."""
    is_cut: bool = False
    """True where the token limit ended it."""
    tokens: Any = None
    """What the policy needs to evaluate it again: token ids, or the raw action and its observation."""
    value: float | None = None
    """The policy's own estimate of the return, where it carries a value head."""
    version: int = 0
    """Version of the weights that made it: the number of updates behind them."""


@dataclass(frozen=True, slots=True)
class Request:
    """One decision to be made: an agent in an episode at a turn."""

    agent: str
    observation: Any
    stream: tuple[int, ...]
    """Names the random stream of this decision, (seed, episode, agent, turn): no other request draws from it."""
    previous: Completion | None = None
    """The same agent's last completion in this episode, so that its tokens are extended and not made anew."""
    action_mask: Any = None
    """Mask of the legal options, where the environment's info tells it; None: all that the observation allows."""


@dataclass(frozen=True, slots=True)
class CriticInput:
    """What a critic reads of one episode: the history before each turn, oldest first."""

    histories: tuple[Any, ...]
    """One for each turn, and one more where the value of the last history is asked for too."""
    actions: tuple[Any, ...] = ()
    """For Q: what was done after each history of a turn, messages or a vector (one for each agent in a joint input);
    empty for V."""
    completions: tuple[Completion, ...] = ()
    """The agent's own, so that a head on the actor reads the very tokens that were sampled; empty in a joint input."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The log-probabilities of completions under the present weights, with a gradient."""

    logprobs: Tensor
    """[K] log-probability of every sampled token, turn after turn, track after track."""
    entropies: Tensor
    """[K] entropies of the distributions they were sampled from."""
    turn_of_token: Tensor
    """[K] which of the N turns a token belongs to."""
    values: Tensor | None = None
    """[N] what the policy's own value head says before each turn; None without a head."""


class Divergence(UserError, FloatingPointError):
    """A gradient, loss or logit that is not finite. The weights are those before the step that it would have made.

    The message is one line. Whoever passes the exception on fills in what it knows.

    Args:
        problem: what is not finite.
        parameters: weights that it was computed with.
        rows: decisions of a batch that it concerns, where the agents are not known yet.

    Attributes:
        problem: what is not finite.
        agents: agents whose policy or critic it is.
        update: number of the update, counted from 1.
        rewards: least and greatest reward that the update learned from; None while it was still collecting.
        metrics: the last update's metrics, which were finite.
        largest_weight: greatest magnitude among the weights.
        learning_rate: learning rate of those weights.
        remedy: what to do, where it is not to lower the learning rate.
    """

    def __init__(self, problem: str, parameters: Iterable[nn.Parameter] = (), rows: Sequence[int] = ()):
        super().__init__(problem)
        self.problem = problem
        self.rows = tuple(rows)
        self.agents: tuple[str, ...] = ()
        self.update: int | None = None
        self.rewards: tuple[float, float] | None = None
        self.metrics: Mapping[str, float] = {}
        self.largest_weight = largest(parameters)
        self.learning_rate: float | None = None
        self.remedy: str | None = None

    def __str__(self) -> str:
        where = [] if self.update is None else [f"update {self.update}"]
        where += [f"agent {', '.join(self.agents)}"] if self.agents else []
        said = [f"{', '.join(where)}: {self.problem}" if where else self.problem]
        if self.rewards is not None:
            said.append(f"its observations and rewards ({self.rewards[0]:g} to {self.rewards[1]:g}) were finite")
        if self.largest_weight is not None:
            said.append(f"the largest weight is {self.largest_weight:.3g}")
        if self.metrics:
            shown = ", ".join(f"{name} {self.metrics[name]:.4g}" for name in SHOWN_METRICS if name in self.metrics)
            said.append(f"the update before had {shown}")
        rate = "" if self.learning_rate is None else f" ({self.learning_rate:g})"
        return "; ".join([*said, self.remedy or f"lower the learning rate{rate}, or compute in float32"])


def largest(parameters: Iterable[nn.Parameter]) -> float | None:
    """Greatest magnitude of any weight; None without weights."""
    return max((float(weight.detach().abs().max()) for weight in parameters if weight.numel()), default=None)


class Learnable(ABC):
    """What an optimizer changes, a checkpoint keeps and a folder holds, of policies and critics alike."""

    @abstractmethod
    def parameters(self) -> list[nn.Parameter]:
        """What an optimizer may change, a policy's value head included."""

    @abstractmethod
    def state_dict(self) -> dict[str, Tensor]:
        """The weights that learn, and whatever else changes in training."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over what `state_dict` gave."""

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Write everything that is needed to load it again into a folder."""

    def shard(self, mesh: DeviceMesh) -> None:  # noqa: B027  # most are too small for it
        """Keep a share of the weights, where there is much to share; a second call changes nothing.

        Args:
            mesh: the ranks that share, along one dimension; all of them make this call.
        """

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Inside the block the first rank has all weights, which `state_dict` and `save` need; all ranks enter it."""
        yield


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where a policy or a critic computes. Those of different workplaces share no weights, and may compute at the same
    time."""

    model: int
    """Number of the model: equal where weights, or what is computed with them, are shared."""
    device: torch.device


class Processes(Protocol):
    """The processes that train together, as one of them sees them; one that trains by itself is among them alone."""

    @property
    def is_writer(self) -> bool:
        """Whether this one writes for all."""

    def by_writer(self, work: Callable[[], Value]) -> Value:
        """What the work returns, or raises, on the process that writes; the others wait. All call it."""


class Policy(ABC):
    """Answers requests."""

    def workplace(self) -> Workplace | None:
        """Where it computes; None where it may not do so in a thread beside others."""
        return None

    @abstractmethod
    def act(self, requests: Sequence[Request], *, greedy: bool = False) -> list[Completion]:
        """One completion for each request, in order; the answer to one does not depend on the others."""

    def make_ready(self, processes: Processes) -> None:  # noqa: B027  # most have nothing to exchange
        """Prepare to answer with the present weights; all processes that train together call it before they play."""

    def batch_key(self) -> object:
        """Policies of equal key can answer in one call of `act_together`: adapters of one base model."""
        return id(self)

    def act_together(self, requests: Sequence[tuple[Policy, Request]], *, greedy: bool = False) -> list[Completion]:
        """Answer the requests of all policies that share this one's `batch_key`."""
        return self.act([request for _, request in requests], greedy=greedy)

    def fix_shapes(self) -> None:  # noqa: B027  # nothing to do for most
        """From here on, answer each request bit for bit as if it were asked alone, whatever else is in the batch.

        Sums are rounded by the shapes that they are computed in, so this costs speed. Nothing to do where answers do
        not depend on the batch at all.

        Raises:
            ValueError: if this policy cannot.
        """


class TrainablePolicy(Policy, Learnable):
    """A policy that learns: it evaluates its own completions again, with a gradient.

    A track is one agent's completions in one episode, in order.
    """

    reads_turns_alone: ClassVar[bool] = False
    """True where the turns of a track are evaluated one by one, so that they may be learned from in any grouping."""
    value_head: nn.Module | None = None
    """Estimates the return before each turn; None without one."""

    @property
    def default_learning_rate(self) -> float:
        """AdamW's learning rate where the settings name none."""
        return SMALL_LEARNING_RATE

    @property
    def compute_dtype(self) -> torch.dtype | None:
        """Data type of forward passes; None: that of the weights. float16 has its losses scaled in learning."""
        return None

    @property
    def max_tokens_per_turn(self) -> int:
        """Largest number of tokens of a completion: part of the fixed denominator of a loss per token."""
        return 1

    @property
    def is_sampled_elsewhere(self) -> bool:
        """Whether its completions carry the log-probabilities of a sampler that rounds otherwise than `evaluate`."""
        return False

    @property
    def is_scored_later(self) -> bool:
        """Whether its completions lack entropies and its own log-probabilities: processes that share its weights can
        only evaluate together, and not while each plays its own episodes."""
        return False

    def scored(
        self,
        tracks: Sequence[Sequence[Completion]],
        logprobs: Sequence[NDArray[np.float32]],
        entropies: Sequence[NDArray[np.float32]],
    ) -> list[tuple[Completion, ...]]:
        """The tracks with what they lacked.

        Args:
            logprobs: as of `evaluate`, of all tokens of each track.
            entropies: likewise.
        """
        return [
            tuple(
                replace(turn, logprobs=own, entropies=each)
                for turn, own, each in zip(track, *(by_turn(track, of) for of in scores), strict=True)
            )
            for track, *scores in zip(tracks, logprobs, entropies, strict=True)
        ]

    @abstractmethod
    def evaluate(self, tracks: Sequence[Sequence[Completion]]) -> Evaluation:
        """Log-probabilities, entropies and values of all turns of all tracks."""

    @abstractmethod
    def num_tokens(self, track: Sequence[Completion]) -> int:
        """What evaluating the track costs, in tokens; micro-batches are cut by it."""

    def batches(self, tracks: Sequence[Sequence[Completion]], items: Sequence[int], max_tokens: int) -> list[list[int]]:
        """The numbers of the tracks to be evaluated in one pass each; a pass of several tracks keeps to the budget.

        Args:
            items: the tracks that are to be evaluated, by number.
        """
        sizes = [self.num_tokens(track) for track in tracks]
        return list(micro_batches(sizes, items, max_tokens))

    @abstractmethod
    def reference(self, device: torch.device | None = None) -> TrainablePolicy:
        """What the policy starts from, frozen, as the anchor of a KL penalty: a copy, or a base that is shared.

        Args:
            device: where a copy is to lie. None: beside the policy.
        """

    def observe(self, completions: Sequence[Completion]) -> None:
        """Take in what was seen before these completions, all of an update in a fixed order; for normalization, say."""

    def forget(self) -> None:
        """Drop what was computed with old weights; called after each update."""

    def rest(self) -> None:
        """Give back memory that only deciding needs; called between the episodes and the update from them."""


def by_turn(track: Sequence[Completion], scores: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """Scores of all tokens of a track, cut into those of its turns."""
    return np.split(scores, np.cumsum([len(turn.logprobs) for turn in track])[:-1])


class Critic(Learnable):
    """Estimates returns from histories. `values` alone changes nothing."""

    reads_turns_alone: ClassVar[bool] = False
    """True where the turns of an input are valued one by one, so that they may be learned from in any grouping."""

    @abstractmethod
    def values(self, inputs: Sequence[CriticInput]) -> Tensor:
        """[N] in order: for each input, V of each of its histories, then Q of each of its actions in its history."""

    @property
    def compute_dtype(self) -> torch.dtype | None:
        """Data type of forward passes; None: that of the weights. float16 has its losses scaled in learning."""
        return None

    def workplace(self) -> Workplace | None:
        """Where it computes; None where it may not do so in a thread beside others."""
        return None

    def observe(self, inputs: Sequence[CriticInput]) -> None:  # most keep no statistics
        """Take all inputs of an update into running statistics, once, before any of them is valued."""

    @abstractmethod
    def num_tokens(self, item: CriticInput) -> int:
        """What valuing the input costs, in tokens; micro-batches are cut by it."""


class FittedCritic(Critic):
    """A critic that is fitted anew to all examples of its replay at each update, without gradient steps.

    Its values are in the unit of the rewards. It has no weights that an optimizer changes.
    """

    def parameters(self) -> list[nn.Parameter]:
        return []

    @abstractmethod
    def fit(
        self, inputs: Sequence[CriticInput], targets: Sequence[Tensor], ages: Sequence[int] | None = None
    ) -> dict[str, float]:
        """Forget what was fitted and fit these examples.

        Args:
            inputs: of the whole replay.
            targets: of each input, [T] in reward units, those of its histories.
            ages: of each input, how many updates before those that are valued next it was collected: 1 for the newest.
                None: all alike.

        Returns:
            Metrics to log.
        """


PolicyT = TypeVar("PolicyT", bound=TrainablePolicy)


class HeadCritic(Critic, Generic[PolicyT]):
    """A critic that is the actor's own value head: it learns, is kept and is saved with the policy.

    Raises:
        ValueError: if the policy has no value head.
    """

    def __init__(self, policy: PolicyT):
        if policy.value_head is None:
            raise ValueError("the policy has no value head; make it with has_value_head=True")
        self.policy = policy

    def parameters(self) -> list[nn.Parameter]:
        return []  # the policy's optimizer changes them

    def state_dict(self) -> dict[str, Tensor]:
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        pass

    def save(self, directory: Path) -> None:
        pass
