"""Starting weights: a new run begins with the policies and critics of another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ..._errors import UserError
from ...agents.core import FittedCritic, Policy, TrainablePolicy
from ..learning.critic_learner import CriticLearner
from .checkpoint import has_checkpoint, newest_checkpoint, read_start


class UnfitWeightsError(UserError):
    """A run has no weights for another one's models."""


@dataclass(frozen=True)
class StartingWeights:
    """Weights by agent, and critics by name. What another run has learned of optimizers and tasks is not among them."""

    source: str
    """Run that they come from, for messages."""
    policies: Mapping[str, Mapping[str, Tensor]]
    """`Policy.state_dict` of each agent that learned."""
    critics: Mapping[str, Mapping[str, Any]]
    """Critics by name: each one's `state_dict` under "critic", and the unit of its values under "moments"."""

    @classmethod
    def of_run(cls, directory: Path) -> StartingWeights:
        """The weights of a run's newest checkpoint.

        Raises:
            UnfitWeightsError: if it has none.
        """
        check_start(directory)
        found = newest_checkpoint(directory)
        assert found is not None
        state = found.trainer
        return cls(
            source=str(directory),
            policies={agent: state["learners"][name]["policy"] for agent, name in state["learner_of"].items()},
            critics={
                name: {"critic": critic["critic"], "moments": critic["moments"]}
                for name, critic in state["critics"].items()
            },
        )

    @classmethod
    def kept_in(cls, directory: Path) -> StartingWeights | None:
        """The weights that a run began with; None where its settings alone say them."""
        kept = read_start(directory)
        return None if kept is None else cls(**kept)

    def to_state(self) -> dict[str, Any]:
        """As a run directory keeps them."""
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in vars(self).items()}

    def give_policies(self, policies: Mapping[str, Policy]) -> None:
        """Let policies that learn begin with these weights.

        Raises:
            UnfitWeightsError: if there are none for an agent, or none of its shape.
        """
        given: set[int] = set()
        for agent, policy in policies.items():
            if not isinstance(policy, TrainablePolicy) or id(policy) in given:
                continue
            if agent not in self.policies:
                raise UnfitWeightsError(f"{self.source} has no weights for {agent!r}, but for {sorted(self.policies)}")
            self._check(repr(agent), self.policies[agent], policy.state_dict())
            policy.load_state_dict(dict(self.policies[agent]))
            given.add(id(policy))

    def give_critics(self, critics: Sequence[CriticLearner]) -> None:
        """Load these weights into critics of the same agents; other critics, and fitted ones, keep their own.

        Raises:
            UnfitWeightsError: if a critic of this name has another shape.
        """
        for learner in critics:
            name = learner.agents[0]
            if name in self.critics and not isinstance(learner.critic, FittedCritic):
                kept = self.critics[name]
                self._check(f"the critic {name!r}", kept["critic"], learner.critic.state_dict())
                learner.critic.load_state_dict(dict(kept["critic"]))
                learner.moments = kept["moments"]

    def _check(self, owner: str, kept: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
        """Refuse weights of another shape."""
        for name in sorted(own.keys() | kept.keys()):
            there, here = (f"of shape {tuple(each[name].shape)}" if name in each else "missing" for each in (kept, own))
            if there != here:
                raise UnfitWeightsError(
                    f"{self.source} has other weights for {owner}: {name} is {there} there and {here} here; begin with "
                    "a run of the same models"
                )


def check_start(directory: Path) -> None:
    """Refuse a folder that a run cannot begin with.

    Raises:
        UnfitWeightsError: if it has no checkpoint.
    """
    if not has_checkpoint(directory):
        raise UnfitWeightsError(f"{directory} has no checkpoint to begin with; give a run of `collm train`")
