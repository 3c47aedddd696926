"""CriticLearner: regression of one critic on value targets, with a replay of recent updates."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..._errors import UserError
from ..._progress import advance, expect
from ...agents.batching import micro_batches, sent
from ...agents.core import Critic, CriticInput, FittedCritic, HeadCritic
from ...agents.numeric.moments import RunningMoments
from ..config import ActorCriticConfig
from ..distribution.group import current
from ..functions.losses import value_loss
from .optimizer import NORM, Learner, Optimizer, Pass, Tally, diverged, means, own_passes


class ReplayEntry(NamedTuple):
    """Critic input with its value targets: of each history, then (for a Q critic) of each action."""

    input: CriticInput
    targets: Tensor  # [N], or [N, agents] of a critic with one value per agent, in reward units


@dataclass(frozen=True, slots=True)
class CriticBatch:
    """Inputs and value targets of one critic. The targets of an input are in the order of `ReplayEntry`.

    Targets and values are [N, agents] if the critic has one value per agent.
    """

    critic: CriticLearner
    inputs: Sequence[CriticInput]  # without the last history, which is only for bootstrapping
    targets: Tensor  # [N] flat, in reward units
    values: Tensor  # [N] predicted before the update, in reward units
    moments: RunningMoments  # normalization of the critic's outputs at the prediction of `values`


class CriticLearner(Learner):
    """Trainer of one critic. The value targets are normalized by their running mean and standard deviation.

    A value head has no optimizer here, because it learns with its policy. A fitted critic has no optimizer either: each
    update fits it to the whole replay, in reward units. `generator` samples from the replay. `num_agents` is the number
    of agents of a joint critic with one value per agent; its values and targets are [N, agents]. None: [N].
    """

    def __init__(
        self, critic: Critic, config: ActorCriticConfig, generator: torch.Generator, num_agents: int | None = None
    ):
        super().__init__(critic, config, config.critic_learning_rate)
        self.critic = critic
        self.config = config
        self.generator = generator
        self._shape = () if num_agents is None else (num_agents,)
        self.moments = RunningMoments.empty(self._shape)
        self.replay: deque[list[ReplayEntry]] = deque(maxlen=config.critic_replay)

    @property
    def is_actor_head(self) -> bool:
        """True if the critic is a value head that learns with its policy."""
        return isinstance(self.critic, HeadCritic)

    @torch.no_grad()
    def values(self, inputs: Sequence[CriticInput]) -> Tensor:
        """Return the critic's values [N] in reward units. Raises `Divergence` if a value is not finite."""
        return self.moments.denormalize(self._outputs(inputs))

    @torch.no_grad()
    def _outputs(self, inputs: Sequence[CriticInput]) -> Tensor:
        """Return the critic's outputs [N] for all inputs, flat, in normalized units, in host memory."""
        found: dict[int, Tensor] = {}
        passes = self._passes(inputs)
        expect(len(passes))
        for batch, _ in passes:
            values = self._values([inputs[i] for i in batch])
            found |= dict(zip(batch, torch.split(values, [_num_values(inputs[i]) for i in batch]), strict=True))
            advance()
        found = current().union(found)
        outputs = torch.cat([found[i] for i in range(len(inputs))]).view(-1, *self._shape).float().cpu()
        if not outputs.isfinite().all():
            raise diverged("the critic's values are not finite", self.critic.parameters())
        return outputs

    def _values(self, inputs: Sequence[CriticInput]) -> Tensor:
        values = self.critic.values(inputs)
        expected = (sum(map(_num_values, inputs)), *self._shape)
        if values.shape != expected:
            raise UserError(
                f"values of {type(self.critic).__name__} have shape {tuple(values.shape)}, but must have {expected}: "
                "one per history, and per agent if a joint critic learns with credited_reward='own'"
            )
        return values

    def start_update(self, update: int) -> None:
        if self.optimizer is not None:
            self.optimizer.set_progress(update)

    def observe(self, targets: Tensor) -> None:
        """Update the running mean and standard deviation of the value targets."""
        if self.config.value_normalization and not isinstance(self.critic, FittedCritic):
            self.moments = self.moments.updated(targets)

    def learn(self, inputs: Sequence[CriticInput], targets: Tensor) -> dict[str, float]:
        return self.prepare(inputs, targets)()

    def prepare(self, inputs: Sequence[CriticInput], targets: Tensor) -> Callable[[], dict[str, float]]:
        """Update the normalization and the replay, and sample mini-batches; returns a function that updates the critic.

        All critics share one random number generator, so all are prepared before any is updated. `targets` are [N]
        flat, in reward units. `inputs` omit the last history, which is only for bootstrapping.
        """
        self.observe(targets)
        if self.is_actor_head:
            return dict
        lengths = [_num_values(each) for each in inputs]
        items = [ReplayEntry(*each) for each in zip(inputs, targets.split(lengths), strict=True)]
        if self.critic.reads_turns_alone:
            items = [turn for item in items for turn in _turns(item)]
        self.replay.append(items)
        memory = [item for update in self.replay for item in update]
        if isinstance(self.critic, FittedCritic):
            ages = [len(self.replay) - place for place, update in enumerate(self.replay) for _ in update]
            seen = [item.input for item in memory]
            return partial(self.critic.fit, seen, [item.targets for item in memory], ages)
        if self.optimizer is None:
            return dict
        drawn = [torch.randperm(len(memory), generator=self.generator) for _ in range(self.config.critic_steps)]
        chosen = [order[: self.config.critic_batch_size].tolist() for order in drawn]
        expect(sum(len(self._passes([memory[i].input for i in numbers])) for numbers in chosen))
        return partial(self._update, self.optimizer, memory, chosen)

    def _update(
        self, optimizer: Optimizer, memory: Sequence[ReplayEntry], mini_batches: Sequence[Sequence[int]]
    ) -> dict[str, float]:
        earlier = self._outputs_before_update(memory, sorted({i for chosen in mini_batches for i in chosen}))
        steps = []
        for chosen in mini_batches:
            entries, known = [memory[i] for i in chosen], [earlier.get(i) for i in chosen]
            metrics = None
            while metrics is None:  # again with a smaller loss scale, if a float16 gradient overflowed
                optimizer.zero_grad()
                metrics = optimizer.step(self._gradient(optimizer, entries, known))
            steps.append(metrics)
        mean = means(steps)
        return {"value_loss": mean["value_loss"], "critic_grad_norm": mean[NORM]}

    def _outputs_before_update(self, memory: Sequence[ReplayEntry], numbers: Sequence[int]) -> dict[int, Tensor]:
        """Return the critic's outputs for these entries of the replay, by index. Empty if values are not clipped."""
        if self.config.value_clip_range is None:
            return {}
        # Not the outputs of collection time, `critic_replay` updates ago: these would keep the critic at old values.
        inputs = [memory[i].input for i in numbers]
        outputs = self._outputs(inputs).split([_num_values(each) for each in inputs])
        return dict(zip(numbers, outputs, strict=True))

    def _gradient(self, optimizer: Optimizer, drawn: Sequence[ReplayEntry], earlier: Sequence[Tensor | None]) -> Tally:
        """Accumulate the gradient of a mini-batch of replay entries over its micro-batches; returns its metrics."""
        inputs = [item.input for item in drawn]
        num_values = sum(item.targets.numel() for item in drawn)
        clip_range = self.config.value_clip_range
        tally = Tally()
        for batch, weight in self._passes(inputs):
            values = self._values([inputs[i] for i in batch])
            targets = self.moments.normalize(torch.cat([drawn[i].targets for i in batch])).to(values.dtype)
            known = [old for i in batch if (old := earlier[i]) is not None]
            old_values = sent(torch.cat(known), values.device) if known else None
            known_flat = None if old_values is None else old_values.flatten()
            aims = sent(targets, values.device).flatten()
            loss = value_loss(values.flatten(), aims, num_values, known_flat, clip_range)
            torch.autograd.backward(optimizer.scaled(weight * loss))
            tally.add("value_loss", loss, weight)
            advance()
        return tally

    def _passes(self, inputs: Sequence[CriticInput]) -> list[Pass]:
        """Divide the inputs into micro-batches; returns those of this rank."""
        sizes, items = [self.critic.num_tokens(each) for each in inputs], range(len(inputs))
        return own_passes(lambda limit: list(micro_batches(sizes, items, limit)), sum(sizes), self.max_tokens)

    def state_dict(self) -> dict[str, Any]:
        return {
            "critic": self.critic.state_dict(),
            "optimizer": None if self.optimizer is None else self.optimizer.state_dict(),
            "moments": self.moments,
            "replay": list(self.replay),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.critic.load_state_dict(state["critic"])
        if self.optimizer is not None:
            self.optimizer.load_state_dict(state["optimizer"])
        self.moments = state["moments"]
        self.replay = deque(state["replay"], maxlen=self.config.critic_replay)
        self.generator.set_state(state["generator"])


def _num_values(item: CriticInput) -> int:
    return len(item.histories) + len(item.actions)


def _turns(item: ReplayEntry) -> list[ReplayEntry]:
    length = len(item.input.histories)
    targets = item.targets.unflatten(0, (-1, length))  # [1 or 2, T, ...]: V, then Q
    return [
        ReplayEntry(
            CriticInput((history,), item.input.actions[turn : turn + 1], item.input.completions[turn : turn + 1]),
            targets[:, turn],
        )
        for turn, history in enumerate(item.input.histories)
    ]
