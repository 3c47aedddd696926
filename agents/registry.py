"""Registry of user-defined policies (setting `model`) and critics (setting `critic_model_name_or_path`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium.spaces import Space

from .config import BAG_OF_WORDS, TINY, ModelConfig

if TYPE_CHECKING:
    from .core import Critic, Policy

_NAME = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")
_RESERVED = (TINY, "small", "actor", BAG_OF_WORDS)


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Arguments of a policy factory: the agent and its settings."""

    agent: str
    observation_space: Space[Any]
    action_space: Space[Any]
    model: ModelConfig = field(default_factory=ModelConfig)
    """Settings for sampling, device and data type."""
    has_value_head: bool = False
    """True if the algorithm needs a value head on the actor (`Evaluation.values`)."""
    seed: int = 0
    """Seed of the initial weights."""


@dataclass(frozen=True, kw_only=True)
class CriticSeat:
    """Arguments of a critic factory: the histories and actions that the critic evaluates."""

    agent: str | None
    """Agent whose histories the critic reads. None: joint histories of all agents."""
    policy: Policy
    """Policy of this agent. For joint histories: policy of the first agent."""
    observation_space: Space[Any] | None
    """Space of the histories. None: histories are text, or joint histories without a state space."""
    action_spaces: Mapping[str, Space[Any]] = field(default_factory=dict)
    """Action space of each agent, for Q(h, a). Empty: only V(h)."""
    head_hidden_dim: int | None = None
    """Width of a tanh layer in the critic's head. None: linear head."""
    num_agents: int | None = None
    """Number of agents with an own value: `values` must return [N, num_agents]. None: [N]."""
    seed: int = 0
    """Seed of the initial weights."""


PolicyFactory = Callable[[Seat], "Policy"]
PolicyLoader = Callable[[Path, Seat], "Policy"]
CriticFactory = Callable[[CriticSeat], "Critic"]


@dataclass(frozen=True)
class PolicySpec:
    """Factory and loader of a registered policy."""

    make: PolicyFactory
    load: PolicyLoader | None = None
    """Function that loads a folder written by the policy's `save`. None: not trainable; `make` is called again."""
    check: Callable[[Seat], object] | None = None
    """Function that raises the errors of `make` before the run folder is created. None: no check."""


_policies: dict[str, PolicySpec] = {}
_critics: dict[str, CriticFactory] = {}


def register_policy(
    name: str, make: PolicyFactory, *, load: PolicyLoader | None = None, replace: bool = False
) -> PolicySpec:
    """Register a policy by name. Repeating a registration has no effect.

    Args:
        name: value for `--model`: lower-case letters, digits, and ". _ -" between them.
        make: function that returns a policy. It is called once per agent, or once with weights="shared".
        load: function that loads a folder written by `save`. Required for a `TrainablePolicy`, which is trained.
        replace: whether to replace another policy with this name.

    Raises:
        ValueError: if the name is malformed or taken.
    """
    added = PolicySpec(make, load)
    _add(_policies, "policy", name, added, replace)
    return added


def register_critic(name: str, make: CriticFactory, *, replace: bool = False) -> None:
    """Register a critic by name, for `critic_model_name_or_path`. Repeating a registration has no effect.

    Args:
        name: lower-case letters, digits, and ". _ -" between them.
        make: function that returns a critic. It is called once per critic.
        replace: whether to replace another critic with this name.

    Raises:
        ValueError: if the name is malformed or taken.
    """
    _add(_critics, "critic", name, make, replace)


def registered_policy(name: str) -> PolicySpec | None:
    return _policies.get(name)


def registered_critic(name: str) -> CriticFactory | None:
    return _critics.get(name)


def _add(registry: dict[str, Any], kind: str, name: str, added: Any, replace: bool) -> None:
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise ValueError(f"a {kind}'s name must look like 'my-{kind}' and not be one of {_RESERVED}, got {name!r}")
    if registry.get(name, added) != added and not replace:
        raise ValueError(f"a {kind} {name!r} is already registered; choose another name, or pass replace=True")
    registry[name] = added
