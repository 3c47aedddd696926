"""Policies and critics of users by name, for command lines and for the settings that a run keeps.

A registered policy is a team's model (`ModelConfig.model`, `collm train … --model NAME`); a registered critic is what
`critic_model_name_or_path` names. Both are made by a factory that is told where they will sit.
"""

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
    """Where a policy sits: the agent that it plays, and what is asked of it."""

    agent: str
    observation_space: Space[Any]
    action_space: Space[Any]
    model: ModelConfig = field(default_factory=ModelConfig)
    """Settings of sampling, device and data type."""
    has_value_head: bool = False
    """Whether the algorithm wants a value head on the actor (`Evaluation.values`)."""
    seed: int = 0
    """Seed of new weights."""


@dataclass(frozen=True, kw_only=True)
class CriticSeat:
    """Where a critic sits: the history that it values, and whose actions."""

    agent: str | None
    """Agent whose own history is valued. None: the joint history."""
    policy: Policy
    """The agent's policy (for a joint history the first agent's), whose tokenizer or spaces a critic may share."""
    observation_space: Space[Any] | None
    """Space of the observations. None: text, or a joint history without a space of its own."""
    action_spaces: Mapping[str, Space[Any]] = field(default_factory=dict)
    """By agent, the spaces of the actions that Q(h, a) reads. Empty: V(h) alone."""
    head_hidden_dim: int | None = None
    """Width of a tanh layer in the critic's head. None: linear head."""
    seed: int = 0
    """Seed of new weights."""


PolicyFactory = Callable[[Seat], "Policy"]
PolicyLoader = Callable[[Path, Seat], "Policy"]
CriticFactory = Callable[[CriticSeat], "Critic"]


@dataclass(frozen=True)
class PolicySpec:
    """How a registered policy is made, and read back from the folder that its `save` wrote."""

    make: PolicyFactory
    load: PolicyLoader | None = None
    """None: a policy that does not learn, which is made anew."""
    check: Callable[[Seat], object] | None = None
    """Raises `UserError` where `make` would, before anything is written. None: nothing to find out early."""


_policies: dict[str, PolicySpec] = {}
_critics: dict[str, CriticFactory] = {}


def register_policy(
    name: str, make: PolicyFactory, *, load: PolicyLoader | None = None, replace: bool = False
) -> PolicySpec:
    """Make a policy known by name. Registering the same thing twice does nothing.

    Args:
        name: what `--model` takes: lower-case letters, digits, and ". _ -" between them.
        make: called once per agent (once for all, with weights="shared"). A `TrainablePolicy` learns, any other
            `Policy` plays along.
        load: reads what the policy's `save` wrote into a folder; needed for policies that learn.
        replace: whether to overwrite another policy of this name.

    Raises:
        ValueError: if the name is malformed or taken.
    """
    added = PolicySpec(make, load)
    _add(_policies, "policy", name, added, replace)
    return added


def register_critic(name: str, make: CriticFactory, *, replace: bool = False) -> None:
    """Make a critic known by name, for `critic_model_name_or_path`. Registering the same thing twice does nothing.

    Args:
        name: lower-case letters, digits, and ". _ -" between them.
        make: called once per critic.
        replace: whether to overwrite another critic of this name.

    Raises:
        ValueError: if the name is malformed or taken.
    """
    _add(_critics, "critic", name, make, replace)


def registered_policy(name: str) -> PolicySpec | None:
    """What was registered under a name; None for a model's name."""
    return _policies.get(name)


def registered_critic(name: str) -> CriticFactory | None:
    """What was registered under a name; None for a model's name."""
    return _critics.get(name)


def _add(registry: dict[str, Any], kind: str, name: str, added: Any, replace: bool) -> None:
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise ValueError(f"a {kind}'s name must look like 'my-{kind}' and not be one of {_RESERVED}, got {name!r}")
    if registry.get(name, added) != added and not replace:
        raise ValueError(f"a {kind} {name!r} is already registered; choose another name, or pass replace=True")
    registry[name] = added
